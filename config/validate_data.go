package config

import (
	"fmt"
	"slices"
)

func (d Data) check(r *rules) {
	r.oneOf("data.over_length", d.OverLength, "drop", "error")
	atLeast(r, "data.max_prompt_tokens", d.MaxPromptTokens, 0)
	d.Compose.check(r)
	if len(d.Train) > 0 && len(d.Mix) > 0 {
		r.violated("data.train", "set beside data.mix", "one of the two")
	}
	if len(d.Eval) > 0 && len(d.EvalMix) > 0 {
		r.violated("data.eval", "set beside data.eval_mix", "one of the two")
	}
	for k, source := range d.Mix {
		source.check(r, fmt.Sprintf("of entry %d of data.mix", k+1))
	}
	for k, source := range d.EvalMix {
		of := fmt.Sprintf("of entry %d of data.eval_mix", k+1)
		source.check(r, of)
		if source.Weight != 1 {
			r.violated("weight "+of, source.Weight, "1: an evaluation asks each question once")
		}
	}
}

// leastWeight keeps the shares of a mix apart from rounding.
const leastWeight = 1e-6

func (s Source) check(r *rules, of string) {
	r.files("files "+of, s.Files, "one or more question files")
	if inside := s.Weight >= leastWeight && s.Weight <= 1/leastWeight; !inside {
		r.violated("weight "+of, s.Weight, fmt.Sprintf("%v to %v", leastWeight, 1/leastWeight))
	}
	atLeast(r, "sample "+of, s.Sample, 0)
	atLeast(r, "seed "+of, s.Seed, 0)
	atLeast(r, "max_question_chars "+of, s.MaxQuestionChars, 0)
}

// check holds the numbers of objectives in their range.
func (c Compose) check(r *rules) {
	atLeast(r, "data.compose.seed", c.Seed, 0)
	for _, n := range c.Train {
		between(r, "data.compose.train", n, 1, 10)
	}
	for k, n := range c.Eval {
		between(r, "data.compose.eval", n, 1, 10)
		if slices.Contains(c.Eval[:k], n) {
			r.violated("data.compose.eval", fmt.Sprintf("%d twice", n), "each number once")
		}
	}
}
