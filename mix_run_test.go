package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// mixedSources writes two sources and returns the setting that mixes them, with the weight of the second.
func mixedSources(t *testing.T) func(weight float64) []string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"q1.jsonl", "q2.jsonl"} {
		write(t, filepath.Join(dir, name), fmt.Sprintf(`{"question":"on %s","answer":["x"]}`, name[1:2]))
	}
	write(t, filepath.Join(dir, "t.tsv"), "Question\tAnswer", "on a\tx", "on b\ty", "on c\tz", "on a and on a again\tx")
	return func(weight float64) []string {
		return []string{"data.train=[]", fmt.Sprintf(`data.mix=[{files = "%s/q?.jsonl", name = "short"}, {files = "%s/t.tsv", name = "table", weight = %v, max_question_chars = 10}]`, dir, dir, weight)}
	}
}

func TestAMixedRunGoesOnBitForBit(t *testing.T) {
	dir, sources := taughtFolder(t, "llama-tiny"), mixedSources(t)
	straightPath, straight := tinyConfig(t, dir)
	train(t, straightPath, append(sources(2), "run.steps=3", "data.compose.train=[1, 2]")...)
	brokenPath, broken := tinyConfig(t, dir)
	for _, steps := range []string{"1", "3"} {
		train(t, brokenPath, append(sources(2), "run.steps="+steps, "data.compose.train=[1, 2]")...)
	}
	sameRun(t, straight, broken, "step_000003")
	for name, sets := range map[string][]string{
		"another weight": append(sources(3), "data.compose.train=[1, 2]"),
		"another number": append(sources(2), "data.compose.train=[2, 1]"),
		"no composition": sources(2),
	} {
		err := runTrain(t.Context(), brokenPath, append(sets, "run.steps=4"), nil)
		if fault.Code(err) != fault.CodeUsage || !strings.Contains(fmt.Sprint(err), "data") {
			t.Errorf("%s: exit code %d, %v", name, fault.Code(err), err)
		}
	}
}

func TestCheckShowsTheSources(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	sources := mixedSources(t)
	text, err := check(path, append(sources(3), `data.eval_mix=[{files = "`+evaluationQuestions(t)+`", sample = 4}]`, "data.compose.eval=[1, 2]")...)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, text,
		"== data ==", "training: 5 questions", "short, ", "q1.jsonl, ", "q2.jsonl: 2 rows, read as NQ-open\n", "  1: on 1 → x",
		"t.tsv: 4 rows, read as Bamboogle; left out: 1 longer than 10 characters\n", "  3: on a → x",
		"evaluation: 6 questions", "5 rows, read as golden_answers; composed: 4 of 1 objective, 2 of 2 objectives; left out: 1 not in the sample\n", "+", "Answer the following questions: on ",
		"3 steps draw 6 questions:", "  2 (33.3%) of the 2 of short: 1.0 passes", "  4 (66.7%) of the 3 of table: 1.3 passes",
	)
	for set, want := range map[string]string{
		"data.eval=*.nothing":                `the pattern "*.nothing" matches no file`,
		"data.compose.train=[10]":            "too few for another of 10 objectives",
		`data.compose.template="{{.Wrong}}"`: "data.compose: the template cannot be filled in",
	} {
		sets := append(sources(3), "data.compose.train=[2]", "eval.every=1", "data.eval="+evaluationQuestions(t), set)
		_, err := check(path, sets...)
		finds(t, err, fault.CodeUsage, want)
	}
}

func TestEvaluationByNumberOfObjectives(t *testing.T) {
	path, _ := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	table, results := evaluate(t, path, "", "run.dir="+filepath.Join(t.TempDir(), "eval"), "data.eval="+evaluationQuestions(t), "data.compose.eval=[1, 2, 4]")
	holds(t, table, "all", "7", "1 objective", "4", "2 objectives", "2", "4 objectives", "1")
	counts := map[int]int{}
	for _, answer := range results.Contexts[0].Answers {
		counts[answer.Objectives]++
		if got := 1 + strings.Count(answer.QuestionID, "+"); got != answer.Objectives {
			t.Errorf("%s has %d objectives", answer.QuestionID, answer.Objectives)
		}
	}
	if counts[1] != 4 || counts[2] != 2 || counts[4] != 1 {
		t.Errorf("by number of objectives: %v", counts)
	}
}
