package engine

import "fmt"

// ExactSearch finds the rows of a matrix whose inner products with a query are the largest, by matrix products on the
// CPU. It is safe for concurrent use, and implements the ExactSearcher of package retrieval/index.
type ExactSearch struct{ *Runtime }

// TopK returns, for each query of dimensions numbers, at most k rows of vectors, best first, with their inner products;
// equal ones are in the order of the rows. vectors holds the rows one after the other, and may be memory that a file is
// mapped into: it is only read, during the call. What is found does not depend on the number of threads.
func (s ExactSearch) TopK(queries [][]float32, vectors []float32, dimensions, k int) (rows [][]int32, scores [][]float32, err error) {
	if dimensions < 1 || len(vectors)%dimensions != 0 {
		return nil, nil, fmt.Errorf("%d numbers are no vectors of %d", len(vectors), dimensions)
	}
	flat, err := flatten(queries, dimensions)
	if err != nil {
		return nil, nil, err
	}
	k = min(k, len(vectors)/dimensions)
	if k < 1 || len(queries) == 0 {
		return make([][]int32, len(queries)), make([][]float32, len(queries)), nil
	}
	hits := newFound(len(queries), k)
	if err := s.do(func() error { return searchExact(flat, len(queries), vectors, dimensions, hits) }); err != nil {
		return nil, nil, err
	}
	rows, scores = hits.apart()
	return rows, scores, nil
}

// flatten lays queries one after the other.
func flatten(queries [][]float32, dimensions int) ([]float32, error) {
	flat := make([]float32, 0, len(queries)*dimensions)
	for _, query := range queries {
		if len(query) != dimensions {
			return nil, fmt.Errorf("a query has %d numbers, the vectors %d", len(query), dimensions)
		}
		flat = append(flat, query...)
	}
	return flat, nil
}

// GraphOptions shape a graph.
type GraphOptions struct {
	Dimensions     int
	Capacity       int // most rows
	M              int // neighbours of a row, 2 to 1024; twice as many at the lowest level
	EFConstruction int // candidates while a row's neighbours are sought
	Seed           uint64
}

// Graph finds rows whose inner products with a query are nearly the largest, by hnswlib's graph of neighbours (Malkov and
// Yashunin, arXiv:1603.09320). It holds copies of the vectors, and implements the Graph of package retrieval/index.
type Graph struct {
	runtime    *Runtime
	handle     graphHandle
	dimensions int
}

// NewGraph makes an empty graph. Where hnswlib was left out of the build (GraphAvailable), the error says how to get it.
func (r *Runtime) NewGraph(o GraphOptions) (*Graph, error) {
	return r.graph(o.Dimensions, func() (graphHandle, error) { return graphNew(o) })
}

// OpenGraph reads what Save wrote. A file that is not that, or is broken, is an error; one in which bits of the vectors
// have changed is not seen.
func (r *Runtime) OpenGraph(path string, dimensions int) (*Graph, error) {
	return r.graph(dimensions, func() (graphHandle, error) { return graphOpen(path, dimensions) })
}

func (r *Runtime) graph(dimensions int, open func() (graphHandle, error)) (*Graph, error) {
	g := &Graph{runtime: r, dimensions: dimensions}
	err := r.do(func() (err error) {
		g.handle, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Add takes the next rows, in order, one after the other in vectors: some thousands at a time, so that a caller can show
// progress and stop. All threads of the runtime work; with one thread the same rows make the same graph.
func (g *Graph) Add(vectors []float32) error {
	if len(vectors)%g.dimensions != 0 {
		return fmt.Errorf("%d numbers are no vectors of %d", len(vectors), g.dimensions)
	}
	return g.runtime.do(func() error { return graphAdd(g.handle, vectors, g.dimensions) })
}

// Size is the number of rows.
func (g *Graph) Size() (n int) {
	_ = g.runtime.do(func() error { n = graphSize(g.handle); return nil })
	return n
}

// Save writes the graph, vectors included, to a file, which is not synced.
func (g *Graph) Save(path string) error {
	return g.runtime.do(func() error { return graphSave(g.handle, path) })
}

// Search is like ExactSearch.TopK; ef, raised to k where it is less, is how many candidates it holds: more find more and
// take longer.
func (g *Graph) Search(queries [][]float32, ef, k int) (rows [][]int32, scores [][]float32, err error) {
	flat, err := flatten(queries, g.dimensions)
	if err != nil {
		return nil, nil, err
	}
	k = min(k, g.Size())
	if k < 1 || len(queries) == 0 {
		return make([][]int32, len(queries)), make([][]float32, len(queries)), nil
	}
	hits := newFound(len(queries), k)
	if err := g.runtime.do(func() error { return graphSearch(g.handle, flat, len(queries), max(ef, k), hits) }); err != nil {
		return nil, nil, err
	}
	rows, scores = hits.apart()
	return rows, scores, nil
}

// Close frees the graph.
func (g *Graph) Close() error {
	return g.runtime.do(func() error {
		graphFree(g.handle)
		g.handle = nil
		return nil
	})
}
