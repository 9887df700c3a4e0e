package prefix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// grow makes rows of few different tokens, many of which branch off an earlier row.
func grow(random *rand.Rand) (rows [][]int32, own []int) {
	for range random.IntN(12) {
		var row []int32
		if len(rows) > 0 && random.IntN(4) > 0 {
			from := rows[random.IntN(len(rows))]
			row = slices.Clone(from[:random.IntN(len(from)+1)])
		}
		for range random.IntN(9) {
			row = append(row, int32(random.IntN(3)))
		}
		if len(row) > 0 {
			rows, own = append(rows, row), append(own, random.IntN(len(row)))
		}
	}
	return rows, own
}

// checkTree holds a tree against the definition of one.
func checkTree(t *testing.T, rows [][]int32, own []int) {
	t.Helper()
	nodes := Build(rows, own)
	if len(nodes) != len(rows) {
		t.Fatalf("%d nodes for %d rows", len(nodes), len(rows))
	}
	computed := map[string]int{} // by the prefix that ends with the token
	seen := map[int]bool{}
	for k, n := range nodes {
		row := rows[n.Row]
		if seen[n.Row] || n.Start < 0 || n.Start > own[n.Row] || n.Parent >= k || (n.Parent < 0) != (n.Start == 0) {
			t.Fatalf("node %d is %+v with own %d", k, n, own[n.Row])
		}
		seen[n.Row] = true
		for at := n.Start; at < len(row); at++ {
			computed[fmt.Sprint(row[:at+1])]++
		}
		if n.Parent < 0 {
			continue
		}
		parent := nodes[n.Parent]
		if n.Start <= parent.Start || n.Start > len(rows[parent.Row]) || !slices.Equal(rows[parent.Row][:n.Start], row[:n.Start]) {
			t.Fatalf("node %+v cannot stand behind %+v", n, parent)
		}
		// The node before is the parent, or lies below an earlier child of it that leaves it no later.
		before := k - 1
		for before != n.Parent && nodes[before].Parent != n.Parent {
			if before = nodes[before].Parent; before < 0 {
				t.Fatalf("node %d does not follow its parent %d", k, n.Parent)
			}
		}
		if before != n.Parent && nodes[before].Start > n.Start {
			t.Fatalf("children of node %d leave it at %d, then at %d", n.Parent, nodes[before].Start, n.Start)
		}
	}
	needed := map[string]int{}      // how many rows must compute a token
	repeatable := map[string]bool{} // whether it is one of the first few of each of them
	for k, row := range rows {
		for at := range row {
			prefix := fmt.Sprint(row[:at+1])
			needed[prefix] += min(1, max(0, at-own[k]+1))
			if at >= own[k]+repeated {
				repeatable[prefix] = false
			} else if _, known := repeatable[prefix]; at >= own[k] && !known {
				repeatable[prefix] = true
			}
		}
	}
	for prefix, must := range needed {
		if got := computed[prefix]; got != max(1, must) && !(repeatable[prefix] && got == must+1) {
			t.Fatalf("%s is computed %d times, %d rows must", prefix, got, must)
		}
	}
}

func TestEachTokenOnce(t *testing.T) {
	for seed := range uint64(4000) {
		rows, own := grow(rand.New(rand.NewPCG(1, seed)))
		checkTree(t, rows, own)
	}
}

func TestShapes(t *testing.T) {
	prompt, first, second := []int32{1, 2, 3}, []int32{4, 5, 6, 7, 8}, []int32{9, 9}
	row := func(parts ...[]int32) []int32 { return slices.Concat(parts...) }
	tests := []struct {
		name string
		rows [][]int32
		own  []int
		want []Node
	}{
		{"nothing", nil, nil, []Node{}},
		{"one row", [][]int32{prompt}, []int{2}, []Node{{0, -1, 0}}},
		{"rows of one length stay in order", [][]int32{row(prompt, second), row(prompt, first[:2])}, []int{2, 2}, []Node{{0, -1, 0}, {1, 0, 2}}},
		{"the longer row keeps the prompt", [][]int32{row(prompt, second), row(prompt, first)}, []int{3, 3}, []Node{{1, -1, 0}, {0, 0, 3}}},
		{
			"a context longer than the trajectory that it begins with branches off all the same",
			[][]int32{row(prompt, first), row(prompt, first[:4], second, second)},
			[]int{2, 9},
			[]Node{{0, -1, 0}, {1, 0, 7}},
		},
		{
			"contexts without a trajectory leave the longest",
			[][]int32{row(prompt, first[:1], second), row(prompt, first[:3], second), row(prompt, first[:5], second)},
			[]int{4, 6, 8},
			[]Node{{2, -1, 0}, {0, 0, 4}, {1, 0, 6}},
		},
		{
			"contexts that the answer follows at once leave the longest, too",
			[][]int32{row(prompt, first[:1], second), row(prompt, first[:3], second), row(prompt, first[:5], second)},
			[]int{3, 5, 7},
			[]Node{{2, -1, 0}, {0, 0, 3}, {1, 0, 5}},
		},
		{"equal rows share what they may", [][]int32{prompt, prompt}, []int{1, 2}, []Node{{0, -1, 0}, {1, 0, 2}}},
		{"rows that begin apart are roots", [][]int32{first, second}, []int{0, 0}, []Node{{0, -1, 0}, {1, -1, 0}}},
	}
	for _, test := range tests {
		got := Build(test.rows, test.own)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte{3, 1, 1, 2, 3, 4, 2, 1, 2, 3, 5})
	f.Fuzz(func(t *testing.T, data []byte) {
		var rows [][]int32
		var own []int
		for len(data) > 2 && len(rows) < 20 {
			length := 1 + int(data[0])%24
			first := int(data[1]) % length
			data = data[2:]
			row := make([]int32, length)
			for k := range row {
				if k < len(data) {
					row[k] = int32(data[k] % 4)
				}
			}
			data = data[min(length, len(data)):]
			rows, own = append(rows, row), append(own, first)
		}
		checkTree(t, rows, own)
	})
}
