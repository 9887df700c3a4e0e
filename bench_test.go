package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

var smallBench = []string{
	"bench.prompt_tokens=20", "bench.turns=3", "bench.turn_tokens=6", "bench.tool_tokens=9", "bench.memory_tokens=4",
	"bench.answer_tokens=2", "bench.repeats=2", "data.train=nowhere", "tools.search.corpus=nowhere",
}

func benchTiny(t *testing.T, stages []string, asJSON bool, sets ...string) (string, error) {
	t.Helper()
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	var out bytes.Buffer
	err := runBench(context.Background(), path, append(smallBench, sets...), stages, asJSON, &out)
	return out.String(), err
}

func TestBenchMeasuresEveryStage(t *testing.T) {
	text, err := benchTiny(t, benchStageNames, true)
	if err != nil {
		t.Fatal(err)
	}
	var report benchReport
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	// 2 questions × 4 trajectories of 20 + 3·6 + 2·9 = 56 tokens. Before turn 2 lie 35 tokens, before
	// turn 3 50; behind the prompt 4 of memory; each followed by 2 of the answer. All but the first
	// token of a turn come one by one.
	want := map[string]int{
		"rollout": 8 * 18, "rollout/prefill": 2*19 + 8 + 2*8*10, "rollout/decode": 8 * 15, "old_log_prob": 8 * 56,
		"memory_score/naive": 8 * (37 + 52 + 2*26), "ref_log_prob": 8 * 56, "update": 8 * 56,
	}
	for _, stage := range report.Stages {
		if stage.Tokens != want[stage.Stage] {
			t.Errorf("%s: %d tokens, want %d", stage.Stage, stage.Tokens, want[stage.Stage])
		}
		delete(want, stage.Stage)
		if len(stage.Seconds) != 2 || stage.MinSeconds <= 0 || stage.MedianSeconds < stage.MinSeconds || stage.PeakMemoryBytes < 1<<20 {
			t.Errorf("figures that cannot be: %+v", stage)
		}
	}
	if len(want) > 0 {
		t.Errorf("not measured: %v", want)
	}
	if report.Shape.GroupSize != 4 || report.Threads != 1 || report.DType != "float32" || report.Device != "cpu" {
		t.Errorf("measured on %+v", report)
	}
}

func TestBenchRunsTheStagesAskedFor(t *testing.T) {
	text, err := benchTiny(t, []string{"update", "memory_score"}, false)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, text, "2 questions × 4 trajectories of 56 tokens", "stage", "memory_score/naive", "1128", "update", "448")
	if strings.Contains(text, "rollout") || strings.Contains(text, "log_prob") {
		t.Errorf("more than was asked for:\n%s", text)
	}
}

func TestBenchRefuses(t *testing.T) {
	_, err := benchTiny(t, []string{"upgrade"}, false)
	finds(t, err, 2, `"upgrade"`, "old_log_prob")
	_, err = benchTiny(t, benchStageNames, false, "bench.turns=1000")
	finds(t, err, 2, "[bench]", "context")
	_, err = benchTiny(t, benchStageNames, false, "model.device=cuda:99")
	finds(t, err, 3, "cuda:99")
	if err := stageFault("update", model.ErrOutOfMemory); fault.Code(err) != 3 || !strings.Contains(err.Error(), "micro_batch_tokens") {
		t.Errorf("out of memory is %v", err)
	}
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, stage := range []string{"rollout", "old_log_prob", "update"} {
		if err := runBench(ended, path, smallBench, []string{stage}, false, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s went on after the end: %v", stage, err)
		}
	}
}

// The tokens that the benchmark samples are those of the model: scoring finds what sampling saw, in
// passes of any size.
func TestBenchRolloutIsTheModels(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	var sampled [][]int32
	for _, batchTokens := range []string{"4096", "7"} {
		c, err := config.Load(path, append(smallBench, "rollout.batch_tokens="+batchTokens))
		if err != nil {
			t.Fatal(err)
		}
		b, err := newBench(c, nil, metrics.NewLines(&bytes.Buffer{}))
		if err != nil {
			t.Fatal(err)
		}
		drawn := slices.Clone(b.trajectories[7].ResponseIDs)
		if _, err := b.rollout(context.Background(), b.shape.Turns, b.shape.TurnTokens); err != nil {
			t.Fatal(err)
		}
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		ids := b.trajectories[7].ResponseIDs
		sampled = append(sampled, ids)
		for k, own := range b.trajectories[7].ResponseMask {
			if !own && ids[k] != drawn[k] {
				t.Errorf("token %d of a tool result was sampled", k)
			}
		}
		if slices.Equal(ids, drawn) || slices.Equal(ids, b.trajectories[6].ResponseIDs) {
			t.Error("nothing was sampled, or the same for two trajectories")
		}
	}
	if !slices.Equal(sampled[0], sampled[1]) {
		t.Errorf("smaller passes sampled %v, not %v", sampled[1], sampled[0])
	}
}
