package index

import "sort"

// hit is a passage, by its place in the corpus, with its score.
type hit struct {
	passage uint32
	score   float64
}

func (h hit) before(other hit) bool {
	if h.score != other.score {
		return h.score > other.score
	}
	return h.passage < other.passage
}

// ranking holds the best hits that were offered, at most limit: highest score first, ties by
// position. A score that is not a number is never held.
type ranking struct {
	hits  []hit
	limit int
}

func (r *ranking) offer(h hit) {
	if h.score != h.score || len(r.hits) >= r.limit && (r.limit <= 0 || !h.before(r.hits[len(r.hits)-1])) {
		return
	}
	at := sort.Search(len(r.hits), func(k int) bool { return h.before(r.hits[k]) })
	if len(r.hits) < r.limit {
		r.hits = append(r.hits, hit{})
	}
	copy(r.hits[at+1:], r.hits[at:])
	r.hits[at] = h
}

// apart returns rows and scores in lists of their own.
func (r *ranking) apart() (rows []int32, scores []float32) {
	rows, scores = make([]int32, len(r.hits)), make([]float32, len(r.hits))
	for k, h := range r.hits {
		rows[k], scores[k] = int32(h.passage), float32(h.score)
	}
	return rows, scores
}
