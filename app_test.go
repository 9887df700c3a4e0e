package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/engine"
)

// The test binary is the program itself when asked to.
const asProgram, asRun = "MEMPO_TEST_AS_PROGRAM", "MEMPO_TEST_AS_RUN"

func init() {
	switch {
	case os.Getenv(asProgram) != "":
		main()
	case os.Getenv(asRun) != "": // a run that heeds SIGTERM only behind a SIGINT, and does not end on one
		err := underSignals(context.Background(), os.Stderr, endOfRun, func(ctx context.Context, stop <-chan struct{}) error {
			os.Stdout.WriteString("running\n")
			<-stop
			os.Stdout.WriteString("stopping\n")
			<-ctx.Done()
			return ctx.Err()
		})
		os.Exit((&program{out: &output{}, errs: os.Stderr}).exitCode(err))
	}
}

// runProgram runs a command line within the test.
func runProgram(stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = run(append([]string{"mempo-train"}, args...), strings.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), code
}

// mustRun runs a command line that is to succeed and returns its lines of output.
func mustRun(t *testing.T, stdin string, args ...string) []string {
	t.Helper()
	stdout, stderr, code := runProgram(stdin, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("%v: exit code %d, %s", args, code, stderr)
	}
	return strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
}

// process runs a command line as a process of its own.
func process(args ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), asProgram+"=1")
	return command
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	app := (&program{}).app()
	tests := []struct{ args, want string }{
		{"", "--"},
		{"run.toml", "-- run.toml"},
		{"--set a=1 run.toml --set b=2", "--set a=1 --set b=2 -- run.toml"},
		{"run.toml --set=a=1", "--set=a=1 -- run.toml"},
		{"-set a=1 run.toml rest", "-set a=1 -- run.toml rest"},
		{"score --model dir", "score --model dir --"},
		{"--model dir score --threads 2", "score --model dir --threads 2 --"},
		{"version --check", "version --check --"},
		{"version --check rest", "version --check -- rest"},
		{"generate --stop --model --model dir", "generate --stop --model --model dir --"},
		{"generate --stop - --unknown x", "generate --stop - --unknown -- x"},
		{"run.toml -- --set", "-- run.toml --set"},
		{"-", "-- -"},
	}
	for _, test := range tests {
		got, err := flagsFirst(app, strings.Fields(test.args))
		if err != nil || !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%q becomes %q (%v), want %q", test.args, got, err, test.want)
		}
	}
	if _, err := flagsFirst(app, []string{"score", "--model"}); err == nil {
		t.Error("a flag without its value is accepted")
	}
}

func TestValuesMayHoldCommas(t *testing.T) {
	_, stderr, code := runProgram("", filepath.Join(t.TempDir(), "run.toml"), "--set", "data.train=[1,2]")
	if code != 2 || !strings.Contains(stderr, "run.toml") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	path := write(t, filepath.Join(t.TempDir(), "run.toml"), "[run]", "steps = 1")
	if _, stderr, code = runProgram("", path, "--set", "tools.enabled=search,fly"); code != 2 || !strings.Contains(stderr, "search,fly") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestWrongUsage(t *testing.T) {
	model := "testdata/golden/models/qwen2-tiny"
	score, generate := []string{"score", "--model", model, "--threads", "1"}, []string{"generate", "--model", model, "--threads", "1"}
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	tests := []struct {
		args  []string
		stdin string
		want  string // part of the sentence
	}{
		{nil, "", "nothing to do"},
		{[]string{"scoer"}, "", `no command and no file is called "scoer"`},
		{[]string{"nowhere.toml"}, "", "nowhere.toml: no such file"},
		{[]string{"a.toml", "b.toml"}, "", `"b.toml" behind the file a.toml`},
		{[]string{"a.toml", "--fast"}, "", "-fast"},
		{[]string{"help", "scoer"}, "", "scoer"},
		{[]string{"score"}, "", "score needs --model DIR"},
		{with(score, "rest"), "", `score takes no argument, found "rest"`},
		{with(score, "--threads", "two"), "", "threads"},
		{with(score, "--threads", "-1"), "", "--threads is -1"},
		{with(score, "--threads", "99999"), "", "threads is 99999"},
		{with(score, "--batch-tokens", "0"), "", "--batch-tokens is 0"},
		{with(score, "--device", "tpu"), "", `device is "tpu"`},
		{with(score, "--dtype", "int4"), "", `dtype is "int4"`},
		{with(score, "--temperature", "0"), "", "--temperature is 0"},
		{with(score, "--temperature", "1e-9"), "", "--temperature is 1e-09"},
		{[]string{"score", "--model", "nowhere"}, "", "nowhere/config.json"},
		{with(generate, "--temperature", "nan"), "", "--temperature is NaN"},
		{with(generate, "--top-p", "0"), "", "--top-p is 0"},
		{with(generate, "--top-p", "1.1"), "", "--top-p is 1.1"},
		{with(generate, "--top-k", "-1"), "", "--top-k is -1"},
		{with(generate, "--max-tokens", "0"), "", "--max-tokens is 0"},
		{with(generate, "--batch", "0"), "", "--batch is 0"},
		{with(generate, "--stop", ""), "", `--stop is ""`},
		{with(generate, "--stop", "x"), "", "tokenizer.json"},
		{[]string{"tokenize", "--model", model}, "", "tokenizer.json"},
		{[]string{"grade"}, "x", "line 1"},
		{[]string{"advantage"}, `{"scores":[1]}` + "\n{}", "line 2"},
	}
	for _, test := range tests {
		_, stderr, code := runProgram(test.stdin, test.args...)
		if code != 2 || !strings.Contains(stderr, test.want) || !oneSentence(stderr) {
			t.Errorf("%q: exit code %d and %q; want 2 and one sentence with %q", test.args, code, stderr, test.want)
		}
	}
}

// oneSentence reports whether a message is one line that begins with the program's name.
func oneSentence(message string) bool {
	return strings.HasPrefix(message, "mempo-train: ") && strings.Count(message, "\n") == 1 && strings.HasSuffix(message, "\n")
}

func TestHelpIsAResult(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"help"}, {"score", "--help"}, {"help", "score"}} {
		if stdout, stderr, code := runProgram("", args...); code != 0 || stderr != "" || !strings.Contains(stdout, "score") {
			t.Errorf("%q: exit code %d, %q", args, code, stderr)
		}
	}
	if lines := mustRun(t, "", "--version"); !strings.Contains(lines[0], version) {
		t.Errorf("--version prints %q", lines)
	}
}

func TestGradeAndAdvantage(t *testing.T) {
	graded := mustRun(t, `{"prediction":"The Eiffel Tower","golden_answers":["eiffel tower"]}`, "grade")
	if len(graded) != 1 || !strings.Contains(graded[0], `"em":1`) {
		t.Errorf("grade: %q", graded)
	}
	advantages := mustRun(t, `{"scores":[1,0],"normalize":"none"}`, "advantage")
	if len(advantages) != 1 || !strings.Contains(advantages[0], `"outcome":[0.5,-0.5]`) {
		t.Errorf("advantage: %q", advantages)
	}
}

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("index out of range [3] with length 3") }

func TestPanicIsOneSentence(t *testing.T) {
	var out, errs bytes.Buffer
	code := run([]string{"mempo-train", "grade"}, panickingReader{}, &out, &errs)
	if code != 1 || !oneSentence(errs.String()) || !strings.Contains(errs.String(), "index out of range") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
}

func TestExitCodesOfTheProcess(t *testing.T) {
	tests := []struct {
		args []string
		want int
	}{
		{[]string{"version"}, 0},
		{[]string{"version", "--check", "--device", "cpu"}, 0},
		{[]string{"version", "--check", "--device", "cuda:99"}, 3},
		{[]string{"score", "--model", "testdata/golden/models/qwen2-tiny", "--device", "cuda:99"}, 3},
		{[]string{"unheard-of"}, 2},
	}
	for _, test := range tests {
		command := process(test.args...)
		var errs bytes.Buffer
		command.Stderr = &errs
		_ = command.Run()
		if code := command.ProcessState.ExitCode(); code != test.want || test.want != 0 && !oneSentence(errs.String()) {
			t.Errorf("%q: exit code %d, want %d; %s", test.args, code, test.want, errs.String())
		}
	}
}

func TestAnotherLibtorchOnTheLibraryPathIsNotTaken(t *testing.T) {
	dir := t.TempDir()
	other, err := os.ReadFile(filepath.Join(engine.LibraryFolder(), "libc10.so"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "libtorch_cpu.so"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	command := process("version")
	command.Env = append(command.Env, "LD_LIBRARY_PATH="+dir)
	if text, err := command.CombinedOutput(); err != nil || !strings.Contains(string(text), "libtorch "+engine.TorchNeeded()) {
		t.Errorf("%v, %s", err, text)
	}
}

func TestFullDiskIsTheEnvironments(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	question := `{"prediction":"a","golden_answers":["a"]}`
	for _, args := range [][]string{{"grade"}, {"version"}} {
		var errs bytes.Buffer
		code := run(append([]string{"mempo-train"}, args...), strings.NewReader(question), full, &errs)
		if code != 3 || !oneSentence(errs.String()) || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%q: exit code %d, %q", args, code, errs.String())
		}
	}
}

func TestNobodyReadsTheResults(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"grade"}} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		reader.Close()
		command := process(args...)
		var errs bytes.Buffer
		command.Stdin, command.Stdout, command.Stderr = strings.NewReader(`{"prediction":"a","golden_answers":["a"]}`), writer, &errs
		err = command.Run()
		writer.Close()
		if err != nil || errs.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, errs.String())
		}
	}
}

func TestSignalsEndARun(t *testing.T) {
	tests := []struct {
		signals []os.Signal
		want    int
	}{
		{[]os.Signal{os.Interrupt, os.Interrupt}, codeInterrupted},
		{[]os.Signal{syscall.SIGTERM}, codeTerminated},
		{[]os.Signal{os.Interrupt, syscall.SIGTERM}, codeTerminated},
	}
	for _, test := range tests {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), asRun+"=1")
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for _, sent := range test.signals {
			if _, err := out.Read(make([]byte, 64)); err != nil { // "running", then "stopping"
				t.Fatal(err)
			}
			if err := command.Process.Signal(sent); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = io.Copy(io.Discard, out)
		_ = command.Wait()
		if code := command.ProcessState.ExitCode(); code != test.want || time.Since(begun) > 20*time.Second {
			t.Errorf("%v: exit code %d after %v, want %d", test.signals, code, time.Since(begun), test.want)
		}
	}
}

func TestRunThatEndsByItselfKeepsItsError(t *testing.T) {
	broken := errors.New("broken")
	err := underSignals(context.Background(), io.Discard, endOfRun, func(context.Context, <-chan struct{}) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
