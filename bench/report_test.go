package bench

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func testReport() *Report {
	r := &Report{Model: "m", Device: "cpu", DType: "float32", Threads: 2, Schedule: "fixed", Scoring: "cached", Shape: testShape, MatrixRate: 100e9}
	r.Stages = []Result{
		{Stage: stageRollout, Tokens: 1000, NaiveTokens: 4000, SampledTokens: 600, Operations: 60e9, BytesRead: 5e9, Seconds: []float64{4, 1, 2}, PeakMemoryBytes: 7 << 20},
		{Stage: stageStep, Tokens: 3000, NaiveTokens: 9000, Operations: 200e9, Seconds: []float64{20, 10}},
		{Stage: stageStep + "/" + partMemory, Tokens: 300, Seconds: []float64{0.5, 0.7}},
	}
	for k := range r.Stages {
		r.Stages[k].sum()
	}
	r.Sum()
	return r
}

func TestReportSumsUp(t *testing.T) {
	r := testReport()
	rollout, step := r.Stages[0], r.Stages[1]
	if rollout.MinSeconds != 1 || rollout.MedianSeconds != 2 || rollout.TokensPerSecond != 500 || rollout.Rate != 30e9 || rollout.Bandwidth != 2.5e9 {
		t.Errorf("rollout: %+v", rollout)
	}
	if step.MinSeconds != 10 || step.MedianSeconds != 15 || r.MemoryShare != 0.6/15 {
		t.Errorf("step: %+v, share of the memories %g", step, r.MemoryShare)
	}
}

func TestReportReadsBack(t *testing.T) {
	r := testReport()
	r.Compare([]Other{{Stage: stageStep, MedianSeconds: 30, PeakMemoryBytes: 9}})
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(*r, back) {
		t.Errorf("%+v came back as %+v, %v", *r, back, err)
	}
}

func TestReportForPeople(t *testing.T) {
	r := testReport()
	r.Compare([]Other{{Stage: stageStep, MedianSeconds: 30}, {Stage: "another", MedianSeconds: 1}})
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(out.String()) {
		if fields := strings.Fields(line); len(fields) > 0 {
			rows[fields[0]] = strings.Join(fields, " ")
		}
	}
	for first, want := range map[string]string{
		"stage":             "stage tokens naive median s min s tokens/s GFLOP/s of matrix peak MiB other s other/ours other MiB",
		"rollout":           "rollout reads weights, keys and values at 2.5 GB/s",
		"step":              "step 3000 9000 15.000 10.000 200 13.3 13 % 0 30.000 2.00 –",
		"step/memory_score": "step/memory_score 300 – 0.600 0.500 500 – – 0 – – –",
		"measuring":         "measuring memories takes 4.0 % of a step",
	} {
		if rows[first] != want {
			t.Errorf("%q, want %q in\n%s", rows[first], want, out.String())
		}
	}
	for _, want := range []string{"rollout 1000 4000 2.000 1.000 500 30.0 30 % 7 – – –", "rollout samples 600 tokens, 300.0 a second"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"program":"x","stages":[{"stage":"step","median_seconds":30,"peak_memory_bytes":2048,"more":1},{"stage":"old","median_seconds":1}]}`)
	others, err := ReadOthers(path)
	if err != nil || CheckOthers(path, others, []string{stageStep, stageUpdate}) != nil {
		t.Fatal(others, err)
	}
	r := testReport()
	r.Compare(others)
	if r.Stages[0].Other != nil || *r.Stages[1].Other != (Other{stageStep, 30, 2048, 2}) {
		t.Errorf("compared with %+v", r.Stages[1].Other)
	}
	if err := CheckOthers(path, others, []string{stageUpdate}); err == nil || !strings.Contains(err.Error(), "old") {
		t.Errorf("nothing in common: %v", err)
	}
	text, _ := json.Marshal(r)
	write(string(text))
	if ours, err := ReadOthers(path); err != nil || len(ours) != 3 || ours[1].MedianSeconds != 15 {
		t.Errorf("a report of ours as the other's: %+v, %v", ours, err)
	}
	if _, err := ReadOthers(filepath.Join(t.TempDir(), "absent")); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a file that is not there: %v", err)
	}
}
