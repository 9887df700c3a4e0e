package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// What the check of a GPU trains: the example is made without a download, passes its check, and its model
// learns to keep the format.
func TestExampleLearnsToKeepTheFormat(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "./tools/example", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	runDir := filepath.Join(dir, "run")
	sets := []string{
		"run.dir=" + runDir, "run.steps=10", "model.path=" + filepath.Join(dir, "model"),
		"data.train=" + filepath.Join(dir, "questions.jsonl"), "tools.search.corpus=" + filepath.Join(dir, "corpus.jsonl"),
	}
	const path = "tools/example/run.toml"
	if text, err := check(path, sets...); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	train(t, path, sets...)
	lines := metricLines(t, runDir)
	format := func(k int) float64 { return lines[k]["score/format"].(float64) }
	if last := (format(7) + format(8) + format(9)) / 3; last < format(0)+0.2 {
		t.Errorf("format held in %.2f of the first trajectories, and in %.2f of the last", format(0), last)
	}
	if calls := lines[0]["rollout/tool_calls"].(float64); calls == 0 {
		t.Error("the model searched for nothing")
	}
}
