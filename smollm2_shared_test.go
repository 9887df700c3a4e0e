//go:build shared

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// smolRun is a config for a real 135M-parameter model on real questions: each turn starts with an
// empty memory and an open search, so that an untrained model gets to search.
func smolRun(t *testing.T) (path, runDir string) {
	t.Helper()
	shared, folder := os.Getenv("MEMPO_SHARED"), os.Getenv("MEMPO_SMOLLM2")
	if shared == "" || folder == "" {
		t.Fatal("MEMPO_SHARED and MEMPO_SMOLLM2 must name the shared folder and the model's")
	}
	dir := t.TempDir()
	runDir = filepath.Join(dir, "run")
	data := filepath.Join(shared, "data/hotpotqa_sample")
	path = write(t, filepath.Join(dir, "run.toml"),
		`[run]`, `dir = "`+runDir+`"`, `steps = 2`, `seed = 1`,
		`[model]`, `path = "`+folder+`"`, `device = "cpu"`,
		`[data]`, `train = "`+filepath.Join(data, "questions.jsonl")+`"`,
		`[rollout]`, `questions_per_step = 1`, `group_size = 2`, `max_turns = 2`, `max_turn_tokens = 24`,
		`prefill = "<mem> </mem><think> </think><search>"`, `on_no_action = "correct"`,
		`[tools.search]`, `corpus = "`+filepath.Join(data, "corpus.jsonl")+`"`, `topk = 1`,
		`[reward]`, `format_reward = "off"`,
		`[optimizer]`, `learning_rate = 1e-5`, `micro_batch_tokens = 1024`,
		`[checkpoint]`, `every = 1`, `keep = 1`)
	return path, runDir
}

func TestRealModelOnRealQuestionsResumesBitForBit(t *testing.T) {
	straightPath, straight := smolRun(t)
	train(t, straightPath)
	brokenPath, broken := smolRun(t)
	train(t, brokenPath, "run.steps=1")
	train(t, brokenPath)
	for _, name := range []string{"model.safetensors", "trainer_state/exp_avg.safetensors"} {
		a, errA := os.ReadFile(filepath.Join(straight, "checkpoints/step_000002", name))
		b, errB := os.ReadFile(filepath.Join(broken, "checkpoints/step_000002", name))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs after resuming", name)
		}
	}
	first, second := metricLines(t, straight)[0], metricLines(t, straight)[1]
	if first["loss/kl"].(float64) > 1e-9 || first["loss/clip_fraction"] != 0.0 || second["loss/clip_fraction"] != 0.0 {
		t.Errorf("kl %v at step 1, clip fractions %v and %v; want 0", first["loss/kl"], first["loss/clip_fraction"], second["loss/clip_fraction"])
	}
	if first["memory/p_full"] == nil || first["rollout/turns"] != 2.0 {
		t.Errorf("%v turns and memory probability %v; want two turns and a measured memory", first["rollout/turns"], first["memory/p_full"])
	}
}

func TestRealModelIsEvaluatedOnRealQuestions(t *testing.T) {
	path, runDir := smolRun(t)
	shared, folder := os.Getenv("MEMPO_SHARED"), os.Getenv("MEMPO_SMOLLM2")
	before := hashes(t, folder)
	table, results := evaluate(t, path, "", "run.dir="+runDir, "data.eval="+filepath.Join(shared, "data/hotpotqa_sample/questions.jsonl"), "eval.questions=3", `eval.context=["limited", "full"]`)
	holds(t, table, "3 questions in limited and full context, greedy", "limited  all", "full     all")
	for _, result := range results.Contexts {
		if f := result.Overall; f.N != 3 || f.Failed != 0 || f.Turns != 2 || f.ToolCalls != 1 || f.Truncated != 1 || f.PeakTokens < 100 {
			t.Errorf("%s: %+v", result.Context, f)
		}
	}
	if limited, full := results.Contexts[0].Overall, results.Contexts[1].Overall; limited.PeakTokens >= full.PeakTokens {
		t.Errorf("peak tokens %v in limited context, %v in full", limited.PeakTokens, full.PeakTokens)
	}
	if after := hashes(t, folder); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the model folder has changed")
	}
}
