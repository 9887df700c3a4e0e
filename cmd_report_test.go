package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// A run leaves a report of itself, and the command makes the same again.
func TestReportOfARun(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	stdout, stderr, code := runProgram("", path, "--set", "run.steps=2")
	if code != 0 {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	report := filepath.Join(runDir, "report.html")
	first, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"name":"step_000002","step":2,"count":8`, `"title":"Score in training"`, `"steps":[1,2]`, `"name":"seed","value":"7"`} {
		if !strings.Contains(string(first), want) {
			t.Errorf("the report does not have %s", want)
		}
	}
	if _, notes, found := strings.Cut(string(first), `"notes":`); found {
		t.Errorf("something is missing in a whole run: %.300s", notes)
	}
	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}
	if lines := mustRun(t, "", "report", runDir); len(lines) != 1 || lines[0] != report {
		t.Errorf("the command prints %q", lines)
	}
	if _, err := os.Stat(report); err != nil {
		t.Error(err)
	}
}

// A report that cannot be written is no failure of the run.
func TestARunWithoutAReport(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	if err := os.MkdirAll(filepath.Join(runDir, "report.html", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := runProgram("", path, "--set", "run.steps=1")
	if code != 0 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	log, err := os.ReadFile(filepath.Join(runDir, "log.jsonl"))
	if err != nil || !strings.Contains(string(log), `"msg":"no report","error":"cannot write `) {
		t.Errorf("the log is %s, %v", log, err)
	}
}

func TestReportRefuses(t *testing.T) {
	empty := t.TempDir()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"report"}, "found 0 arguments, want one: the folder of a run"},
		{[]string{"report", "a", "b"}, "found 2 arguments"},
		{[]string{"report", empty}, empty + " is no run folder"},
		{[]string{"report", filepath.Join(empty, "missing")}, "missing cannot be read: no such file or directory"},
	} {
		stdout, stderr, code := runProgram("", test.args...)
		if code != fault.CodeUsage || !strings.Contains(stderr, test.want) || stdout != "" {
			t.Errorf("%v: exit code %d, %q, want %q", test.args, code, stderr, test.want)
		}
	}
}
