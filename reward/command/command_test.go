package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mempo-train/mempo-train/reward"
)

// TestMain lets the test binary stand for a trainer that is killed while its reward command runs.
func TestMain(m *testing.M) {
	if script := os.Getenv("MEMPO_TEST_KILLED_TRAINER"); script != "" {
		g, err := New(Options{Command: []string{"sh", "-c", script}, Timeout: time.Minute, Workers: 1, Logger: zap.NewNop()})
		if err == nil {
			_, err = g.Grade(context.Background(), reward.Answered{})
		}
		fmt.Fprintln(os.Stderr, err)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	os.Exit(m.Run())
}

// shell makes a grader of a shell script.
func shell(t *testing.T, script string, timeout time.Duration, workers int) (*Grader, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	g, err := New(Options{Command: []string{"sh", "-c", script}, Timeout: timeout, Workers: workers, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g, logs
}

func grade(t *testing.T, g *Grader, id string) (float64, error) {
	t.Helper()
	return g.Grade(t.Context(), reward.Answered{ID: id})
}

// byID answers each line with the number that is its id.
const byID = `while read -r line; do id=${line#*'"id":"'}; echo "{\"score\": ${id%%'"'*}, \"why\": [1]}"; done`

func TestGrade(t *testing.T) {
	for _, workers := range []int{1, 3} {
		g, _ := shell(t, byID, time.Minute, workers)
		var running sync.WaitGroup
		for k := range 40 {
			running.Go(func() {
				if score, err := g.Grade(context.Background(), reward.Answered{ID: strconv.Itoa(k)}); err != nil || score != float64(k) {
					t.Errorf("answer %d: %v, %v", k, score, err)
				}
			})
		}
		running.Wait()
	}
}

func TestTheLineIsAsDocumented(t *testing.T) {
	path := filepath.Join(t.TempDir(), "line")
	g, _ := shell(t, `read -r line; printf '%s' "$line" > `+path+`; echo '{"score": 1}'`, time.Minute, 1)
	answer := "Lima & <b>"
	if _, err := g.Grade(t.Context(), reward.Answered{
		ID: "q", Question: "東京?", GoldenAnswers: []string{"a"}, Turns: []string{"<mem></mem>"}, Answer: &answer, EM: 1, F1: 0.5, FormatOK: true,
	}); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(path)
	if want := `{"id":"q","question":"東京?","golden_answers":["a"],"turns":["<mem></mem>"],"answer":"Lima & <b>","em":1,"f1":0.5,"format_ok":true}`; err != nil || string(line) != want {
		t.Errorf("%s, %v", line, err)
	}
}

// Every kind of failure is one of its answer alone: the next one is graded.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct{ bad, want string }{
		"no JSON":         {`echo garbage`, "want {\"score\": a number}"},
		"no score":        {`echo '{"points": 1}'`, "want {\"score\": a number}"},
		"null":            {`echo '{"score": null}'`, "want {\"score\": a number}"},
		"text":            {`echo '{"score": "1"}'`, "want {\"score\": a number}"},
		"not finite":      {`echo '{"score": NaN}'`, "want {\"score\": a number}"},
		"too large":       {`echo '{"score": 1e999}'`, "want {\"score\": a number}"},
		"an empty line":   {`echo`, "want {\"score\": a number}"},
		"death":           {`echo oh >&2; exit 3`, "before it answered"},
		"silence":         {`sleep 60 & wait`, "no answer within"},
		"output closed":   {`exec 1>&-; sleep 60`, "before it answered"},
		"a line too long": {`head -c 2000000 /dev/zero | tr '\0' x; sleep 60`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 20 * time.Second
			if name == "silence" || name == "a line too long" {
				timeout = 300 * time.Millisecond
			}
			g, _ := shell(t, `while read -r line; do case "$line" in *'"id":"bad"'*) `+c.bad+`;; *) echo '{"score": 2}';; esac; done`, timeout, 1)
			for range 2 {
				if score, err := grade(t, g, "bad"); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "reward command") {
					t.Errorf("%v, %v, want %q", score, err, c.want)
				}
				if score, err := grade(t, g, "good"); err != nil || score != 2 {
					t.Errorf("the next one: %v, %v", score, err)
				}
			}
		})
	}
}

// What a program writes without being asked is not taken for the next answer.
func TestUnaskedLines(t *testing.T) {
	g, _ := shell(t, `while read -r line; do echo '{"score": 1}'; echo '{"score": 666}'; done`, time.Minute, 1)
	for k := range 3 {
		if score, err := grade(t, g, "x"); err != nil || score != 1 {
			t.Errorf("%d: %v, %v", k, score, err)
		}
		time.Sleep(100 * time.Millisecond) // the second line comes behind the first
	}
}

func TestAProgramThatKeepsDying(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	g, _ := shell(t, `echo >> `+starts+`; exit 1`, time.Minute, 1)
	g.workers <- func() *worker { w := <-g.workers; w.deaths = maxDeaths - 2; return w }() // the waits before are long
	for range 5 {
		if _, err := grade(t, g, "x"); err == nil {
			t.Error("no error")
		}
	}
	if _, err := grade(t, g, "x"); err == nil || !strings.Contains(err.Error(), "10 times in a row") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(starts); err != nil || len(text) != 2 {
		t.Errorf("%d starts, %v", len(text), err)
	}
}

func TestNoSuchProgram(t *testing.T) {
	g, err := New(Options{Command: []string{"/no/such/program"}, Timeout: time.Minute, Workers: 1, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := grade(t, g, "x"); err == nil || !strings.Contains(err.Error(), "cannot be started") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

func TestComplaintsAreLogged(t *testing.T) {
	g, logs := shell(t, `echo "<careful>" >&2; `+byID, time.Minute, 1)
	if _, err := grade(t, g, "1"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); logs.FilterMessage("reward command").Len() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was logged")
		}
	}
	if line := logs.FilterMessage("reward command").All()[0].ContextMap()["stderr"]; line != "<careful>" {
		t.Errorf("logged %v", line)
	}
}

func TestGradeEndsWithItsContext(t *testing.T) {
	g, _ := shell(t, `sleep 60`, time.Minute, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := g.Grade(ctx, reward.Answered{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// pidsIn waits for a file with so many process ids.
func pidsIn(t *testing.T, path string, n int) []int {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if words := strings.Fields(string(text)); len(words) == n {
			var pids []int
			for _, word := range words {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
			return pids
		}
	}
	t.Fatal("the program did not start")
	return nil
}

// gone waits until there is no process of an id, or only the remains of one.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(status), ") Z ") {
			return
		}
	}
	t.Errorf("process %d lives on", pid)
}

// A program that heeds nothing, and what it has started, ends with the grader all the same.
func TestCloseEndsAStubbornProgram(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	g, _ := shell(t, `trap '' TERM; sleep 600 & echo $$ $! > `+pids+`; read -r line; echo '{"score": 1}'; while :; do sleep 1; done`, time.Minute, 1)
	if _, err := grade(t, g, "x"); err != nil {
		t.Fatal(err)
	}
	ids := pidsIn(t, pids, 2)
	started := time.Now()
	g.Close()
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	for _, pid := range ids {
		gone(t, pid)
	}
}

func TestCloseLetsAProgramFinish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "finished")
	g, _ := shell(t, byID+`; echo yes > `+path, time.Minute, 1)
	if _, err := grade(t, g, "1"); err != nil {
		t.Fatal(err)
	}
	g.Close()
	if text, err := os.ReadFile(path); err != nil || string(text) != "yes\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestTheProgramEndsWithAKilledTrainer(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	trainer := exec.Command(os.Args[0])
	trainer.Env = append(os.Environ(), `MEMPO_TEST_KILLED_TRAINER=echo $$ > `+pids+`; read -r line; echo '{"score": 1}'; while :; do sleep 1; done`)
	if err := trainer.Run(); err == nil {
		t.Fatal("the trainer was not killed")
	}
	gone(t, pidsIn(t, pids, 1)[0])
}

func FuzzParseScore(f *testing.F) {
	for _, seed := range []string{`{"score": 1}`, `{"score": null}`, `{"score": 1e999}`, "", "[]", `{"SCORE": -0.5}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		score, err := parseScore(line)
		if err == nil && score-score != 0 {
			t.Errorf("%q gives %v", line, score)
		}
	})
}
