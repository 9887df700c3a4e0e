package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model/weights"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
)

// running is a run in a process of its own, of which the test reads what it tells.
type running struct {
	*exec.Cmd
	told  *bufio.Scanner
	lines []string
}

func startRun(t *testing.T, path string, sets ...string) *running {
	t.Helper()
	return start(t, []string{path}, sets...)
}

// startCommand starts a command that reads a config.
func startCommand(t *testing.T, command, path string, sets ...string) *running {
	t.Helper()
	return start(t, []string{command, path}, sets...)
}

func start(t *testing.T, args []string, sets ...string) *running {
	t.Helper()
	for _, set := range sets {
		args = append(args, "--set", set)
	}
	r := &running{Cmd: process(args...)}
	stderr, err := r.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.told = bufio.NewScanner(stderr)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Process.Kill() })
	return r
}

// until reads what the run tells up to a line that begins so; false is its end.
func (r *running) until(beginning string) bool {
	for r.told.Scan() {
		r.lines = append(r.lines, r.told.Text())
		if strings.HasPrefix(r.told.Text(), beginning) {
			return true
		}
	}
	return false
}

// end waits for the process and returns its exit code, -1 if it was killed, and how long it took.
func (r *running) end() (code int, took time.Duration) {
	begun := time.Now()
	r.until("\x00")
	_ = r.Wait()
	return r.ProcessState.ExitCode(), time.Since(begun)
}

func (r *running) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// checkpoints lists the steps of the checkpoints of a run, each of which must be whole.
func checkpoints(t *testing.T, runDir string) (steps []int64) {
	t.Helper()
	found, err := checkpoint.List(runDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, saved := range found {
		steps = append(steps, saved.Step)
		if record, err := checkpoint.ReadRecord(saved.Path); err != nil || record.Step != saved.Step {
			t.Errorf("checkpoint of step %d has the record of step %d, %v", saved.Step, record.Step, err)
		}
		for _, file := range []string{"model", "trainer_state/master", "trainer_state/exp_avg", "trainer_state/exp_avg_sq"} {
			opened, err := weights.OpenFile(filepath.Join(saved.Path, file+".safetensors"))
			if err != nil {
				t.Errorf("step %d: %v", saved.Step, err)
				continue
			}
			_ = opened.Close()
		}
	}
	return steps
}

// Killed at any moment, a run goes on from its last checkpoint as if nothing had been.
func TestKilledRunsGoOn(t *testing.T) {
	const steps = 4
	dir := tinyFolder(t, "llama-tiny")
	straightPath, straight := tinyConfig(t, dir)
	train(t, straightPath, fmt.Sprintf("run.steps=%d", steps))

	path, runDir := tinyConfig(t, dir)
	random := rand.New(rand.NewPCG(3, 4))
	newest, kills := int64(0), 0
	for ; newest < steps && kills < 40; kills++ {
		r := startRun(t, path, fmt.Sprintf("run.steps=%d", steps), "checkpoint.keep=2")
		r.until([]string{"loading", "rollout", "update", "step", "checkpoint"}[kills%5])
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		r.signal(t, syscall.SIGKILL)
		if code, _ := r.end(); code != -1 && code != 0 {
			t.Fatalf("exit code %d: %q", code, r.lines)
		}
		found := checkpoints(t, runDir)
		if len(found) > 3 { // two kept, one not yet removed
			t.Errorf("checkpoints of steps %v", found)
		}
		if len(found) > 0 {
			if last := found[len(found)-1]; last < newest {
				t.Fatalf("the newest checkpoint went back from step %d to %d", newest, last)
			}
			newest = found[len(found)-1]
		}
	}
	if kills < 3 {
		t.Fatalf("killed %d times only", kills)
	}
	train(t, path, fmt.Sprintf("run.steps=%d", steps), "checkpoint.keep=2")
	everyStepOnce(t, runDir, steps)
	a, b := metricLines(t, straight), metricLines(t, runDir)
	for k := range min(len(a), len(b)) {
		if fmt.Sprint(a[k]) != fmt.Sprint(b[k]) {
			t.Errorf("step %d: %v, and %v after being killed", k+1, a[k], b[k])
		}
	}
	for _, name := range []string{"model.safetensors", "trainer_state/master.safetensors", "trainer_state/exp_avg_sq.safetensors"} {
		file := fmt.Sprintf("checkpoints/step_%06d/%s", steps, name)
		want, errWant := os.ReadFile(filepath.Join(straight, file))
		got, errGot := os.ReadFile(filepath.Join(runDir, file))
		if errWant != nil || errGot != nil || !bytes.Equal(want, got) {
			t.Errorf("%s differs: %v, %v", name, errWant, errGot)
		}
	}
	train(t, path, fmt.Sprintf("run.steps=%d", steps+1), "checkpoint.keep=2")
	if left, _ := filepath.Glob(filepath.Join(runDir, "*", "*.tmp*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInterruptFinishesTheStep(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	r := startRun(t, path, "run.steps=100000", "checkpoint.every=100000")
	if !r.until("step 2/") {
		t.Fatalf("%q", r.lines)
	}
	r.signal(t, os.Interrupt)
	if code, _ := r.end(); code != 0 {
		t.Errorf("exit code %d, want 0: %q", code, r.lines)
	}
	lines := metricLines(t, runDir)
	everyStepOnce(t, runDir, len(lines))
	said := strings.Join(r.lines, "\n")
	if want := fmt.Sprintf("stopped after step %d;", len(lines)); len(lines) < 2 || !strings.Contains(said, want) || !strings.Contains(said, "finishing the step") || strings.Contains(said, "done: ") {
		t.Errorf("%d steps, but not %q in %q", len(lines), want, said)
	}
	if found := checkpoints(t, runDir); len(found) != 1 || found[0] != int64(len(lines)) {
		t.Errorf("checkpoints of steps %v, want that of step %d", found, len(lines))
	}
	train(t, path, fmt.Sprintf("run.steps=%d", len(lines)+1))
	everyStepOnce(t, runDir, len(lines)+1)
}

// A step that never ends, because its search service hangs.
func TestSignalsEndAStepThatHangs(t *testing.T) {
	path, _ := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	tests := []struct {
		name    string
		signals []os.Signal
		code    int
		within  time.Duration
	}{
		{"interrupted twice", []os.Signal{os.Interrupt, os.Interrupt}, codeInterrupted, 2 * time.Second},
		{"terminated", []os.Signal{syscall.SIGTERM}, codeTerminated, 5 * time.Second},
		{"interrupted, then terminated", []os.Signal{os.Interrupt, syscall.SIGTERM}, codeTerminated, 5 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hangs := make(chan struct{}, 1000)
			url, _ := service(t, 1+2*8, func(_ http.ResponseWriter, r *http.Request) {
				hangs <- struct{}{}
				<-r.Context().Done()
			})
			runDir := filepath.Join(t.TempDir(), "run")
			sets := searching(url, "run.dir="+runDir, "run.steps=100", "tools.search.timeout_s=600")
			r := startRun(t, path, sets...)
			if !r.until("checkpoint") {
				t.Fatalf("%q", r.lines)
			}
			<-hangs
			for k, s := range test.signals {
				r.signal(t, s)
				if k+1 < len(test.signals) && !r.until("mempo-train: finishing the step") {
					t.Fatalf("%q", r.lines)
				}
			}
			if code, took := r.end(); code != test.code || took > test.within {
				t.Errorf("exit code %d after %v, want %d within %v: %q", code, took, test.code, test.within, r.lines)
			}
			if last := r.lines[len(r.lines)-1]; test.code == codeTerminated && !oneSentence(last+"\n") {
				t.Errorf("its last words are %q", last)
			}
			found := checkpoints(t, runDir)
			if len(found) == 0 || len(metricLines(t, runDir)) != int(found[len(found)-1]) {
				t.Errorf("checkpoints of steps %v, metrics of %d", found, len(metricLines(t, runDir)))
			}
		})
	}
}

// What a run tells may go nowhere: a closed pipe ends no run.
func TestNobodyReadsTheProgress(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	command := process(path)
	reader, writer := io.Pipe()
	_ = reader.Close()
	command.Stderr = writer // a pipe whose reader has gone
	if err := command.Run(); command.ProcessState.ExitCode() != 0 {
		t.Errorf("exit code %d, %v", command.ProcessState.ExitCode(), err)
	}
	everyStepOnce(t, runDir, 3)
}
