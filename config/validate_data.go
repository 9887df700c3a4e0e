package config

import "fmt"

// sources checks that questions are named in one of the two ways.
func (r *rules) sources(listKey string, list List, mixKey string, mix []Source) {
	switch {
	case len(mix) == 0:
		r.files(listKey, list, "one or more question files, or "+mixKey)
	case len(list) > 0:
		r.violated(listKey, "set beside "+mixKey, "one of the two")
	}
}

func (d Data) check(r *rules) {
	r.oneOf("data.over_length", d.OverLength, "drop", "error")
	atLeast(r, "data.max_prompt_tokens", d.MaxPromptTokens, 0)
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
