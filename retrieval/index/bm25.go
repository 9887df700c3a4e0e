// Package index searches a corpus in-process.
//
// BM25 is our own, over an inverted index in memory, rather than bleve's: see the figures at
// BenchmarkSearch. Its order is exact and repeatable, which a run that must be replayed needs.
package index

import (
	"context"
	"math"
	"sync"

	"github.com/mempo-train/mempo-train/retrieval"
)

// Constants of BM25: how fast repetitions of a word saturate, and how much a passage's length
// counts. The values are Lucene's.
const (
	k1 = 1.2
	b  = 0.75
)

// BM25 ranks passages by
//
//	score(q, d) = Σ over words w of q:  idf(w) · tf(w, d) · (k1 + 1) / (tf(w, d) + k1 · (1 − b + b · |d| / mean |d|))
//	idf(w)      = ln(1 + (N − df(w) + 0.5) / (df(w) + 0.5))
//
// (Robertson and Zaragoza, The Probabilistic Relevance Framework, 2009, with Lucene's idf, which is
// never negative). A word that the query repeats counts each time. Contents are searched as a
// whole, title included. It is immutable and safe for concurrent use.
type BM25 struct {
	passages []retrieval.Passage
	postings map[string][]posting // of a word, passages ascending
	norms    []float64            // k1 · (1 − b + b · |d| / mean |d|) of a passage
	scratch  sync.Pool            // *scratch
}

var _ retrieval.Searcher = (*BM25)(nil)

type posting struct{ passage, count uint32 }

// scratch is the memory of one search: a score for each passage, all zero between searches, and
// the passages that have one.
type scratch struct {
	scores  []float64
	touched []uint32
}

func (s *scratch) clear() {
	for _, passage := range s.touched {
		s.scores[passage] = 0
	}
	s.touched = s.touched[:0]
}

// NewBM25 indexes passages, at most 2³² − 1 of them.
func NewBM25(passages []retrieval.Passage) *BM25 {
	x := &BM25{passages: passages, norms: make([]float64, len(passages))}
	x.scratch.New = func() any { return &scratch{scores: make([]float64, len(passages))} }
	lists := map[string]*[]posting{} // pointers: a known word then costs no new key
	total := 0.0
	for k, p := range passages {
		length := 0
		tokens(p.Contents, func(word []byte) {
			length++
			list := lists[string(word)]
			if list == nil {
				list = new([]posting)
				lists[string(word)] = list
			}
			if n := len(*list); n > 0 && (*list)[n-1].passage == uint32(k) {
				(*list)[n-1].count++
			} else {
				*list = append(*list, posting{uint32(k), 1})
			}
		})
		x.norms[k] = float64(length)
		total += float64(length)
	}
	mean := max(total, 1) / float64(max(len(passages), 1))
	for k, length := range x.norms {
		x.norms[k] = k1 * (1 - b + b*length/mean)
	}
	x.postings = make(map[string][]posting, len(lists))
	for word, list := range lists {
		x.postings[word] = *list
	}
	return x
}

// Len is the number of passages.
func (x *BM25) Len() int { return len(x.passages) }

// Search returns the topk passages of the highest scores, equal ones in the order of the corpus.
// A passage without any word of the query is never returned. The only error is the context's.
func (x *BM25) Search(ctx context.Context, query string, topk int) ([]retrieval.Passage, error) {
	best, err := x.rank(ctx, query, topk)
	if err != nil {
		return nil, err
	}
	found := make([]retrieval.Passage, len(best))
	for k, hit := range best {
		found[k] = x.passages[hit.passage]
	}
	return found, nil
}

func (x *BM25) rank(ctx context.Context, query string, topk int) ([]hit, error) {
	words, counts := x.queryWords(query)
	s := x.scratch.Get().(*scratch)
	defer func() {
		s.clear()
		x.scratch.Put(s)
	}()
	n := float64(len(x.passages))
	for _, word := range words {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list := x.postings[word]
		df := float64(len(list))
		weight := counts[word] * math.Log(1+(n-df+0.5)/(df+0.5)) * (k1 + 1)
		for _, p := range list {
			score := &s.scores[p.passage]
			if *score == 0 { // contributions are positive
				s.touched = append(s.touched, p.passage)
			}
			tf := float64(p.count)
			*score += weight * tf / (tf + x.norms[p.passage])
		}
	}
	best := ranking{limit: topk}
	for _, passage := range s.touched {
		best.offer(hit{passage, s.scores[passage]})
	}
	return best.hits, ctx.Err()
}

// queryWords lists the query's words that the corpus has, in order of first use, with how often
// each is used.
func (x *BM25) queryWords(query string) (words []string, counts map[string]float64) {
	counts = map[string]float64{}
	tokens(query, func(word []byte) {
		if _, ok := x.postings[string(word)]; !ok {
			return
		}
		if counts[string(word)] == 0 {
			words = append(words, string(word))
		}
		counts[string(word)]++
	})
	return words, counts
}
