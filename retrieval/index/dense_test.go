package index

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedRows is the order of all rows by inner product in float64, equal ones by row.
func sortedRows(query, vectors []float32) []int32 {
	n := len(vectors) / len(query)
	order, scores := make([]int32, n), make([]float64, n)
	for row := range n {
		order[row] = int32(row)
		for k, x := range query {
			scores[row] += float64(x) * float64(vectors[row*len(query)+k])
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order
}

// small numbers whose products and sums are exact in float32, so that ties are ties in any order of
// summing.
func wholeNumbers(r *rand.Rand, n int) []float32 {
	numbers := make([]float32, n)
	for k := range numbers {
		numbers[k] = float32(r.IntN(7) - 3)
	}
	return numbers
}

func TestPlainExactIsAFullSort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		dimensions, n, k := 1+r.IntN(9), r.IntN(5000), r.IntN(30)
		vectors := wholeNumbers(r, n*dimensions)
		queries := make([][]float32, 1+r.IntN(5))
		for q := range queries {
			queries[q] = wholeNumbers(r, dimensions)
		}
		rows, scores, err := PlainExact{}.TopK(queries, vectors, dimensions, k)
		if err != nil {
			t.Fatal(err)
		}
		for q, query := range queries {
			want := sortedRows(query, vectors)[:min(k, n)]
			if !slices.Equal(rows[q], want) {
				t.Fatalf("%d × %d, best %d: rows %v, want %v", n, dimensions, k, rows[q], want)
			}
			for j, row := range rows[q] {
				if got := inner(query, vectors[int(row)*dimensions:]); got != scores[q][j] {
					t.Fatalf("row %d scores %v, said %v", row, got, scores[q][j])
				}
			}
		}
	}
}

func TestPlainExactRefusesOtherShapes(t *testing.T) {
	for _, c := range []struct {
		queries [][]float32
		vectors []float32
		d       int
	}{
		{[][]float32{{1}}, make([]float32, 4), 2},
		{[][]float32{{1, 2}}, make([]float32, 3), 2},
		{nil, nil, 0},
	} {
		if _, _, err := (PlainExact{}).TopK(c.queries, c.vectors, c.d, 1); err == nil {
			t.Errorf("%v over %d numbers of %d: no error", c.queries, len(c.vectors), c.d)
		}
	}
	nan := float32(math.NaN())
	rows, _, err := PlainExact{}.TopK([][]float32{{1}}, []float32{nan, 2, nan, 1}, 1, 3)
	if err != nil || !slices.Equal(rows[0], []int32{1, 3}) {
		t.Errorf("rows %v, %v: those whose score is no number are never found", rows, err)
	}
}
