package config

import (
	"fmt"
	"slices"
)

// LoRA are adapters, small matrices beside the model's projections, which are trained in place of the model's own weights.
type LoRA struct {
	Rank    int     `toml:"rank"`    // of the adapters; 0: there are none, and every weight is trained. 0 (own)
	Alpha   float64 `toml:"alpha"`   // what adapters add is multiplied by alpha / rank; 0 is twice the rank. 0 (own)
	Targets List    `toml:"targets"` // projections that have adapters. all seven (own)
}

// projections can have adapters.
var projections = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

func defaultLoRA() LoRA { return LoRA{Targets: slices.Clone(projections)} }

func (l *LoRA) resolve() {
	if l.Alpha == 0 {
		l.Alpha = 2 * float64(l.Rank)
	}
}

// mostRank is beyond what any projection of a known model has rows or columns.
const mostRank = 65536

func (l LoRA) check(r *rules) {
	between(r, "lora.rank", l.Rank, 0, mostRank)
	if l.Rank > 0 {
		above(r, "lora.alpha", l.Alpha, 0)
	}
	for k, target := range l.Targets {
		r.oneOf("lora.targets", target, projections...)
		if slices.Contains(l.Targets[:k], target) {
			r.violated("lora.targets", fmt.Sprintf("%q twice", target), "each projection once")
		}
	}
	if l.Rank > 0 && len(l.Targets) == 0 {
		r.violated("lora.targets", "empty", "one or more of "+alternatives(projections))
	}
}
