package index

import (
	"context"
	"fmt"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// ExactSearcher finds the rows of a matrix whose inner products with a query are the largest.
type ExactSearcher interface {
	// TopK returns, for each query of dimensions numbers, at most k rows of vectors, best first,
	// with their inner products; equal ones are in the order of the rows. vectors holds the rows one
	// after the other and is only read, during the call.
	TopK(queries [][]float32, vectors []float32, dimensions, k int) (rows [][]int32, scores [][]float32, err error)
}

// Graph finds rows whose inner products with a query are nearly the largest, by a graph of
// neighbours (HNSW). Add is for one goroutine; Search is safe for concurrent use once all rows are in.
type Graph interface {
	// Add takes the next rows, in order, one after the other in vectors.
	Add(vectors []float32) error
	// Save writes the graph to a new file.
	Save(path string) error
	// Search is like TopK of an ExactSearcher. ef, at least k, is how many candidates it holds: more
	// find more and take longer.
	Search(queries [][]float32, ef, k int) (rows [][]int32, scores [][]float32, err error)
	// Close frees the memory.
	Close() error
}

// GraphOptions shape a graph.
type GraphOptions struct {
	Dimensions     int
	Capacity       int // most rows
	M              int // neighbours of a row
	EFConstruction int // candidates while a row's neighbours are sought
	Seed           uint64
}

// GraphLibrary makes graphs. Open reads what Save wrote; the caller has checked that the file is
// whole.
type GraphLibrary struct {
	New  func(GraphOptions) (Graph, error)
	Open func(path string, dimensions int) (Graph, error)
}

// PlainExact is an ExactSearcher in plain Go, over all cores.
type PlainExact struct{}

var _ ExactSearcher = PlainExact{}

// blockRows is how many rows a goroutine compares with every query before it goes on: few enough
// to stay in its cache.
const blockRows = 1024

// TopK implements ExactSearcher.
func (PlainExact) TopK(queries [][]float32, vectors []float32, dimensions, k int) ([][]int32, [][]float32, error) {
	if err := checkShapes(queries, vectors, dimensions); err != nil {
		return nil, nil, err
	}
	n := len(vectors) / dimensions
	parts := min(runtime.GOMAXPROCS(0), max(1, n/blockRows))
	found := make([][]ranking, parts) // of each part, for each query
	group, _ := errgroup.WithContext(context.Background())
	for part := range parts {
		group.Go(func() (err error) {
			defer guarded("the matrix of vectors", &err)()
			found[part] = scanRows(queries, vectors, dimensions, part*n/parts, (part+1)*n/parts, k)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	rows, scores := make([][]int32, len(queries)), make([][]float32, len(queries))
	for q := range queries {
		best := ranking{limit: k}
		for part := range parts {
			for _, h := range found[part][q].hits {
				best.offer(h)
			}
		}
		rows[q], scores[q] = best.apart()
	}
	return rows, scores, nil
}

// checkShapes refuses queries and vectors that are not of the dimensions.
func checkShapes(queries [][]float32, vectors []float32, dimensions int) error {
	if dimensions < 1 || len(vectors)%dimensions != 0 {
		return fmt.Errorf("%d numbers are no vectors of %d", len(vectors), dimensions)
	}
	for _, query := range queries {
		if len(query) != dimensions {
			return fmt.Errorf("a query has %d numbers, the index %d", len(query), dimensions)
		}
	}
	return nil
}

// scanRows ranks the rows from first up to end.
func scanRows(queries [][]float32, vectors []float32, dimensions, first, end, k int) []ranking {
	best := make([]ranking, len(queries))
	for q := range best {
		best[q].limit = k
	}
	for block := first; block < end; block += blockRows {
		last := min(block+blockRows, end)
		for q, query := range queries {
			for row := block; row < last; row++ {
				best[q].offer(hit{uint32(row), float64(inner(query, vectors[row*dimensions:]))})
			}
		}
	}
	return best
}

// inner is the inner product of a with as many numbers of b.
func inner(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	k := 0
	for ; k+4 <= len(a); k += 4 {
		s0 += a[k] * b[k]
		s1 += a[k+1] * b[k+1]
		s2 += a[k+2] * b[k+2]
		s3 += a[k+3] * b[k+3]
	}
	for ; k < len(a); k++ {
		s0 += a[k] * b[k]
	}
	return (s0 + s1) + (s2 + s3)
}
