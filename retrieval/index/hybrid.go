package index

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/mempo-train/mempo-train/retrieval"
)

// hybrid fuses the best passages of BM25 and of the vectors.
func (x *Index) hybrid(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error) {
	depth := max(x.options.Depth, topk)
	var words, meaning [][]hit
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		words, err = x.byWords(ctx, queries, depth)
		return err
	})
	group.Go(func() (err error) {
		meaning, err = x.byMeaning(ctx, queries, depth)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	fused := make([][]hit, len(queries))
	for q := range queries {
		fused[q] = fuse(x.options.RRFK, topk, words[q], meaning[q])
	}
	return x.found(fused, nil)
}

// fuse ranks passages by the sum over the lists that hold them of 1 / (k + rank), ranks counted
// from 1 (reciprocal rank fusion: Cormack, Clarke and Büttcher, SIGIR 2009).
func fuse(k float64, topk int, lists ...[]hit) []hit {
	scores := map[uint32]float64{}
	for _, list := range lists {
		for rank, h := range list {
			scores[h.passage] += 1 / (k + float64(rank+1))
		}
	}
	best := ranking{limit: topk}
	for passage, score := range scores {
		best.offer(hit{passage, score})
	}
	return best.hits
}
