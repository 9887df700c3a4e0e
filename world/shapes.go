package world

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// shape is the hops of each objective of a question, as in "2+1".
type shape []int

// maxObjectives is the most that one question may have.
const maxObjectives = 10

func parseShape(text string) (shape, error) {
	var s shape
	for part := range strings.SplitSeq(text, "+") {
		hops, err := strconv.Atoi(part)
		if err != nil || hops < 1 || strconv.Itoa(hops) != part {
			return nil, fmt.Errorf(`shape %q is not the hops of each objective, such as "3" or "2+1"`, text)
		}
		s = append(s, hops)
	}
	if len(s) > maxObjectives {
		return nil, fmt.Errorf("shape %q has %d objectives, allowed are up to %d", text, len(s), maxObjectives)
	}
	if s.hops() > len(relations) || !s.paths(stream("shape"), func([][]int) bool { return true }) {
		return nil, fmt.Errorf("shape %q cannot be asked: there are no such chains of %d relations that hold each relation once", text, len(relations))
	}
	return s, nil
}

func (s shape) String() string {
	parts := make([]string, len(s))
	for k, hops := range s {
		parts[k] = strconv.Itoa(hops)
	}
	return strings.Join(parts, "+")
}

// hops is how many hops the question has in all: one search for each.
func (s shape) hops() int {
	sum := 0
	for _, hops := range s {
		sum += hops
	}
	return sum
}

// turns is what a question needs: its searches and the answer.
func (s shape) turns() int { return s.hops() + 1 }

// paths yields, in random order, the ways to choose a chain of relations for each objective, such
// that each relation starts from the kind that the one before it leads to and none occurs twice,
// until yield returns true. It returns whether yield did.
func (s shape) paths(random *rand.Rand, yield func(chains [][]int) bool) bool {
	var used [len(relations)]bool
	chains := make([][]int, len(s))
	var extend func(objective int) bool
	extend = func(objective int) bool {
		if objective == len(s) {
			return yield(chains)
		}
		chain := chains[objective]
		if len(chain) == s[objective] {
			return extend(objective + 1)
		}
		for _, r := range random.Perm(len(relations)) {
			if used[r] || len(chain) > 0 && relations[chain[len(chain)-1]].to != relations[r].from {
				continue
			}
			used[r], chains[objective] = true, append(chain[:len(chain):len(chain)], r)
			if extend(objective) {
				return true
			}
			used[r], chains[objective] = false, chain
		}
		return false
	}
	return extend(0)
}

// mix is how often each shape is asked for.
type mix struct {
	shapes  []shape
	weights []float64
}

// newMix reads shapes with their weights, of which those of weight 0 are left out. max_turns bounds
// what a question may need.
func newMix(weights map[string]float64, maxTurns int) (*mix, error) {
	m := &mix{}
	for _, text := range slices.Sorted(maps.Keys(weights)) {
		s, err := parseShape(text)
		if err != nil {
			return nil, fmt.Errorf("questions.mix: %w", err)
		}
		if weights[text] == 0 {
			continue
		}
		if s.turns() > maxTurns {
			return nil, fmt.Errorf("questions.mix: shape %q needs %d turns, questions.max_turns allows %d", text, s.turns(), maxTurns)
		}
		m.shapes = append(m.shapes, s)
		m.weights = append(m.weights, weights[text])
	}
	if len(m.shapes) == 0 {
		return nil, errors.New("questions.mix has no shape with a weight above 0")
	}
	return m, nil
}

// share cuts n questions into shapes: each has the whole part of its share, and the rest goes to
// the largest remainders.
func (m *mix) share(n int) []int {
	total := 0.0
	for _, weight := range m.weights {
		total += weight
	}
	counts := make([]int, len(m.shapes))
	remainders := make([]float64, len(m.shapes))
	order := make([]int, len(m.shapes))
	left := n
	for k, weight := range m.weights {
		exact := float64(n) * weight / total
		counts[k], order[k] = int(exact), k
		remainders[k] = exact - float64(counts[k])
		left -= counts[k]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case remainders[a] > remainders[b]:
			return -1
		case remainders[a] < remainders[b]:
			return 1
		}
		return 0
	})
	for _, k := range order[:left] {
		counts[k]++
	}
	return counts
}

// list is n shapes in random order, in their shares.
func (m *mix) list(n int, random *rand.Rand) []shape {
	var list []shape
	for k, count := range m.share(n) {
		list = append(list, slices.Repeat([]shape{m.shapes[k]}, count)...)
	}
	random.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	return list
}
