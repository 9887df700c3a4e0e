package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/rollout"
)

// trajectoriesOf reads the trajectories of the first step of a run.
func trajectoriesOf(t *testing.T, runDir string) []rollout.Record {
	t.Helper()
	file, err := os.Open(filepath.Join(runDir, "trajectories", "step_000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var records []rollout.Record
	lines := bufio.NewScanner(file)
	for lines.Buffer(nil, 1<<24); lines.Scan(); {
		var record rollout.Record
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	return records
}

// The forms of scoring give one step on the engine: every probability of an answer, every memory
// reward and what follows from them.
func TestTheFormsOfScoringAgreeOnTheEngine(t *testing.T) {
	model := taughtFolder(t, "qwen2-tiny")
	for _, context := range []string{"full", "limited"} {
		var naive []rollout.Record
		var figures map[string]any
		for _, form := range []string{"naive", "shared", "cached"} {
			path, runDir := tinyConfig(t, model)
			train(t, path, "run.steps=1", "rollout.context="+context, "rollout.max_turns=6", "scoring.form="+form)
			records, line := trajectoriesOf(t, runDir), metricLines(t, runDir)[0]
			if form == "naive" {
				naive, figures = records, line
				continue
			}
			if measured := compareMemories(t, form, records, naive); measured < 8 {
				t.Errorf("%s, %s context: %d memories were measured, which tests little", form, context, measured)
			}
			for name, want := range figures {
				got, isNumber := line[name].(float64)
				number, wanted := want.(float64)
				if strings.HasPrefix(name, "tokens/") {
					continue
				}
				if isNumber != wanted || math.Abs(got-number) > 1e-5*max(1, math.Abs(number)) {
					t.Errorf("%s, %s context: %s is %v, in the naive form %v", form, context, name, line[name], want)
				}
			}
			if line["tokens/old_log_prob"].(float64) >= figures["tokens/old_log_prob"].(float64) ||
				line["tokens/memory_score"].(float64) >= figures["tokens/memory_score"].(float64)/2 {
				t.Errorf("%s, %s context: %v and %v tokens were computed, in the naive form %v and %v", form, context, line["tokens/old_log_prob"],
					line["tokens/memory_score"], figures["tokens/old_log_prob"], figures["tokens/memory_score"])
			}
		}
	}
}

// compareMemories holds the measures of two runs of the same trajectories together, and counts them.
func compareMemories(t *testing.T, form string, got, want []rollout.Record) (measured int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d trajectories, %d in the naive form", form, len(got), len(want))
	}
	for k := range got {
		for n, turn := range got[k].Turns {
			naive := want[k].Turns[n]
			if (turn.MemoryReward == nil) != (naive.MemoryReward == nil) || turn.Text != naive.Text {
				t.Fatalf("%s: trajectory %d differs in turn %d", form, k, n+1)
			}
			if turn.MemoryReward == nil {
				continue
			}
			measured++
			for _, pair := range [][2]*rollout.Number{{turn.PFull, naive.PFull}, {turn.PMem, naive.PMem}, {turn.MemoryReward, naive.MemoryReward}} {
				if difference := math.Abs(float64(*pair[0] - *pair[1])); difference > 1e-5 {
					t.Errorf("%s: trajectory %d, turn %d: %v, in the naive form %v", form, k, n+1, *pair[0], *pair[1])
				}
			}
		}
	}
	return measured
}
