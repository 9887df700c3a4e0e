//go:build shared

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// realDemonstrations search for a supporting title, read its passage and answer: one of each of the
// first questions that have one.
func realDemonstrations(t *testing.T, data string, n int) []string {
	t.Helper()
	passages := map[string]string{}
	each(t, filepath.Join(data, "corpus.jsonl"), func(line []byte) {
		var passage struct {
			Contents string `json:"contents"`
		}
		if err := json.Unmarshal(line, &passage); err != nil {
			t.Fatal(err)
		}
		title, text, _ := strings.Cut(passage.Contents, "\n")
		passages[strings.Trim(title, `"`)] = text
	})
	var lines []string
	each(t, filepath.Join(data, "questions.jsonl"), func(line []byte) {
		var question struct {
			Question string   `json:"question"`
			Answers  []string `json:"golden_answers"`
			Titles   []string `json:"supporting_titles"`
		}
		if err := json.Unmarshal(line, &question); err != nil {
			t.Fatal(err)
		}
		found := slices.IndexFunc(question.Titles, func(title string) bool { return passages[title] != "" })
		if len(lines) == n || found < 0 {
			return
		}
		title := question.Titles[found]
		text := passages[title]
		demonstration, err := json.Marshal(map[string]any{"messages": []map[string]string{
			{"role": "system", "content": "Search, remember, answer."},
			{"role": "user", "content": question.Question},
			{"role": "assistant", "content": "<mem></mem><think>I look it up.</think><search>" + title + "</search>"},
			{"role": "user", "content": "<information>\nDoc 1(Title: \"" + title + "\") " + text[:min(len(text), 200)] + "\n</information>"},
			{"role": "assistant", "content": "<mem>" + question.Answers[0] + "</mem><think>Done.</think><answer>" + question.Answers[0] + "</answer>"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.ToValidUTF8(string(demonstration), ""))
	})
	return lines
}

func each(t *testing.T, path string, do func(line []byte)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		do(scanner.Bytes())
	}
}

// Two steps of a real model on demonstrations of real questions: the loss on them falls, and the
// folder that is left is a model of the source's data type and tokenizer.
func TestRealModelLearnsRealDemonstrations(t *testing.T) {
	shared, folder := os.Getenv("MEMPO_SHARED"), os.Getenv("MEMPO_SMOLLM2")
	if shared == "" || folder == "" {
		t.Fatal("MEMPO_SHARED and MEMPO_SMOLLM2 must name the shared folder and the model's")
	}
	dir := t.TempDir()
	runDir := filepath.Join(dir, "run")
	demonstrations := write(t, filepath.Join(dir, "demonstrations.jsonl"), realDemonstrations(t, filepath.Join(shared, "data/hotpotqa_sample"), 2)...)
	path := write(t, filepath.Join(dir, "sft.toml"),
		`[run]`, `dir = "`+runDir+`"`, `steps = 2`,
		`[model]`, `path = "`+folder+`"`, `device = "cpu"`,
		`[data]`, `train = "`+demonstrations+`"`, `eval = "`+demonstrations+`"`,
		`[sft]`, `demonstrations_per_step = 2`, `eval_every = 2`,
		`[optimizer]`, `learning_rate = 1e-4`, `schedule = "constant"`,
		`[checkpoint]`, `keep = 1`)
	sftRun(t, path)
	lines := metricLines(t, runDir)
	first, second, after := lines[0]["loss/nll"].(float64), lines[1]["loss/nll"].(float64), lines[1]["eval/nll"].(float64)
	if !(after < second && second < first) {
		t.Errorf("the loss goes from %v over %v to %v", first, second, after)
	}
	compareModelFolders(t, folder, runDir, "step_000002")
}
