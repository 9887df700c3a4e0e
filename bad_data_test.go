package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

const goodQuestion = `{"id":"a","question":"on a","golden_answers":["x"]}`

func TestQuestionFilesThatCannotBeTrainedOn(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	tests := []struct {
		name  string
		lines []string
		named []string // beside the file
	}{
		{"broken line", []string{goodQuestion, `{"id":"b","question":`}, []string{"line 2"}},
		{"line that is a list", []string{goodQuestion, `["b"]`}, []string{"line 2"}},
		{"two objects in a line", []string{goodQuestion + goodQuestion}, []string{"line 1"}},
		{"no answers", []string{goodQuestion, `{"id":"b","question":"on b","golden_answers":[]}`}, []string{"line 2", "golden_answers", "no golden answer"}},
		{"blank answers", []string{`{"id":"b","question":"on b","golden_answers":[" "]}`}, []string{"line 1", "golden_answers"}},
		{"answer is a number", []string{goodQuestion, `{"id":"b","question":"on b","golden_answers":12}`}, []string{"line 2", "golden_answers"}},
		{"answer is an object", []string{`{"id":"b","question":"on b","golden_answers":{"x":1}}`}, []string{"line 1", "golden_answers"}},
		{"wrong columns", []string{`{"query":"on b","answer":"x"}`}, []string{"line 1", "question", "answer, query", "golden_answers"}},
		{"question is a number", []string{`{"id":"b","question":7,"golden_answers":["x"]}`}, []string{"line 1", "question"}},
		{"empty question", []string{`{"id":"b","question":"","golden_answers":["x"]}`}, []string{"line 1", "question"}},
		{"question of white space", []string{`{"id":"b","question":" \n\t ","golden_answers":["x"]}`}, []string{"line 1", "question"}},
		{"two questions of one id", []string{goodQuestion, goodQuestion}, []string{"line 2", `"a"`}},
		{"nothing but blank lines", []string{"", "", ""}, nil},
		{"every question too long", []string{`{"id":"long","question":"` + strings.Repeat("on a ", 1000) + `","golden_answers":["x"]}`}, []string{"long"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, runDir := tinyConfig(t, dir)
			file := write(t, filepath.Join(t.TempDir(), "bad.jsonl"), test.lines...)
			named := test.named
			if test.name != "every question too long" {
				named = append(named, file)
			}
			refused(t, runTrain(t.Context(), path, []string{"data.train=" + file}, nil), fault.CodeUsage, named...)
			if _, err := os.Stat(runDir); err == nil {
				t.Error("a run folder was made")
			}
		})
	}
}

func TestFilesThatAreNoQuestions(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	folder := t.TempDir()
	garbage := filepath.Join(folder, "q.parquet")
	if err := os.WriteFile(garbage, []byte("PAR1 this is no parquet file PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(folder, "q.jsonl")
	if err := os.WriteFile(binary, []byte("\x1f\x8b\x08\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	table := write(t, filepath.Join(folder, "q.csv"), "question,answer", "on a,x")
	for _, file := range []string{garbage, binary, table, folder, filepath.Join(folder, "nowhere.jsonl")} {
		path, _ := tinyConfig(t, dir)
		refused(t, runTrain(t.Context(), path, []string{"data.train=" + file}, nil), fault.CodeUsage, file)
	}
}

func TestCorpusFilesThatCannotBeSearched(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	tests := []struct {
		name  string
		lines []string
		named []string
	}{
		{"empty", nil, nil},
		{"broken line", []string{`{"id":"1","contents":"x"}`, `{"id":`}, []string{"line 2"}},
		{"wrong columns", []string{`{"id":"1","body":"x"}`}, []string{"line 1", `"body"`, "contents"}},
		{"contents is a list", []string{`{"id":"1","contents":["x"]}`}, []string{"line 1", "contents"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, _ := tinyConfig(t, dir)
			file := write(t, filepath.Join(t.TempDir(), "bad.jsonl"), test.lines...)
			refused(t, runTrain(t.Context(), path, []string{"tools.search.corpus=" + file}, nil), fault.CodeUsage, append(test.named, file)...)
		})
	}
}

func TestConfigsThatAreRefused(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	tests := []struct {
		name string
		line string // appended to the file
		sets []string
		want []string
	}{
		{"misspelt key", "[optimizers]\nlearning_rate = 1e-6", nil, []string{"optimizers", "optimizer", "line"}},
		{"key of another table", "[loss]\ngroup_size = 4", nil, []string{"group_size", "rollout", "line"}},
		{"table twice", "[run]\nseed = 1", nil, []string{"run", "line"}},
		{"no TOML", "= 3", nil, []string{"line"}},
		{"not UTF-8", "[loss]\nkl_estimator = \"\xff\"", nil, []string{"UTF-8"}},
		{"wrong type", "", []string{"run.steps=many"}, []string{"run.steps", "many"}},
		{"no steps", "", []string{"run.steps=0"}, []string{"run.steps", "0"}},
		{"a number beyond all bounds", "", []string{"rollout.group_size=99999999999999999999"}, []string{"rollout.group_size"}},
		{"a number that float32 does not hold", "", []string{"advantage.memory_weight=1e300"}, []string{"advantage.memory_weight", "1e+300"}},
		{"a divisor of nearly nothing", "", []string{"optimizer.eps=1e-300"}, []string{"optimizer.eps", "1e-300", "1e-30 or more"}},
		{"a temperature of nearly nothing", "", []string{"rollout.temperature=1e-40"}, []string{"rollout.temperature", "1e-40"}},
		{"more threads than a machine has", "", []string{"model.threads=100000"}, []string{"model.threads", "100000", "1024"}},
		{"not a number", "", []string{"optimizer.learning_rate=nan"}, []string{"optimizer.learning_rate", "NaN"}},
		{"infinite", "", []string{"loss.kl_coef=inf"}, []string{"loss.kl_coef", "Inf"}},
		{"negative", "", []string{"loss.clip_low=-0.1"}, []string{"loss.clip_low", "-0.1"}},
		{"unknown choice", "", []string{"loss.aggregation=mean"}, []string{"loss.aggregation", "mean", "token-mean"}},
		{"does not divide", "", []string{"optimizer.questions_per_minibatch=3", "rollout.questions_per_step=4"}, []string{"does not divide"}},
		{"part of the distribution", "", []string{"rollout.top_p=0.9"}, []string{"rollout.top_p", "0.9"}},
		{"no temperature", "", []string{"rollout.temperature=0"}, []string{"rollout.temperature", "0"}},
		{"no tool of this name", "", []string{`tools.enabled=["search","shell"]`}, []string{"tools.enabled", "shell"}},
		{"no such backend", "", []string{"tools.search.backend=google"}, []string{"tools.search.backend", "google"}},
		{"address of no service", "", []string{"tools.search.backend=http", "tools.search.url=localhost:8000"}, []string{"tools.search.url", "localhost:8000"}},
		{"no address", "", []string{"tools.search.backend=http"}, []string{"tools.search.url"}},
		{"set of no key", "", []string{"run.step=3"}, []string{"run.step=3", "steps"}},
		{"set without value", "", []string{"run.steps"}, []string{"run.steps"}},
		{"set of a table", "", []string{"run=3"}, []string{"run"}},
		{"control characters in a value", "", []string{"loss.kl_estimator=\x1b[31m\x00"}, []string{"loss.kl_estimator"}},
		{"device of no kind", "", []string{"model.device=tpu"}, []string{"model.device", "tpu"}},
		{"dtype of no kind", "", []string{"model.dtype=int4"}, []string{"model.dtype", "int4"}},
		{"context of no room", "", []string{"rollout.context_length=3"}, []string{"rollout.context_length"}},
		{"prefill that ends the turn", "", []string{"rollout.prefill=<answer>x</answer>"}, []string{"rollout.prefill"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, runDir := tinyConfig(t, dir)
			if test.line != "" {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, string(data)+test.line)
				test.want = append(test.want, path)
			}
			refused(t, runTrain(t.Context(), path, test.sets, nil), fault.CodeUsage, test.want...)
			if _, err := os.Stat(runDir); err == nil {
				t.Error("a run folder was made")
			}
		})
	}
}
