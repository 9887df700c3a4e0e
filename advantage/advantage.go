// Package advantage turns the scores and memory rewards of one question's trajectories into
// advantages, and lays those out over tokens. It is plain float64 arithmetic on slices: standard
// deviations are unbiased (n − 1) and Epsilon is added to each before it divides.
package advantage

import (
	"fmt"
	"math"
)

// Epsilon is added to a standard deviation before dividing by it.
const Epsilon = 1e-6

// largest is the magnitude up to which an input counts as finite: beyond it, squares and their
// sums could overflow.
const largest = 1e100

// Options are the keys of the config's [advantage] table. The zero value is not valid: start from
// Default.
type Options struct {
	MemoryWeight    float64 // weight of the memory advantage in the sum; its own value is not touched
	Normalize       string  // "std": divide by the deviation; "none": subtract the mean only
	Single          string  // a question with one valid trajectory: "zero", or "score" (mean 0, deviation 1)
	MinGroup        int     // fewer valid trajectories than this: the question is left out
	OutcomeMinStd   float64 // floor under the deviation of the scores
	MemoryMinStd    float64 // floor under the deviation of a memory pool
	MemoryGate      string  // "none", or "any_success": memory counts only where some score is above 0
	MemoryPool      string  // "question": all memory rewards together; "turn": one pool per turn number
	DropEqualGroups bool    // leave out a question whose advantages are all zero
}

// Default returns the options of plain MemPO.
func Default() Options {
	return Options{MemoryWeight: 1, Normalize: "std", Single: "zero", MinGroup: 2, MemoryGate: "none", MemoryPool: "question"}
}

// Validate reports the first option that is not allowed, by its config key.
func (o Options) Validate() error {
	for _, choice := range []struct{ key, value, first, second string }{
		{"normalize", o.Normalize, "std", "none"},
		{"single", o.Single, "zero", "score"},
		{"memory.gate", o.MemoryGate, "none", "any_success"},
		{"memory.pool", o.MemoryPool, "question", "turn"},
	} {
		if choice.value != choice.first && choice.value != choice.second {
			return fmt.Errorf("%s is %q, allowed: %q or %q", choice.key, choice.value, choice.first, choice.second)
		}
	}
	if o.MinGroup < 1 {
		return fmt.Errorf("min_group is %d, allowed: 1 or more", o.MinGroup)
	}
	for _, number := range []struct {
		key   string
		value float64
	}{
		{"memory_weight", o.MemoryWeight},
		{"outcome.min_std", o.OutcomeMinStd},
		{"memory.min_std", o.MemoryMinStd},
	} {
		if !finite(number.value) || number.value < 0 {
			return fmt.Errorf("%s is %v, allowed: 0 or more", number.key, number.value)
		}
	}
	return nil
}

// Advantages of one question's trajectories.
type Advantages struct {
	Outcome []float64   // one per trajectory; 0 for a failed one
	Memory  [][]float64 // one per turn, before the weight; 0 where there is no memory reward

	OutcomeStd  float64 // raw deviation of the valid scores; 0 with fewer than two
	MemoryStd   float64 // raw deviation of the memory pool (of several: mean, weighted by size); 0 without a pool of two
	MemoryCount int     // memory rewards in pools of two or more
	Valid       int     // trajectories that did not fail and have a finite score
	Equal       bool    // two or more valid scores, all the same
	LeftOut     bool    // the question takes no part in the update: fewer than MinGroup valid, or dropped as all zero
}

// Compute gives the advantages of the N trajectories of one question. memory[i] holds trajectory
// i's memory reward for each of its turns, NaN for none; memory may be nil. failed marks
// trajectories that enter no statistic; it may be nil. Inputs that are not finite are left out and
// get 0, as does everything in a question that is left out.
func Compute(scores []float64, memory [][]float64, failed []bool, options Options) (Advantages, error) {
	if err := options.Validate(); err != nil {
		return Advantages{}, err
	}
	if memory == nil {
		memory = make([][]float64, len(scores))
	}
	if failed == nil {
		failed = make([]bool, len(scores))
	}
	if len(memory) != len(scores) || len(failed) != len(scores) {
		return Advantages{}, fmt.Errorf("%d scores, %d lists of memory rewards, %d failed marks: want one of each per trajectory", len(scores), len(memory), len(failed))
	}

	valid := make([]float64, len(scores))
	for i, score := range scores {
		valid[i] = score
		if failed[i] {
			valid[i] = math.NaN()
		}
	}
	a := Advantages{Memory: make([][]float64, len(memory))}
	pool := summarize(valid)
	a.Valid, a.OutcomeStd, a.Equal = pool.count, pool.std, pool.equal && pool.count > 1
	a.Outcome = outcome(valid, pool, options)
	a.memory(memory, failed, options, pool.largest > 0)
	a.LeftOut = a.Valid < options.MinGroup
	if a.LeftOut {
		a.clear()
	}
	a.LeftOut = a.LeftOut || options.DropEqualGroups && a.allZero(options.MemoryWeight)
	return a, nil
}

// outcome standardises the scores; a question with a single valid one is a case of its own.
func outcome(valid []float64, pool summary, options Options) []float64 {
	if pool.count == 1 && options.Single == "score" {
		pool = summary{count: 1, mean: 0, std: 1}
	}
	return pool.standardize(valid, options.Normalize, options.OutcomeMinStd)
}

// memory standardises the memory rewards within their pools.
func (a *Advantages) memory(rewards [][]float64, failed []bool, options Options, anySuccess bool) {
	for i := range rewards {
		a.Memory[i] = make([]float64, len(rewards[i]))
	}
	if options.MemoryGate == "any_success" && !anySuccess {
		return
	}
	for _, pool := range gather(rewards, a.Memory, failed, options.MemoryPool == "turn") {
		s := summarize(pool.values)
		if s.count > 1 {
			a.MemoryCount += s.count
			a.MemoryStd += s.std * float64(s.count)
		}
		for k, value := range s.standardize(pool.values, options.Normalize, options.MemoryMinStd) {
			*pool.slots[k] = value
		}
	}
	if a.MemoryCount > 0 {
		a.MemoryStd /= float64(a.MemoryCount)
	}
}

func (a *Advantages) clear() {
	clear(a.Outcome)
	for _, row := range a.Memory {
		clear(row)
	}
}

// allZero reports whether nothing would reach a token.
func (a *Advantages) allZero(memoryWeight float64) bool {
	for i := range a.Outcome {
		if a.Outcome[i] != 0 {
			return false
		}
		for _, value := range a.Memory[i] {
			if value*memoryWeight != 0 {
				return false
			}
		}
	}
	return true
}
