package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
)

// taughtFolder is a tiny model that has learned to search and to answer; its folder is the same for
// all tests.
func taughtFolder(t *testing.T, name string) string {
	t.Helper()
	out := filepath.Join(common, name)
	if saved, err := checkpoint.Latest(out); err == nil && saved != "" {
		return saved
	}
	dir := tinyFolder(t, name)
	path, _ := tinyConfig(t, dir)
	c, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := loadTexts(c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := device.Load(dir, engine.Options{Trainable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var all []demonstration
	for _, letter := range []string{"a", "b", "c"} {
		prompt, err := text.rules.Format.Prompt("on " + letter)
		if err != nil {
			t.Fatal(err)
		}
		for _, answer := range []string{"x", "y"} {
			d := demonstration{ids: prompt}
			d.model(text, "<mem>"+letter+"</mem><think>t</think><search>"+letter+"</search>")
			d.ids = append(d.ids, text.rules.Format.Observation([]tokenizer.Segment{{Text: "<information>\n", Trusted: true}, {Text: "r"}, {Text: "\n</information>", Trusted: true}}, false)...)
			d.model(text, "<mem>"+answer+"</mem><think>t</think><answer>"+answer+"</answer>")
			all = append(all, d)
		}
	}
	teach(t, m, all, 150, 5e-3)
	source, err := checkpoint.ReadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := checkpoint.Save(out, source, m, checkpoint.Record{Step: 1, Sampler: json.RawMessage("{}")})
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func (d *demonstration) model(text *texts, written string) {
	for _, id := range text.tokenizer.EncodeTrusted(written) {
		d.positions = append(d.positions, int32(len(d.ids)))
		d.ids = append(d.ids, id)
	}
}

func train(t *testing.T, path string, sets ...string) {
	t.Helper()
	if err := runTrain(context.Background(), path, sets, nil); err != nil {
		t.Fatal(err)
	}
}

// metricLines reads metrics.jsonl; times and memory, which differ from run to run, are left out.
func metricLines(t *testing.T, runDir string) []map[string]any {
	t.Helper()
	file, err := os.Open(filepath.Join(runDir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var lines []map[string]any
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		line := map[string]any{}
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for name := range line {
			if filepath.Dir(name) == "time" || name == "memory_bytes/peak" || name == "tools/latency_s" {
				delete(line, name)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func TestRunTrainsAndLeavesItsFiles(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	train(t, path)
	lines := metricLines(t, runDir)
	if len(lines) != 3 {
		t.Fatalf("%d lines of metrics, want 3", len(lines))
	}
	for k, line := range lines {
		if line["step"] != float64(k+1) {
			t.Errorf("line %d is of step %v", k+1, line["step"])
		}
		if line["loss/clip_fraction"] != 0.0 {
			t.Errorf("step %d: clip fraction %v at the first update", k+1, line["loss/clip_fraction"])
		}
	}
	if kl := lines[0]["loss/kl"].(float64); kl > 1e-9 {
		t.Errorf("KL to the reference is %v at step 1", kl)
	}
	if kl := lines[2]["loss/kl"].(float64); kl <= 0 {
		t.Errorf("KL to the reference is %v at step 3", kl)
	}
	if calls := lines[0]["rollout/tool_calls"].(float64); calls == 0 {
		t.Error("no search was made")
	}
	if lines[0]["memory/p_mem"] == nil {
		t.Error("no memory was measured")
	}
	for _, name := range []string{"config.toml", "log.jsonl", "trajectories/step_000003.jsonl", "checkpoints/step_000003/complete", "checkpoints/step_000003/model.safetensors"} {
		if _, err := os.Stat(filepath.Join(runDir, name)); err != nil {
			t.Error(err)
		}
	}
}

// Stopping and going on, twice, is bit for bit the same as never stopping.
func TestResumeIsBitIdentical(t *testing.T) {
	dir := taughtFolder(t, "llama-tiny")
	straightPath, straight := tinyConfig(t, dir)
	train(t, straightPath, "run.steps=4")
	brokenPath, broken := tinyConfig(t, dir)
	for _, steps := range []string{"1", "3", "4"} {
		train(t, brokenPath, "run.steps="+steps)
	}
	sameRun(t, straight, broken, "step_000004")
}

// sameRun holds the last checkpoint and the metrics of two runs together.
func sameRun(t *testing.T, straight, broken, step string) {
	t.Helper()
	for _, name := range []string{"model.safetensors", "trainer_state/master.safetensors", "trainer_state/exp_avg.safetensors", "trainer_state/exp_avg_sq.safetensors"} {
		a, errA := os.ReadFile(filepath.Join(straight, "checkpoints", step, name))
		b, errB := os.ReadFile(filepath.Join(broken, "checkpoints", step, name))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", name)
		}
	}
	a, b := metricLines(t, straight), metricLines(t, broken)
	for k := range a {
		for name, value := range a[k] {
			if b[k][name] != value {
				t.Errorf("step %d: %s is %v, and %v after resuming", k+1, name, value, b[k][name])
			}
		}
	}
}
