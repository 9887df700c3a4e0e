package advantage

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/mempo-train/mempo-train/internal/jsonl"
)

// question is one line as the advantage command reads it. The keys of [advantage] are as in the
// config, the nested ones dotted or as an object.
type question struct {
	Scores  []*float64   `json:"scores"`
	Memory  [][]*float64 `json:"memory_rewards"`
	Failed  []bool       `json:"failed"`
	Weight  *float64     `json:"memory_weight"`
	Divide  *string      `json:"normalize"`
	Single  *string      `json:"single"`
	Minimum *int         `json:"min_group"`
	Drop    *bool        `json:"drop_equal_groups"`
	Outcome struct {
		MinStd *float64 `json:"min_std"`
	} `json:"outcome"`
	Pool struct {
		MinStd *float64 `json:"min_std"`
		Gate   *string  `json:"gate"`
		Pool   *string  `json:"pool"`
	} `json:"memory"`
	OutcomeMinStd *float64 `json:"outcome.min_std"`
	MemoryMinStd  *float64 `json:"memory.min_std"`
	MemoryGate    *string  `json:"memory.gate"`
	MemoryPool    *string  `json:"memory.pool"`
}

// result is what the command writes for one line.
type result struct {
	Outcome []float64   `json:"outcome"`
	Memory  [][]float64 `json:"memory"`
}

// Stream reads one question a line, {"scores":[…],"memory_rewards":[[…],…],"failed":[…]} with any
// key of [advantage], and writes {"outcome":[…],"memory":[[…],…]} for each. null stands for a
// value that is not finite and for a turn without a memory reward, whose advantage is 0; failed
// and memory_rewards may be absent. The memory advantages are those before memory_weight. Where a
// line does not set min_group it is 2, but 1 for a question of one trajectory, so that single
// applies. Errors name the line.
func Stream(r io.Reader, w io.Writer) error {
	return jsonl.Transform(r, w, func(line []byte) (any, error) {
		var q question
		if err := jsonl.Decode(line, &q); err != nil {
			return nil, err
		}
		if q.Scores == nil {
			return nil, errors.New(`no "scores", want one number or null per trajectory`)
		}
		options, err := q.options()
		if err != nil {
			return nil, err
		}
		var memory [][]float64
		if q.Memory != nil {
			memory = make([][]float64, len(q.Memory))
			for i := range memory {
				memory[i] = numbers(q.Memory[i])
			}
		}
		a, err := Compute(numbers(q.Scores), memory, q.Failed, options)
		if err != nil {
			return nil, err
		}
		return result{a.Outcome, a.Memory}, nil
	})
}

// options are the defaults with what the line sets.
func (q *question) options() (Options, error) {
	o := Default()
	o.MinGroup = min(o.MinGroup, max(1, len(q.Scores)))
	return o, errors.Join(
		set(&o.MemoryWeight, "memory_weight", q.Weight),
		set(&o.Normalize, "normalize", q.Divide),
		set(&o.Single, "single", q.Single),
		set(&o.MinGroup, "min_group", q.Minimum),
		set(&o.DropEqualGroups, "drop_equal_groups", q.Drop),
		set(&o.OutcomeMinStd, "outcome.min_std", q.Outcome.MinStd, q.OutcomeMinStd),
		set(&o.MemoryMinStd, "memory.min_std", q.Pool.MinStd, q.MemoryMinStd),
		set(&o.MemoryGate, "memory.gate", q.Pool.Gate, q.MemoryGate),
		set(&o.MemoryPool, "memory.pool", q.Pool.Pool, q.MemoryPool),
	)
}

// set stores the one value that is given, if any.
func set[T any](target *T, key string, given ...*T) error {
	count := 0
	for _, value := range given {
		if value != nil {
			*target = *value
			count++
		}
	}
	if count > 1 {
		return fmt.Errorf("%s is given twice", key)
	}
	return nil
}

// numbers turns null into NaN.
func numbers(values []*float64) []float64 {
	out := make([]float64, len(values))
	for i, value := range values {
		out[i] = math.NaN()
		if value != nil {
			out[i] = *value
		}
	}
	return out
}
