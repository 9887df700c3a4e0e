package engine

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wholeNumbers are numbers whose products and sums are exact, so that ties are ties in any order of summing.
func wholeNumbers(r *rand.Rand, n int) []float32 {
	numbers := make([]float32, n)
	for k := range numbers {
		numbers[k] = float32(r.IntN(7) - 3)
	}
	return numbers
}

func innerProduct(a, b []float32) (sum float32) {
	for k := range a {
		sum += a[k] * b[k]
	}
	return sum
}

// sorted is the order of all rows by inner product, equal ones by row.
func sorted(query, vectors []float32) []int32 {
	d := len(query)
	order, products := make([]int32, len(vectors)/d), make([]float32, len(vectors)/d)
	for row := range order {
		order[row], products[row] = int32(row), innerProduct(query, vectors[row*d:(row+1)*d])
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case products[a] > products[b]:
			return -1
		case products[a] < products[b]:
			return 1
		}
		return 0
	})
	return order
}

func TestExactSearchIsAFullSort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		dimensions, n, k := 1+r.IntN(9), r.IntN(9000), r.IntN(30)
		vectors := wholeNumbers(r, n*dimensions)
		queries := make([][]float32, r.IntN(70))
		for q := range queries {
			queries[q] = wholeNumbers(r, dimensions)
		}
		rows, scores, err := ExactSearch{device}.TopK(queries, vectors, dimensions, k)
		if err != nil || len(rows) != len(queries) || len(scores) != len(queries) {
			t.Fatalf("%d rows of %d queries: %v", len(rows), len(queries), err)
		}
		for q, query := range queries {
			if want := sorted(query, vectors)[:min(k, n)]; !slices.Equal(rows[q], want) {
				t.Fatalf("%d × %d, best %d: rows %v, want %v", n, dimensions, k, rows[q], want)
			}
			for j, row := range rows[q] {
				if want := innerProduct(query, vectors[int(row)*dimensions:][:dimensions]); scores[q][j] != want {
					t.Fatalf("row %d scores %v, want %v", row, scores[q][j], want)
				}
			}
		}
	}
}

func TestSearchRefusesOtherShapes(t *testing.T) {
	search := ExactSearch{device}
	for _, c := range []struct {
		queries [][]float32
		vectors []float32
		d       int
	}{{[][]float32{{1}}, make([]float32, 4), 2}, {[][]float32{{1, 2}}, make([]float32, 3), 2}, {nil, nil, 0}} {
		if _, _, err := search.TopK(c.queries, c.vectors, c.d, 1); err == nil {
			t.Errorf("%v over %d numbers of %d: no error", c.queries, len(c.vectors), c.d)
		}
	}
	nan := float32(math.NaN())
	if rows, _, err := search.TopK([][]float32{{1}}, []float32{nan, 2, nan, 1}, 1, 3); err != nil || !slices.Equal(rows[0], []int32{1, 3}) {
		t.Errorf("rows %v, %v: those whose score is no number are never found", rows, err)
	}
}

// clustered are directions around some centres, as vectors of texts of some subjects are.
func clustered(r *rand.Rand, n, dimensions, centres int) []float32 {
	around := make([]float32, centres*dimensions)
	for k := range around {
		around[k] = float32(r.NormFloat64())
	}
	vectors := make([]float32, n*dimensions)
	for row := range n {
		vector, centre := vectors[row*dimensions:][:dimensions], around[r.IntN(centres)*dimensions:]
		for k := range vector {
			vector[k] = centre[k] + 0.7*float32(r.NormFloat64())
		}
		length := float32(math.Sqrt(float64(innerProduct(vector, vector))))
		for k := range vector {
			vector[k] /= length
		}
	}
	return vectors
}

// recall is the share of the exact hits that are among the found.
func recall(found, exact [][]int32) float64 {
	hits, all := 0, 0
	for q := range exact {
		for _, row := range exact[q] {
			all++
			if slices.Contains(found[q], row) {
				hits++
			}
		}
	}
	return float64(hits) / float64(all)
}

const graphRows, graphDimensions = 5000, 32

func graphOptions() GraphOptions {
	return GraphOptions{Dimensions: graphDimensions, Capacity: graphRows, M: 16, EFConstruction: 100, Seed: 3}
}

// Without hnswlib in the build a graph is refused in a sentence that says how to get it; with it, it finds nearly what
// exact search finds, before and after it was saved.
func TestGraph(t *testing.T) {
	g, err := device.NewGraph(graphOptions())
	if !GraphAvailable() {
		if err == nil || !strings.Contains(err.Error(), "libhnswlib-dev") {
			t.Errorf("without hnswlib: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	vectors := clustered(r, graphRows+100, graphDimensions, 40)
	vectors, asked := vectors[:graphRows*graphDimensions], vectors[graphRows*graphDimensions:]
	for part := range slices.Chunk(vectors, 1000*graphDimensions) {
		if err := g.Add(part); err != nil {
			t.Fatal(err)
		}
	}
	queries := slices.Collect(slices.Chunk(asked, graphDimensions))
	exact, _, err := ExactSearch{device}.TopK(queries, vectors, graphDimensions, 10)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "graph")
	if err := g.Save(path); err != nil {
		t.Fatal(err)
	}
	opened, err := device.OpenGraph(path, graphDimensions)
	if err != nil {
		t.Fatal(err)
	}
	for _, graph := range []*Graph{g, opened} {
		expectRecall(t, graph, queries, vectors, exact)
	}
	expectGraphErrors(t, opened, path)
}

// expectRecall searches and closes a graph.
func expectRecall(t *testing.T, graph *Graph, queries [][]float32, vectors []float32, exact [][]int32) {
	t.Helper()
	rows, scores, err := graph.Search(queries, 100, 10)
	if err != nil || graph.Size() != graphRows {
		t.Fatalf("%d rows: %v", graph.Size(), err)
	}
	if share := recall(rows, exact); share < 0.95 {
		t.Errorf("recall at 10 is %.3f", share)
	}
	for q := range rows {
		for j, row := range rows[q] {
			want := innerProduct(queries[q], vectors[int(row)*graphDimensions:][:graphDimensions])
			if math.Abs(float64(scores[q][j]-want)) > 1e-5 || j > 0 && scores[q][j] > scores[q][j-1] {
				t.Fatalf("row %d scores %v behind %v, want %v", row, scores[q][j], scores[q], want)
			}
		}
	}
	for range 2 {
		if err := graph.Close(); err != nil {
			t.Error(err)
		}
	}
}

func expectGraphErrors(t *testing.T, closed *Graph, path string) {
	t.Helper()
	if _, err := device.OpenGraph(path, graphDimensions+1); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("of other dimensions: %v", err)
	}
	if err := os.Truncate(path, 100_000); err != nil {
		t.Fatal(err)
	}
	if _, err := device.OpenGraph(path, graphDimensions); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("cut short: %v", err)
	}
	if _, err := device.OpenGraph(path+"x", graphDimensions); err == nil {
		t.Error("a file that is not there was opened")
	}
	if err := closed.Add(make([]float32, graphDimensions)); err == nil || !strings.Contains(err.Error(), "null") {
		t.Errorf("a closed graph: %v", err)
	}
	if err := closed.Add(make([]float32, 3)); err == nil {
		t.Error("a part of a vector was added")
	}
	if _, _, err := closed.Search([][]float32{{1}}, 1, 1); err == nil {
		t.Error("a query of one number was searched")
	}
}
