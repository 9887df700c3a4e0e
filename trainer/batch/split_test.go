package batch

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	tests := []struct {
		name    string
		lengths []int
		budget  int
		want    []Part
	}{
		{"nothing", nil, 10, nil},
		{"one row", []int{3}, 10, []Part{{0, 1}}},
		{"all in one", []int{3, 3, 4}, 10, []Part{{0, 3}}},
		{"one token too many", []int{3, 3, 5}, 10, []Part{{0, 2}, {2, 3}}},
		{"a long row in the middle", []int{3, 30, 3, 3}, 10, []Part{{0, 1}, {1, 2}, {2, 4}}},
		{"a long row first", []int{30, 3}, 10, []Part{{0, 1}, {1, 2}}},
		{"each on its own", []int{1, 1, 1}, 1, []Part{{0, 1}, {1, 2}, {2, 3}}},
		{"no budget", []int{1, 1}, 0, []Part{{0, 1}, {1, 2}}},
		{"the order stays", []int{9, 1, 9, 1}, 10, []Part{{0, 2}, {2, 4}}},
	}
	for _, test := range tests {
		if got := Split(test.lengths, test.budget); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// Every row is in one part, no part is over the budget unless it is one row, and no two
// neighbours would fit into one.
func TestSplitCoversEveryRowOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		lengths := make([]int, random.IntN(20))
		for k := range lengths {
			lengths[k] = 1 + random.IntN(12)
		}
		budget := 1 + random.IntN(30)
		next, before := 0, budget
		for _, part := range Split(lengths, budget) {
			if part.Start != next || part.End <= part.Start {
				t.Fatalf("%v in parts of %d: part %v behind row %d", lengths, budget, part, next)
			}
			tokens := 0
			for _, length := range lengths[part.Start:part.End] {
				tokens += length
			}
			if tokens > budget && part.End-part.Start > 1 {
				t.Fatalf("%v in parts of %d: part %v holds %d", lengths, budget, part, tokens)
			}
			if before+lengths[part.Start] <= budget {
				t.Fatalf("%v in parts of %d: row %d fits into the part before", lengths, budget, part.Start)
			}
			next, before = part.End, tokens
		}
		if next != len(lengths) {
			t.Fatalf("%v in parts of %d: the parts end at row %d", lengths, budget, next)
		}
	}
}
