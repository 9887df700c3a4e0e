package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

func TestKnown(t *testing.T) {
	for name, want := range map[string]bool{
		"score/total": true, "loss/clip_fraction": true, "memory_bytes/peak": true, "train/optimizer_steps": true,
		RolloutStop("answered"): true, Time("rollout"): true, Tokens("generated"): true, Eval("em"): true, "eval/hotpotqa/em": true,
		"": false, "score": false, "score/": false, "score/totals": false, "Score/total": false, "xscore/total": false, "score/total\n": false,
		"rollout/stop/": false, "rollout/stop/a/b": false, "time/rollout": false, "time/_s": false, "eval/": false, "eval//em": false,
		`eval/"`: false, "tokens/<mem>": false, "reward": false,
	} {
		if Known(name) != want {
			t.Errorf("Known(%q) is %v", name, !want)
		}
	}
}

// The names that are given in public must never change.
func TestNamesAreThoseGivenInPublic(t *testing.T) {
	const public = `score/total, score/em, score/f1, score/format, score/std_zero_groups; reward/failed; memory/reward, memory/p_full, memory/p_mem,
memory/std, memory/tokens, memory/weight; advantage/outcome_std, advantage/memory_std; loss/nll loss/policy, loss/kl, loss/total, loss/clip_fraction,
loss/entropy, loss/grad_norm, loss/learning_rate, loss/rollout_difference; rollout/turns, rollout/response_tokens, rollout/tool_calls,
rollout/truncated, rollout/malformed, rollout/result_cut, rollout/memory_cut, rollout/put_aside, rollout/stop/*; tools/failed, tools/timeouts, tools/cache_hits, tools/latency_s;
train/groups_left_out, train/nonfinite_steps, train/optimizer_steps; time/*_s, tokens/*, memory_bytes/peak; eval/*`
	want := strings.FieldsFunc(public, func(r rune) bool { return strings.ContainsRune(",; \n", r) })
	if !slices.Equal(names, want) {
		t.Errorf("got  %v\nwant %v", names, want)
	}
}

func TestWriteKeepsTheOrderAndIsPlainJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	writer, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{
		"eval/em": 0.5, "tokens/z": 1e21, "tokens/a": 2, "time/update_s": 0.25, "score/em": math.NaN(), "score/total": 1.0 / 3,
		"loss/grad_norm": math.Inf(1), "loss/learning_rate": 1e-6, "rollout/stop/answered": 1, "memory/reward": -0.5,
	}
	for range 20 { // maps have no order: one line may be right by chance
		if err := writer.Write(writer.last+1, values); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	const want = `,"score/total":0.3333333333333333,"score/em":null,"memory/reward":-0.5,"loss/grad_norm":null,"loss/learning_rate":0.000001,` +
		`"rollout/stop/answered":1,"time/update_s":0.25,"tokens/a":2,"tokens/z":1e+21,"eval/em":0.5}`
	for k, line := range readLines(t, path) {
		start, rest, _ := strings.Cut(line, ",")
		if start != `{"step":`+itoa(k+1) || ","+rest != want {
			t.Fatalf("line %d is %s", k+1, line)
		}
	}
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func TestWriteRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	writer, err := Open(path, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Write(5, map[string]float64{"reward": 1}); err == nil || !strings.Contains(err.Error(), `"reward" is not the name of a metric`) {
		t.Errorf("an unknown name: %v", err)
	}
	if err := writer.Write(4, nil); err == nil || !strings.Contains(err.Error(), "step 4") {
		t.Errorf("a step twice: %v", err)
	}
	if err := writer.Write(5, nil); err != nil {
		t.Errorf("the step after: %v", err)
	}
	if lines := readLines(t, path); !slices.Equal(lines, []string{`{"step":5}`}) {
		t.Errorf("the file holds %q", lines)
	}
}

// stepsOf reads the x-axis of a file.
func stepsOf(t *testing.T, path string) []int64 {
	t.Helper()
	var steps []int64
	for _, line := range readLines(t, path) {
		var entry struct{ Step int64 }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		steps = append(steps, entry.Step)
	}
	return steps
}

func TestAResumedRunHasEveryStepOnce(t *testing.T) {
	tests := map[string]struct {
		written int64  // steps before the interruption
		tail    string // what a dying process left at the end
		resumed int64
	}{
		"stopped at a checkpoint":             {6, "", 6},
		"died after the checkpoint":           {9, "", 6},
		"died while writing a line":           {6, `{"step":7,"score/total":0.`, 6},
		"died while writing a line, later on": {8, `{"step":9,"score/total":1}`, 6},
		"zeros after a power cut":             {6, "\x00\x00\x00", 6},
		"died before any checkpoint":          {3, "", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "metrics.jsonl")
			writeSteps(t, path, 0, test.written)
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString(test.tail); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			writeSteps(t, path, test.resumed, 10)
			if got := stepsOf(t, path); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) {
				t.Errorf("steps %v", got)
			}
			var last struct {
				Optimizer float64 `json:"train/optimizer_steps"`
			}
			lines := readLines(t, path)
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Optimizer != 20 {
				t.Errorf("the count of optimiser steps ends at %v, %v", last.Optimizer, err)
			}
		})
	}
}

// writeSteps writes the steps after from, up to to.
func writeSteps(t *testing.T, path string, from, to int64) {
	t.Helper()
	writer, err := Open(path, from)
	if err != nil {
		t.Fatal(err)
	}
	for step := from + 1; step <= to; step++ {
		if err := writer.Write(step, map[string]float64{TrainOptimizerSteps: float64(2 * step)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesAFileOfSomethingElse(t *testing.T) {
	for name, text := range map[string]string{"text": "hello\n", "no step": "{\"step\":1}\n{\"x\":1}\n", "text for a step": "{\"step\":\"1\"}\n"} {
		path := filepath.Join(t.TempDir(), "metrics.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path, 5)
		if err == nil || fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), path+" line ") {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%s: the file was changed to %q, %v", name, after, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no", "metrics.jsonl"), 0); fault.Code(err) != fault.CodeEnvironment {
		t.Errorf("a missing folder: %v", err)
	}
}

func TestWriteOnAFullDisk(t *testing.T) {
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	writer := &Writer{file: file, events: &events{file}}
	if err := writer.Write(1, nil); !errors.Is(err, syscall.ENOSPC) || fault.Code(err) != fault.CodeEnvironment {
		t.Errorf("got %v with exit code %d", err, fault.Code(err))
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

func TestNumberInJSON(t *testing.T) {
	var line bytes.Buffer
	values := []Number{1.5, Number(math.NaN()), Number(math.Inf(-1)), 0}
	if err := json.NewEncoder(&line).Encode(values); err != nil || line.String() != "[1.5,null,null,0]\n" {
		t.Errorf("got %s, %v", line.String(), err)
	}
}
