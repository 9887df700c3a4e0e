package config

import "testing"

// What adapters add is doubled whatever their rank, unless a file says otherwise.
func TestAlphaFollowsTheRank(t *testing.T) {
	for set, want := range map[string]float64{"lora.rank=4": 8, "lora.rank=16": 32, "lora={rank = 4, alpha = 5}": 5, "lora.rank=0": 0} {
		if l := minimal(t, set).LoRA; l.Alpha != want || len(l.Targets) != len(projections) {
			t.Errorf("%s: %+v", set, l)
		}
	}
}
