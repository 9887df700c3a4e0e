package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
)

// demonstrationLines are six demonstrations of searching for a letter and answering with another.
func demonstrationLines() []string {
	var lines []string
	for _, letter := range "abcdef" {
		lines = append(lines, fmt.Sprintf(`{"messages":[{"role":"system","content":"Q"},{"role":"user","content":"on %c"},`+
			`{"role":"assistant","content":"<mem></mem><think>t</think><search>%c</search>"},{"role":"user","content":"<information>\nr\n</information>"},`+
			`{"role":"assistant","prefix":"<mem>","content":"%c</mem><think>t</think><answer>x</answer>"}]}`, letter, letter, letter))
	}
	return lines
}

// tinySFT is a supervised start of four steps of three demonstrations each.
func tinySFT(t *testing.T, modelDir string) (path, runDir string) {
	t.Helper()
	dir := t.TempDir()
	runDir = filepath.Join(dir, "run")
	train := write(t, filepath.Join(dir, "train.jsonl"), demonstrationLines()...)
	eval := write(t, filepath.Join(dir, "eval.jsonl"), demonstrationLines()[:2]...)
	path = write(t, filepath.Join(dir, "sft.toml"),
		`[run]`, `dir = "`+runDir+`"`, `steps = 4`, `seed = 7`,
		`[model]`, `path = "`+modelDir+`"`, `device = "cpu"`, `threads = 1`,
		`[data]`, `train = "`+train+`"`, `eval = "`+eval+`"`,
		`[sft]`, `demonstrations_per_step = 3`, `eval_every = 2`,
		`[optimizer]`, `learning_rate = 5e-3`, `micro_batch_tokens = 256`,
		`[checkpoint]`, `every = 2`, `keep = 3`)
	return path, runDir
}

func sftRun(t *testing.T, path string, sets ...string) {
	t.Helper()
	if err := runSFT(t.Context(), path, sets, nil); err != nil {
		t.Fatal(err)
	}
}

func TestSupervisedStartLearnsAndLeavesItsFiles(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, runDir := tinySFT(t, dir)
	sftRun(t, path, "run.steps=40", "sft.eval_every=20", "optimizer.micro_batch_tokens=4096", "checkpoint.every=15")
	lines := metricLines(t, runDir)
	if len(lines) != 40 {
		t.Fatalf("%d lines of metrics, want 40", len(lines))
	}
	for k, line := range lines {
		if line["step"] != float64(k+1) || line["train/optimizer_steps"] != float64(k+1) {
			t.Errorf("line %d is of step %v, optimiser step %v", k+1, line["step"], line["train/optimizer_steps"])
		}
		if _, evaluated := line["eval/nll"]; evaluated != (k == 19 || k == 39) {
			t.Errorf("step %d: evaluated %v", k+1, evaluated)
		}
	}
	first, last := lines[0]["loss/nll"].(float64), lines[39]["loss/nll"].(float64)
	if held := lines[39]["eval/nll"].(float64); last > first/5 || held > first/5 {
		t.Errorf("the loss goes from %v to %v, that of held-out demonstrations to %v", first, last, held)
	}
	if found := checkpoints(t, runDir); !slices.Equal(found, []int64{15, 30, 40}) {
		t.Errorf("checkpoints of steps %v", found)
	}
	compareModelFolders(t, dir, runDir, "step_000040")
}

// compareModelFolders checks that RUNDIR/model is the model of a checkpoint and beside its weights
// the source's files.
func compareModelFolders(t *testing.T, source, runDir, step string) {
	t.Helper()
	wanted, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	found, err := os.ReadDir(filepath.Join(runDir, "model"))
	if err != nil {
		t.Fatal(err)
	}
	wanted = slices.DeleteFunc(wanted, func(entry os.DirEntry) bool { return entry.Name() == "complete" }) // marks a download
	if len(found) != len(wanted) {
		t.Errorf("the model folder holds %v, the source %v", found, wanted)
	}
	for _, entry := range wanted {
		from := filepath.Join(source, entry.Name())
		if entry.Name() == "model.safetensors" {
			from = filepath.Join(runDir, "checkpoints", step, entry.Name())
		}
		sameFile(t, from, filepath.Join(runDir, "model", entry.Name()))
	}
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, errX := os.ReadFile(a)
	y, errY := os.ReadFile(b)
	if errX != nil || errY != nil || !bytes.Equal(x, y) {
		t.Errorf("%s differs from %s: %v, %v", b, a, errX, errY)
	}
}

// Stopping and going on, twice, is bit for bit the same as never stopping; and so is a second run.
func TestSupervisedStartResumesBitForBit(t *testing.T) {
	dir := tinyFolder(t, "llama-tiny")
	straightPath, straight := tinySFT(t, dir)
	sftRun(t, straightPath, "run.steps=5", "optimizer.schedule=constant")
	brokenPath, broken := tinySFT(t, dir)
	for _, steps := range []string{"1", "3", "5", "5"} {
		sftRun(t, brokenPath, "run.steps="+steps, "optimizer.schedule=constant")
	}
	againPath, again := tinySFT(t, dir)
	sftRun(t, againPath, "run.steps=5", "optimizer.schedule=constant")
	for _, other := range []string{broken, again} {
		for _, name := range []string{
			"checkpoints/step_000005/model.safetensors", "checkpoints/step_000005/trainer_state/master.safetensors",
			"checkpoints/step_000005/trainer_state/exp_avg_sq.safetensors", "model/model.safetensors",
		} {
			sameFile(t, filepath.Join(straight, name), filepath.Join(other, name))
		}
	}
	everyStepOnce(t, broken, 5)
	a, b, c := metricLines(t, straight), metricLines(t, broken), metricLines(t, again)
	for k := range a {
		for name, value := range a[k] {
			if c[k][name] != value || b[k][name] != value {
				t.Errorf("step %d: %s is %v, resumed %v, again %v", k+1, name, value, b[k][name], c[k][name])
			}
		}
	}
}

// The order is a matter of the seed, and of the files alone without shuffling.
func TestOrderOfDemonstrations(t *testing.T) {
	dir := tinyFolder(t, "llama-tiny")
	order := func(sets ...string) string {
		path, runDir := tinySFT(t, dir)
		sftRun(t, path, sets...)
		log, err := os.ReadFile(filepath.Join(runDir, "log.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for line := range bytes.Lines(log) {
			var event struct {
				Msg            string `json:"msg"`
				Demonstrations []int  `json:"demonstrations"`
			}
			if err := json.Unmarshal(line, &event); err != nil {
				t.Fatal(err)
			}
			if event.Msg == "step begins" {
				all = append(all, fmt.Sprint(event.Demonstrations))
			}
		}
		return strings.Join(all, " ")
	}
	if got, want := order("data.shuffle=false"), "[0 1 2] [3 4 5] [0 1 2] [3 4 5]"; got != want {
		t.Errorf("without shuffling %s, want %s", got, want)
	}
	first := order("run.seed=1")
	if first == order("run.seed=2") || first != order("run.seed=1") {
		t.Error("the order does not follow the seed")
	}
}

func TestSupervisedStartsThatAreRefused(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, runDir := tinySFT(t, dir)
	sftRun(t, path, "run.steps=1")
	saved := filepath.Join(runDir, "checkpoints", "step_000001")
	other, retokenized := tinyFolder(t, "llama-tiny"), tinyFolder(t, "qwen2-tiny")
	swap("tokenizer.json", "<search", "<answer")(t, retokenized)
	folder := t.TempDir()
	bad := write(t, filepath.Join(folder, "bad.jsonl"), demonstrationLines()[0], `{"messages":[{"role":"user","content":"q"}]}`)
	behind := write(t, filepath.Join(folder, "behind.jsonl"), `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"<answer>a</answer> b"}]}`)
	fewer := write(t, filepath.Join(folder, "fewer.jsonl"), demonstrationLines()[1:]...)
	for _, test := range []struct {
		set   string
		named []string
	}{
		{"model.path=" + other, []string{saved, dir, other}},
		{"model.path=" + retokenized, []string{saved, "tokenizer"}},
		{"data.train=" + fewer, []string{saved, "training data"}},
		{"run.resume=never", []string{runDir, "run.resume"}},
		{"data.train=" + bad, []string{bad, "line 2", "the last message has the role"}},
		{"data.eval=" + bad, []string{bad, "line 2"}},
		{"data.train=" + behind, []string{behind, "line 1", "turn 1 of the assistant", "stands behind its action"}},
		{"data.train=" + filepath.Join(folder, "missing"), []string{"missing"}},
		{"data.max_tokens=20", []string{"no demonstration is left", "6 of 6", "20 tokens (data.max_tokens)", "train.jsonl: line 1"}},
		{"model.path=" + folder, []string{folder}},
		{"model.path=" + filepath.Join(runDir, "model"), []string{"model.path is " + runDir, "written over it", "another run.dir"}},
		{"sft.format=html", []string{"sft.format", "raw"}},
	} {
		refused(t, runSFT(t.Context(), path, []string{test.set}, nil), fault.CodeUsage, test.named...)
	}
	if lines := metricLines(t, runDir); len(lines) != 1 {
		t.Errorf("%d lines of metrics are left of 1", len(lines))
	}
}

// Over-long demonstrations are left out, also those of the evaluation.
func TestOverLongDemonstrationsAreDropped(t *testing.T) {
	path, runDir := tinySFT(t, tinyFolder(t, "qwen2-tiny"))
	long := write(t, filepath.Join(t.TempDir(), "long.jsonl"),
		strings.Replace(demonstrationLines()[0], "on a", strings.Repeat("long ", 100), 1), demonstrationLines()[1])
	sets := []string{"data.train=" + long, "data.eval=" + long, "data.max_tokens=300", "run.steps=2"}
	refused(t, runSFT(t.Context(), path, append(sets, "data.over_length=error"), nil), fault.CodeUsage,
		"1 of 2 demonstrations are longer than 300 tokens (data.max_tokens): "+long+": line 1;", `data.over_length = "drop"`)
	sftRun(t, path, sets...)
	lines := metricLines(t, runDir)
	// A step takes the one demonstration three times, and may compute what begins alike once.
	if step, one := lines[0]["tokens/update"].(float64), lines[1]["tokens/eval"].(float64); one > 300 || step < one || step > 3*one {
		t.Errorf("%v tokens processed in a step and %v in the evaluation", step, one)
	}
}

func TestSignalsEndASupervisedStart(t *testing.T) {
	for name, test := range map[string]struct {
		signal os.Signal
		code   int
	}{"interrupted": {os.Interrupt, 0}, "terminated": {syscall.SIGTERM, codeTerminated}, "killed": {syscall.SIGKILL, -1}} {
		path, runDir := tinySFT(t, tinyFolder(t, "qwen2-tiny"))
		sets := []string{"run.steps=1000", "checkpoint.every=5", "sft.eval_every=0", "optimizer.schedule=constant"}
		r := startCommand(t, "sft", path, sets...)
		if !r.until("checkpoint") {
			t.Fatalf("%s: %q", name, r.lines)
		}
		r.signal(t, test.signal)
		if code, _ := r.end(); code != test.code {
			t.Errorf("%s: exit code %d, want %d: %q", name, code, test.code, r.lines)
		}
		found := checkpoints(t, runDir)
		newest := int(found[len(found)-1])
		if done := len(metricLines(t, runDir)); name == "interrupted" && newest != done {
			t.Errorf("%s: checkpoint of step %d, metrics of %d", name, newest, done)
		}
		if _, err := os.Stat(filepath.Join(runDir, "model")); err == nil {
			t.Errorf("%s: a model of a run that is not done", name)
		}
		sftRun(t, path, append(sets, fmt.Sprintf("run.steps=%d", newest+2))...)
		everyStepOnce(t, runDir, newest+2)
	}
}

// A run that is stopped and goes on tells from where, and what has changed.
func TestResumedSupervisedStartTellsWhatChanged(t *testing.T) {
	path, _ := tinySFT(t, tinyFolder(t, "qwen2-tiny"))
	sftRun(t, path, "run.steps=2")
	r := startCommand(t, "sft", path, "run.steps=3", "optimizer.learning_rate=1e-4")
	if code, _ := r.end(); code != 0 {
		t.Fatalf("exit code %d: %q", code, r.lines)
	}
	holds(t, strings.Join(r.lines, "\n"), "going on after step 2", "changed since: run.steps: 2 → 3", "changed since: optimizer.learning_rate: 0.005 → 0.0001", "step 3/3", "done: the model is")
}

func TestCheckOfASupervisedStart(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, runDir := tinySFT(t, dir)
	before := tree(t, filepath.Dir(path))
	text, err := check(path)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, text, "== settings ==", "demonstrations_per_step = 3", "training: 6 demonstrations", "held out: 2 demonstrations", "4 steps of 3 demonstrations: 2.0 passes",
		"⟦<mem></mem><think>t</think><search>a</search>⟧<|im_end|>", "<information>\nr\n</information>", "<mem>⟦a</mem><think>t</think><answer>x</answer>⟧",
		"115264 parameters", "a new run of 4 steps", "a checkpoint:", "nothing stands in the way")
	if after := tree(t, filepath.Dir(path)); after != before {
		t.Errorf("check changed files: %s, before %s", after, before)
	}
	sftRun(t, path, "run.steps=2")
	text, err = check(path)
	holds(t, text, "goes on after step 2 of 4 from "+filepath.Join(runDir, "checkpoints"), "changed since: run.steps: 2 → 4")
	finds(t, err, 0)
	text, err = check(path, "data.max_tokens=20", "model.device=cuda:77")
	finds(t, err, fault.CodeUsage, "no demonstration is left", "cuda:77")
	holds(t, text, "6 of 6 demonstrations are longer than 20 tokens", "== verdict ==", "no demonstration is left")
}

// A model that learned a text writes it: the folder of a supervised start generates with the same
// program.
func TestModelOfASupervisedStartWritesWhatItLearned(t *testing.T) {
	path, runDir := tinySFT(t, tinyFolder(t, "qwen2-tiny"))
	sftRun(t, path, "run.steps=60", "sft.eval_every=0", "optimizer.schedule=constant", "sft.demonstrations_per_step=6")
	m, err := device.Load(filepath.Join(runDir, "model"), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	half, err := loadTextHalf(filepath.Join(runDir, "model"))
	if err != nil {
		t.Fatal(err)
	}
	formats, err := conversationFormats(filepath.Join(runDir, "model"), half.tokenizer, "sft.format", "chat")
	if err != nil {
		t.Fatal(err)
	}
	format, err := formats("Q")
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := format.Prompt("on c")
	if err != nil {
		t.Fatal(err)
	}
	const want = "<mem></mem><think>t</think><search>c</search>"
	if got := half.tokenizer.Decode(greedy(t, m, prompt, len(half.tokenizer.EncodeTrusted(want)))); got != want {
		t.Errorf("it writes %q, learned was %q", got, want)
	}
}

// greedy continues a prompt by n tokens.
func greedy(t *testing.T, m *engine.Model, prompt []int32, n int) (ids []int32) {
	t.Helper()
	session, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	row, err := session.Open()
	if err != nil {
		t.Fatal(err)
	}
	for next := prompt; len(ids) < n; next = ids[len(ids)-1:] {
		sampled, err := session.Step([]model.RowInput{{Row: row, IDs: next, Sample: true}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, sampled[0].ID)
	}
	return ids
}

// The end of the context drops the step under way.
func TestCancelledSupervisedStart(t *testing.T) {
	path, _ := tinySFT(t, tinyFolder(t, "qwen2-tiny"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runSFT(ctx, path, nil, nil); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("got %v", err)
	}
}
