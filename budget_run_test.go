package main

import (
	"math"
	"testing"
)

// Within a budget of the cache the engine writes the same trajectories and measures the same
// memories, though one is put aside in between.
func TestTrainingWithinABudgetOfTheCache(t *testing.T) {
	dir := taughtFolder(t, "qwen2-tiny")
	settings := []string{"run.steps=1", "rollout.on_no_action=correct", "rollout.max_turns=8", "rollout.max_response_tokens=400", "rollout.temperature=1.3"}
	freePath, free := tinyConfig(t, dir)
	train(t, freePath, settings...)
	boundPath, bound := tinyConfig(t, dir)
	train(t, boundPath, append(settings, "rollout.kv_cache_tokens=640")...)
	a, b := metricLines(t, free)[0], metricLines(t, bound)[0]
	if a["rollout/put_aside"] != 0.0 || b["rollout/put_aside"].(float64) < 1 || a["tokens/rollout"].(float64) >= b["tokens/rollout"].(float64) {
		t.Errorf("%v put aside and %v tokens without a bound, %v and %v with one", a["rollout/put_aside"], a["tokens/rollout"], b["rollout/put_aside"], b["tokens/rollout"])
	}
	if difference := b["loss/rollout_difference"].(float64); difference > 5e-5 {
		t.Errorf("sampler and trainer differ by %v", difference)
	}
	for _, name := range []string{"tokens/generated", "rollout/turns", "score/total", "memory/p_full", "memory/p_mem", "loss/entropy"} {
		if x, y := a[name].(float64), b[name].(float64); math.Abs(x-y) > 1e-5*math.Max(1, math.Abs(x)) {
			t.Errorf("%s is %v, within the budget %v", name, x, y)
		}
	}
}
