package eval

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
)

// someResults are of three questions from two sources, one of which failed.
func someResults(context rollout.Context, ems ...float64) *Results {
	r := &Result{Context: context}
	for k, em := range ems {
		q := dataset.Question{ID: string(rune('a' + k)), Source: []string{"nq", "hotpotqa"}[k%2], Hops: k + 1}
		answers := answersTo(q, em)
		answers[0].Turns, answers[0].TotalTokens, answers[0].PeakTokens, answers[0].FormatOK = k+1, 1000*(k+1), 500, true
		prediction := "<mem>\x00 & \""
		answers[0].Prediction = &prediction
		r.Answers = append(r.Answers, answers...)
	}
	r.sum(1)
	return &Results{
		Finished: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Model:    Model{Path: "m", WeightsHash: "w", TokenizerHash: "t"},
		Data:     Data{Files: []string{"q.jsonl"}, Questions: len(ems), Hash: "h", Dropped: []string{}},
		Settings: map[string]any{"eval.temperature": 0.0, "eval.tools.enabled": []string{"search"}, "run.seed": int64(3)},
		Contexts: []*Result{r},
	}
}

func TestResultsFileReadsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	results := someResults(rollout.Limited, 1, math.NaN(), 0)
	if err := results.Write(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, []byte(`"prediction": "<mem>`)) || !bytes.Contains(text, []byte(`"em": null`)) {
		t.Errorf("%v: %s", err, text)
	}
	back, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := results.changed(back); err != nil || len(changes) > 0 {
		t.Errorf("settings changed: %q, %v", changes, err)
	}
	var again bytes.Buffer
	if err := back.WriteTable(&again); err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := results.WriteTable(&table); err != nil || table.String() != again.String() || back.Data.Hash != "h" || back.Model != results.Model {
		t.Errorf("%v: read back as\n%s", err, &again)
	}
	copied := filepath.Join(t.TempDir(), "results.json")
	if err := back.Write(copied); err != nil {
		t.Fatal(err)
	}
	if other, err := os.ReadFile(copied); err != nil || !bytes.Equal(text, other) {
		t.Errorf("written again, the file differs: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ text, want string }{
		"missing.json": {"", "cannot be read: no such file"},
		"broken.json":  {"{", "holds no results of an evaluation"},
		"newer.json":   {`{"format_version": 2}`, "format_version is 2, this program reads 1"},
		"other.json":   {`{"a": 1}`, "format_version is 0"},
		"empty.json":   {`{"format_version": 1}`, "the results of no context"},
		"null.json":    {`{"format_version": 1, "contexts": [null]}`, "the results of no context"},
		"bare.json":    {`{"format_version": 1, "contexts": [{"context": "full", "overall": {"n": 1}}]}`, "has no settings"},
		"figures.json": {`{"format_version": 1, "settings": {}, "contexts": [{"context": "full"}]}`, "overall.n in full context is 0, allowed is 1 or more"},
	} {
		path := filepath.Join(dir, name)
		if test.text != "" {
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Read(path)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) || fault.Code(err) != fault.CodeUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTableHasALineForEachDataSet(t *testing.T) {
	results := someResults(rollout.Limited, 1, math.NaN(), 0)
	results.Contexts = append(results.Contexts, someResults(rollout.Full, 0).Contexts...)
	var table strings.Builder
	if err := results.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	want := `
context  questions  n     em  em sum     f1  format  turns  tool calls  total tokens  peak tokens  truncated  failed
limited  all        3  0.500   0.000  0.000   1.000   2.00        0.00          2000          500      0.000       1
limited  hotpotqa   1      –       –      –       –      –           –             –            –          –       1
limited  nq         2  0.500   0.000  0.000   1.000   2.00        0.00          2000          500      0.000       0
limited  1 hop      1  1.000   0.000  0.000   1.000   1.00        0.00          1000          500      0.000       0
limited  2 hops     1      –       –      –       –      –           –             –            –          –       1
limited  3 hops     1  0.000   0.000  0.000   1.000   3.00        0.00          3000          500      0.000       0
full     nq         1  0.000   0.000  0.000   1.000   1.00        0.00          1000          500      0.000       0
`
	if "\n"+table.String() != want {
		t.Errorf("got\n%s", table.String())
	}
}

// A name from a file can neither break the table nor reach the terminal's controls.
func TestNamesOfSourcesAreShownAsText(t *testing.T) {
	hostile := Group{By: BySource, Key: "a\n\x1b[2J" + strings.Repeat("x", 100)}
	if got := hostile.name(); strings.ContainsAny(got, "\n\x1b") || len(got) > 60 {
		t.Errorf("shown as %q", got)
	}
}

func TestManySamplesShowFewColumns(t *testing.T) {
	f := Figures{PassAtK: make([]rollout.Number, 10)}
	var shown []string
	for _, cell := range titles(&f) {
		if strings.HasPrefix(cell, "pass") {
			shown = append(shown, cell)
		}
	}
	if !reflect.DeepEqual(shown, []string{"pass at 1", "pass at 2", "pass at 4", "pass at 8"}) {
		t.Errorf("columns %q", shown)
	}
}

func TestComparison(t *testing.T) {
	before, after := someResults(rollout.Limited, 0, 0, 1), someResults(rollout.Limited, 1, math.NaN(), 1)
	after.Contexts = append(after.Contexts, someResults(rollout.Full, 1, 1, 1).Contexts...)
	after.Settings["eval.temperature"], after.Settings["eval.samples"] = 0.5, 1
	var text strings.Builder
	if err := after.WriteComparison(&text, before); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"context  figure        before  after  difference\n",
		"limited  n                  3      3          +0\n",
		"limited  em             0.333  1.000      +0.667\n",
		"limited  failed             0      1          +1\n",
		"changed since: eval.samples: null → 1\n",
		"changed since: eval.temperature: 0 → 0.5\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "full") || strings.Contains(text.String(), "seed") {
		t.Errorf("more than both have is compared:\n%s", text.String())
	}
}

func TestOtherQuestionsAreNotCompared(t *testing.T) {
	before := someResults(rollout.Limited, 1)
	both := []rollout.Context{rollout.Full, rollout.Limited}
	if err := before.Comparable("r.json", Data{Questions: 1, Hash: "h"}, both); err != nil {
		t.Error(err)
	}
	err := before.Comparable("r.json", Data{Questions: 2, Hash: "g"}, both)
	if err == nil || fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), "r.json holds results on other questions: 1 with the hash h, here are 2 with g") {
		t.Errorf("other questions: %v", err)
	}
	err = before.Comparable("r.json", Data{Questions: 1, Hash: "h"}, []rollout.Context{rollout.Full})
	if err == nil || fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), "r.json holds no results in [full] context") {
		t.Errorf("another context: %v", err)
	}
}

// What cannot be written is an error, not half a table.
func TestWritingFails(t *testing.T) {
	results := someResults(rollout.Limited, 1)
	full := writerFunc(func([]byte) (int, error) { return 0, errors.New("full") })
	if results.WriteTable(full) == nil || results.WriteComparison(full, results) == nil {
		t.Error("a failed write is no error")
	}
	results.Settings["x"] = math.NaN()
	if err := results.Write(filepath.Join(t.TempDir(), "results.json")); err == nil {
		t.Error("a NaN was written")
	}
	if err := results.WriteComparison(&strings.Builder{}, results); err == nil {
		t.Error("a NaN was compared")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }
