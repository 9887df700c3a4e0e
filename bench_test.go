package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/bench"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
)

var smallBench = []string{
	"bench.prompt_tokens=20", "bench.turns=3", "bench.turn_tokens=6", "bench.tool_tokens=9", "bench.memory_tokens=4",
	"bench.answer_tokens=2", "bench.repeats=2", "data.train=nowhere", "tools.search.corpus=nowhere",
}

// benchTiny times stages of a small step of a tiny model.
func benchTiny(t *testing.T, r benchRequest, sets ...string) (string, error) {
	t.Helper()
	r.config, _ = tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	r.sets = append(smallBench, sets...)
	var out bytes.Buffer
	err := r.run(context.Background(), &out)
	return out.String(), err
}

// Package bench tests with a fake what each stage computes; here every stage runs on the engine, and the
// script is followed: other lengths would be other numbers of tokens.
func TestBenchMeasuresEveryStage(t *testing.T) {
	text, err := benchTiny(t, benchRequest{stages: bench.StageNames(), json: true})
	if err != nil {
		t.Fatal(err)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"rollout": 326, "rollout/prefill": 198, "rollout/decode": 128, "memory_score/naive": 1128, "memory_score/shared": 394,
		"memory_score/cached": 144, "old_log_prob/naive": 448, "old_log_prob/shared": 334, "scores/naive": 1576, "scores/shared": 462,
		"ref_log_prob/naive": 448, "ref_log_prob/shared": 334, "update": 334,
	}
	stages := map[string]bool{}
	for _, stage := range report.Stages {
		stages[stage.Stage] = true
		if tokens, known := want[stage.Stage]; known && stage.Tokens != tokens {
			t.Errorf("%s: %d tokens, want %d", stage.Stage, stage.Tokens, tokens)
		}
		if len(stage.Seconds) != 2 || stage.MinSeconds < 0 || stage.MedianSeconds < stage.MinSeconds || stage.PeakMemoryBytes < 1<<20 {
			t.Errorf("figures that cannot be: %+v", stage)
		}
	}
	for _, stage := range append(bench.StageNames(), "step/rollout", "step/memory_score", "step/update") {
		if !stages[stage] {
			t.Errorf("%s was not measured", stage)
		}
	}
	if report.Shape.GroupSize != 4 || report.Threads != 1 || report.DType != "float32" || report.Device != "cpu" || report.Schedule != "fixed" {
		t.Errorf("measured on %+v", report)
	}
	if report.MatrixRate < 1e8 || report.MemoryShare <= 0 || report.MemoryShare >= 1 {
		t.Errorf("%g operations a second, %g of a step for memories", report.MatrixRate, report.MemoryShare)
	}
}

func TestBenchRunsTheStagesAskedFor(t *testing.T) {
	other := write(t, filepath.Join(t.TempDir(), "other.json"), `{"stages":[{"stage":"update","median_seconds":1000,"peak_memory_bytes":2097152}]}`)
	text, err := benchTiny(t, benchRequest{stages: []string{"update", "memory_score/naive"}, compare: other})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, text, "2 questions × 4 trajectories of 56 tokens", "of matrix", "other/ours", "memory_score/naive", "1128", "update", "334", "448", "1000.000")
	if strings.Contains(text, "rollout") || strings.Contains(text, "log_prob") || strings.Contains(text, "shared") {
		t.Errorf("more than was asked for:\n%s", text)
	}
}

// With random weights the folder holds nothing but the shape.
func TestBenchOfRandomWeights(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, _ := tinyConfig(t, dir)
	if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	r := benchRequest{config: path, stages: []string{"rollout", "step"}, json: true}
	var out bytes.Buffer
	r.sets = append(smallBench, "loss.kl_coef=0.1")
	finds(t, r.run(context.Background(), &out), 2, "model.safetensors")
	r.sets = append(r.sets, "bench.random_weights=true")
	if err := r.run(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	var report bench.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	for _, stage := range report.Stages {
		if stage.Stage == "rollout/decode" && (stage.Bandwidth < 1e3 || stage.Bandwidth > 1e12) {
			t.Errorf("decoding reads %g bytes a second", stage.Bandwidth)
		}
	}
}

func TestBenchRefusesEmptyFlags(t *testing.T) {
	for _, args := range [][]string{{"--compare", ""}, {"--compare="}, {"--stages", ""}, {"--stages="}} {
		stdout, stderr, code := runProgram("", append([]string{"bench", "run.toml"}, args...)...)
		if flag := args[0][:8]; code != 2 || stdout != "" || !strings.Contains(stderr, flag) || !strings.Contains(stderr, "is empty") {
			t.Errorf("%q: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

func TestBenchRefuses(t *testing.T) {
	all := benchRequest{stages: bench.StageNames()}
	_, err := benchTiny(t, benchRequest{stages: []string{"upgrade"}})
	finds(t, err, 2, `"upgrade"`, "old_log_prob")
	_, err = benchTiny(t, all, "bench.turns=1000")
	finds(t, err, 2, ".toml: ", "bench.turns", "context")
	_, err = benchTiny(t, all, "rollout.questions_per_step=100000", "rollout.group_size=100000", "optimizer.questions_per_minibatch=1")
	finds(t, err, 2, ".toml: ", "rollout.questions_per_step", "rollout.group_size", "10000000000", "1048576")
	_, err = benchTiny(t, all, "bench.memory_tokens=6")
	finds(t, err, 2, "bench.memory_tokens", "5")
	_, err = benchTiny(t, all, "model.path=nowhere", "model.get=hf download it")
	finds(t, err, 2, "nowhere", "to get it: hf download it")
	_, err = benchTiny(t, all, "model.device=cuda:99")
	finds(t, err, 3, "cuda:99")
	_, err = benchTiny(t, benchRequest{stages: bench.StageNames(), compare: "nowhere.json"})
	finds(t, err, 2, "nowhere.json")
	strange := write(t, filepath.Join(t.TempDir(), "other.json"), `{"stages":[{"stage":"gen","median_seconds":1}]}`)
	_, err = benchTiny(t, benchRequest{stages: bench.StageNames(), compare: strange})
	finds(t, err, 2, "gen", "rollout")
	if err := stageFault(&bench.Error{Stage: "update", Err: model.ErrOutOfMemory}); fault.Code(err) != 3 || !strings.Contains(err.Error(), "micro_batch_tokens") {
		t.Errorf("out of memory is %v", err)
	}
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	r := benchRequest{config: path, sets: smallBench, stages: []string{"old_log_prob/naive"}}
	if err := r.run(ended, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("went on after the end: %v", err)
	}
}
