package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheRewardOfTheDocumentation trains and evaluates with the reward of docs/extending.md.
func TestTheRewardOfTheDocumentation(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	sets := []string{
		`reward.command=["python3", "configs/extending/reward.py"]`, "run.steps=1", "rollout.temperature=0.3", "reward.format_reward=off",
		"data.eval=" + filepath.Join(filepath.Dir(path), "questions.jsonl"), "eval.every=1",
	}
	out, err := check(path, sets...)
	if err != nil {
		t.Errorf("check: %v", err)
	}
	holds(t, out, "reward command: scores the right answer to an example question 1")
	train(t, path, sets...)
	line, err := os.ReadFile(filepath.Join(runDir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := json.Unmarshal(line, &values); err != nil {
		t.Fatal(err)
	}
	if values["reward/failed"] != 0.0 || values["eval/score"] == nil {
		t.Errorf("reward/failed %v, eval/score %v", values["reward/failed"], values["eval/score"])
	}
	for _, r := range records(t, runDir, 1) {
		em, f1 := float64(r.Rewards["em"]), float64(r.Rewards["f1"])
		want := em
		if r.Answer != nil && em == 0 {
			want = 0.3 * f1
		}
		if r.Score == nil || float64(*r.Score) != want {
			t.Errorf("answer %v: score %v, want %v", r.Answer, r.Score, want)
		}
	}
}

func TestABrokenRewardCommand(t *testing.T) {
	path, _ := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	_, err := check(path, `reward.command=["sh", "-c", "exit 1"]`)
	finds(t, err, 2, `reward command "sh -c exit 1"`, "before it answered")
	err = runTrain(t.Context(), path, searching("", `tools.search.backend=bm25`, `reward.command=["sh", "-c", "while read -r l; do echo x; done"]`, "reward.format_reward=off"), nil)
	finds(t, err, 3, `want {"score": a number}`)
	if _, err := check(path, `reward.command=[""]`); err == nil || !strings.Contains(err.Error(), "reward.command") {
		t.Errorf("an empty program: %v", err)
	}
}
