// Package tools is the test of the programs beside make that stand alone.
package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	ptxasSays = `ptxas info    : Compiling entry function '_ZN5mempo7kernels4cuda3addEPf' for 'sm_90'
ptxas info    : Function properties for _ZN5mempo7kernels4cuda3addEPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
`
	reported = "# Written by `make kernels-report`; shared bytes are those that are known when compiling.\n" +
		"file\tkernel\tGPU\tregisters\tspilled bytes\tstack bytes\tshared bytes\nadding\tadd\tsm_90\t24\t0\t0\t0\n"
)

// ptxasReport runs ptxas_report.py in a folder; it returns the exit code and what was said.
func ptxasReport(t *testing.T, dir string, arguments ...string) (int, string) {
	t.Helper()
	program, err := filepath.Abs("ptxas_report.py")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("python3", append([]string{program}, arguments...)...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

func TestPtxasReport(t *testing.T) {
	cases := []struct {
		name, log, report string // "": no such file
		mode              string
		code              int
		says              string
	}{
		{"as reported", ptxasSays, reported, "check", 0, ""},
		{"other figures", ptxasSays, strings.Replace(reported, "24", "25", 1), "check", 1, "report.txt differs from what ptxas says now"},
		{"no log", "", reported, "check", 1, "adding.log: No such file or directory\n"},
		{
			"a log that is no text", ptxasSays + "\xff\xfe", reported, "check", 1,
			"adding.log: byte 273 is not UTF-8, so it is not what nvcc has written\n",
		},
		{"a log of nothing", "nvcc\n", reported, "check", 1, "ptxas says nothing of any kernel: is -Xptxas -v among nvcc's flags?\n"},
		{"no report", ptxasSays, "", "check", 1, "report.txt: No such file or directory\n"},
		{"a report that is no text", ptxasSays, "\xff", "check", 1, "report.txt: byte 0 is not UTF-8, so it is not what nvcc has written\n"},
		{"a report to write", ptxasSays, "", "write", 0, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"adding.log": c.log, "report.txt": c.report} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			code, said := ptxasReport(t, dir, c.mode, "report.txt", "adding.log")
			if code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, "Traceback") {
				t.Errorf("exit code %d and %q, want %d and %q", code, said, c.code, c.says)
			}
		})
	}
	t.Run("a report in no folder", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "adding.log"), []byte(ptxasSays), 0o644); err != nil {
			t.Fatal(err)
		}
		if code, said := ptxasReport(t, dir, "write", "none/report.txt", "adding.log"); code != 1 || said != "none/report.txt: No such file or directory\n" {
			t.Errorf("exit code %d and %q", code, said)
		}
	})
}
