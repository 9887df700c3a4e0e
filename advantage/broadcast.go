package advantage

import "fmt"

// Span is a half-open range of token positions; an empty one stands for no memory.
type Span struct{ Start, End int }

// Broadcast lays one trajectory's advantages over its response tokens: outcome on every token of
// the mask, plus weight · memory[t] on those of them inside spans[t]; 0 elsewhere. mask, and the
// result, have one entry per response token; spans and memory one per turn.
func Broadcast(mask []bool, spans []Span, outcome float64, memory []float64, weight float64) ([]float32, error) {
	if len(spans) != len(memory) {
		return nil, fmt.Errorf("%d memory spans for %d memory advantages: want one of each per turn", len(spans), len(memory))
	}
	final := make([]float64, len(mask))
	for k := range final {
		final[k] = outcome
	}
	for t, span := range spans {
		if span.Start < 0 || span.End > len(mask) || span.Start > span.End {
			return nil, fmt.Errorf("memory of turn %d covers tokens %d to %d of %d", t+1, span.Start, span.End, len(mask))
		}
		for k := span.Start; k < span.End; k++ {
			final[k] += weight * memory[t]
		}
	}
	out := make([]float32, len(mask))
	for k, sampled := range mask {
		if sampled {
			out[k] = float32(final[k])
		}
	}
	return out, nil
}
