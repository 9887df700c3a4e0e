package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Vectors as a sentence encoder of 384 numbers gives: directions around one centre for each hundred of them.
const benchDimensions, benchQueries, rowsOfCentre = 384, 1024, 100

// searchedRows is how many there are, which MEMPO_BENCH_ROWS sets; a million take 1.5 GB.
func searchedRows() int {
	if n, err := strconv.Atoi(os.Getenv("MEMPO_BENCH_ROWS")); err == nil && n >= 2*rowsOfCentre {
		return n
	}
	return 100_000
}

// benchVectors are made once for all benchmarks.
var benchVectors = sync.OnceValues(func() (vectors []float32, queries [][]float32) {
	n := searchedRows()
	all := clustered(rand.New(rand.NewPCG(7, 8)), n+benchQueries, benchDimensions, n/rowsOfCentre)
	return all[:n*benchDimensions], slices.Collect(slices.Chunk(all[n*benchDimensions:], benchDimensions))
})

func BenchmarkExactSearch(b *testing.B) {
	vectors, queries := benchVectors()
	for _, batch := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("batch-%d", batch), func(b *testing.B) {
			b.SetBytes(int64(4 * len(vectors)))
			for n := 0; b.Loop(); n++ {
				first := n * batch % benchQueries
				if _, _, err := (ExactSearch{device}).TopK(queries[first:first+batch], vectors, benchDimensions, 10); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "queries/s")
		})
	}
}

// BenchmarkGraph builds a graph and searches it with more and more candidates.
func BenchmarkGraph(b *testing.B) {
	if !GraphAvailable() {
		b.Fatal("hnswlib was left out of this build")
	}
	vectors, queries := benchVectors()
	exact, _, err := ExactSearch{device}.TopK(queries, vectors, benchDimensions, 10)
	if err != nil {
		b.Fatal(err)
	}
	var g *Graph
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			if g != nil {
				_ = g.Close()
			}
			g = buildGraph(b, vectors)
		}
	})
	defer g.Close()
	for _, ef := range []int{16, 32, 64, 128, 256, 512} {
		b.Run(fmt.Sprintf("ef-%d", ef), func(b *testing.B) {
			var rows [][]int32
			for b.Loop() {
				if rows, _, err = g.Search(queries, ef, 10); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(recall(rows, exact), "recall@10")
			b.ReportMetric(float64(len(queries)*b.N)/b.Elapsed().Seconds(), "queries/s")
		})
	}
	path := filepath.Join(b.TempDir(), "graph")
	if err := g.Save(path); err != nil {
		b.Fatal(err)
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			opened, err := device.OpenGraph(path, benchDimensions)
			if err != nil {
				b.Fatal(err)
			}
			_ = opened.Close()
		}
	})
}

func buildGraph(b *testing.B, vectors []float32) *Graph {
	b.Helper()
	g, err := device.NewGraph(GraphOptions{
		Dimensions: benchDimensions, Capacity: len(vectors) / benchDimensions, M: 16, EFConstruction: 100, Seed: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	for part := range slices.Chunk(vectors, 1000*benchDimensions) {
		if err := g.Add(part); err != nil {
			b.Fatal(err)
		}
	}
	return g
}
