package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
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

// A prompt that may find no room in the cache is refused at the start, in training and in evaluations
// alike, and only where it is asked; the least bound that is named is enough.
func TestTheLongestPromptMustFitTheCache(t *testing.T) {
	modelDir := tinyFolder(t, "qwen2-tiny")
	short := `{"id":"a","question":"on a","golden_answers":["x"]}`
	long := `{"id":"lengthy","question":"` + strings.Repeat("xyz", 60) + `","golden_answers":["x"]}`
	shortFile := write(t, filepath.Join(t.TempDir(), "short.jsonl"), short)
	bothFile := write(t, filepath.Join(t.TempDir(), "both.jsonl"), short, long)
	training := func(path string, sets []string) error { return runTrain(t.Context(), path, sets, nil) }
	evaluating := func(path string, sets []string) error {
		return runEval(t.Context(), path, sets, "", io.Discard, nil)
	}
	for name, c := range map[string]struct {
		run    func(path string, sets []string) error
		config func(t *testing.T, modelDir string) (path, dir string)
		sets   []string
	}{
		"training":        {training, tinyConfig, []string{"data.train=" + bothFile}},
		"its evaluations": {training, tinyConfig, []string{"data.train=" + shortFile, "data.eval=" + bothFile, "eval.every=1"}},
		"an evaluation":   {evaluating, tinyEvaluation, []string{"data.eval=" + bothFile}},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := c.config(t, modelDir)
			bounded := func(tokens int, more ...string) []string {
				return slices.Concat(c.sets, []string{"run.steps=1", "rollout.max_response_tokens=100", fmt.Sprint("rollout.kv_cache_tokens=", tokens)}, more)
			}
			err := c.run(path, bounded(250))
			refused(t, err, fault.CodeUsage, "rollout.kv_cache_tokens is 250", `"lengthy"`)
			_, text, _ := strings.Cut(err.Error(), "at least ")
			var least int
			if _, err := fmt.Sscan(text, &least); err != nil {
				t.Fatal(err)
			}
			_, err = check(path, bounded(least-1)...)
			refused(t, err, fault.CodeUsage, fmt.Sprint("rollout.kv_cache_tokens is ", least-1), fmt.Sprint("at least ", least))
			if _, err := check(path, bounded(250, "data.train="+shortFile, "eval.questions=1")...); err != nil {
				t.Errorf("refused though nobody asks it: %v", err)
			}
			if err := c.run(path, bounded(least)); err != nil {
				t.Errorf("with room for %d tokens: %v", least, err)
			}
		})
	}
}
