package world

import (
	"slices"
	"strings"
	"testing"
)

func TestParseShape(t *testing.T) {
	for text, want := range map[string]shape{
		"1": {1}, "4": {4}, "2+1": {2, 1}, "1+1+1+1+1+1+1+1+1+1": {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "2+2+2+2": {2, 2, 2, 2},
	} {
		got, err := parseShape(text)
		if err != nil || !slices.Equal(got, want) || got.String() != text || got.turns() != got.hops()+1 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":                      "is not the hops of each objective",
		"0":                     "is not the hops of each objective",
		"2+":                    "is not the hops of each objective",
		"-1":                    "is not the hops of each objective",
		"02":                    "is not the hops of each objective",
		"2 + 1":                 "is not the hops of each objective",
		"many":                  "is not the hops of each objective",
		"1+1+1+1+1+1+1+1+1+1+1": "has 11 objectives, allowed are up to 10",
		"6+5":                   "cannot be asked",
		"99999999999999999999":  "is not the hops of each objective",
		"9+1+1":                 "cannot be asked",
		// Six relations lead to none that begins where they end, or are needed before one that does.
		"2+2+2+2+2": "cannot be asked",
	} {
		if _, err := parseShape(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// Every way to choose chains holds each relation once, and each leads to the kind that the next
// begins with.
func TestPaths(t *testing.T) {
	for _, text := range []string{"1", "3", "2+1", "4+2", "2+1+1+2", "1+1+1+1+1+1+1+1+1+1"} {
		s, err := parseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		different := map[string]bool{}
		for seed := range uint64(50) {
			s.paths(stream("test", seed), func(chains [][]int) bool {
				var used []int
				var line strings.Builder
				for k, chain := range chains {
					if len(chain) != s[k] {
						t.Fatalf("%s: chains %v", text, chains)
					}
					for at, r := range chain {
						if slices.Contains(used, r) || at > 0 && relations[chain[at-1]].to != relations[r].from {
							t.Fatalf("%s: chains %v", text, chains)
						}
						used = append(used, r)
						line.WriteString(relations[r].name + " ")
					}
				}
				different[line.String()] = true
				return true
			})
		}
		if len(different) < 8 {
			t.Errorf("%s: only %d different choices in 50", text, len(different))
		}
	}
}

func TestShare(t *testing.T) {
	m := &mix{shapes: []shape{{1}, {2}, {3}}, weights: []float64{1, 1, 2}}
	for n, want := range map[int][]int{0: {0, 0, 0}, 1: {0, 0, 1}, 2: {1, 0, 1}, 4: {1, 1, 2}, 7: {2, 2, 3}} {
		if got := m.share(n); !slices.Equal(got, want) {
			t.Errorf("%d questions: %v, want %v", n, got, want)
		}
	}
}
