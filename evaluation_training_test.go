package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// An evaluation during training gives the figures of one of its own on the step's checkpoint, and
// changes nothing about the training; a run that goes on has the same ones.
func TestEvaluationDuringTraining(t *testing.T) {
	modelDir := taughtFolder(t, "llama-tiny")
	asked := evaluationQuestions(t)
	plainPath, plainDir := tinyConfig(t, modelDir)
	train(t, plainPath)
	path, runDir := tinyConfig(t, modelDir)
	sets := []string{"data.eval=" + asked, "eval.every=2", `eval.context=["full", "limited"]`, "checkpoint.keep_best=eval/em"}
	train(t, path, sets...)
	brokenPath, brokenDir := tinyConfig(t, modelDir)
	train(t, brokenPath, append(sets, "run.steps=2")...)
	train(t, brokenPath, sets...)

	plain, lines, broken := metricLines(t, plainDir), metricLines(t, runDir), metricLines(t, brokenDir)
	for k, line := range lines {
		for name, value := range line {
			isEvaluation := strings.HasPrefix(name, "eval/") || name == "tokens/eval"
			if isEvaluation && k == 0 || !isEvaluation && plain[k][name] != value {
				t.Errorf("step %d: %s is %v, without evaluations %v", k+1, name, value, plain[k][name])
			}
			if broken[k][name] != value {
				t.Errorf("step %d: %s is %v, and %v after resuming", k+1, name, value, broken[k][name])
			}
		}
	}
	evalPath, dir := tinyEvaluation(t, modelDir)
	for _, step := range []int{2, 3} {
		checkpoint := filepath.Join(runDir, "checkpoints", fmt.Sprintf("step_%06d", step))
		_, results := evaluate(t, evalPath, "", "run.dir="+dir, "data.eval="+asked, "model.path="+checkpoint)
		for k, result := range results.Contexts {
			for _, figure := range result.Overall.List() {
				name := "eval/" + string(result.Context) + "/" + figure.Name
				if lines[step-1][name] != figure.Value {
					t.Errorf("step %d: %s is %v in training, %v of its own", step, name, lines[step-1][name], figure.Value)
				}
				if full := k == 1; full && lines[step-1]["eval/"+figure.Name] != figure.Value {
					t.Errorf("step %d: eval/%s is %v, want that in full context, %v", step, figure.Name, lines[step-1]["eval/"+figure.Name], figure.Value)
				}
			}
		}
	}
}

// Tools of evaluations that fail take their figures away, never the run.
func TestEvaluationDuringTrainingWithABrokenService(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	url, asked := service(t, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	train(t, path, "data.eval="+evaluationQuestions(t), "eval.every=2", "eval.tools.search.backend=http", "eval.tools.search.url="+url)
	lines := metricLines(t, runDir)
	if len(lines) != 3 || asked.Load() < 3 {
		t.Fatalf("%d lines of metrics, the service was asked %d times", len(lines), asked.Load())
	}
	for k, line := range lines {
		em, known := line["eval/em"]
		if evaluated := k > 0; known != evaluated || em != nil || evaluated && line["eval/failed"] != 5.0 {
			t.Errorf("step %d: eval/em is %v (%v), eval/failed %v", k+1, em, known, line["eval/failed"])
		}
		if line["rollout/tool_calls"] == 0.0 || line["tools/failed"] != 0.0 {
			t.Errorf("step %d: %v tool calls, %v failed: training has a search of its own", k+1, line["rollout/tool_calls"], line["tools/failed"])
		}
	}
}
