package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// device is the one runtime of the package's tests, common a folder for what several of them read.
var (
	device *engine.Runtime
	common string
)

func TestMain(m *testing.M) {
	var err error
	if device, err = engine.Start("cpu", 1); err == nil {
		common, err = os.MkdirTemp("", "mempo-train-tests")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	code := m.Run()
	_ = os.RemoveAll(common)
	if handles := engine.LiveHandles(); code == 0 && handles != 0 {
		fmt.Fprintf(os.Stderr, "%d models or sessions were not closed\n", handles)
		code = 1
	}
	os.Exit(code)
}

var tags = []string{"<mem>", "</mem>", "<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<information>", "</information>"}

// tinyFolder makes a model folder of random weights with a small tokenizer of its own.
func tinyFolder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata/golden/models", name))); err != nil {
		t.Fatal(err)
	}
	if err := tokenizertest.Write(dir, tags...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, path string, lines ...string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tinyConfig is a run over three questions and a corpus of three passages.
func tinyConfig(t *testing.T, modelDir string) (path, runDir string) {
	t.Helper()
	dir := t.TempDir()
	runDir = filepath.Join(dir, "run")
	questions := write(t, filepath.Join(dir, "questions.jsonl"),
		`{"id":"a","question":"on a","golden_answers":["x"]}`,
		`{"id":"b","question":"on b","golden_answers":["y"]}`,
		`{"id":"c","question":"on c","golden_answers":["x","z"]}`)
	corpus := write(t, filepath.Join(dir, "corpus.jsonl"),
		`{"id":"1","contents":"\"a\"\nx"}`, `{"id":"2","contents":"\"b\"\ny"}`, `{"id":"3","contents":"\"q\"\nz z"}`)
	path = write(t, filepath.Join(dir, "run.toml"),
		`[run]`, `dir = "`+runDir+`"`, `steps = 3`, `seed = 7`,
		`[model]`, `path = "`+modelDir+`"`, `device = "cpu"`, `threads = 1`,
		`[data]`, `train = "`+questions+`"`,
		`[rollout]`, `system_prompt = "Q"`, `questions_per_step = 2`, `group_size = 4`, `max_turns = 3`, `max_turn_tokens = 24`,
		`[tools.search]`, `corpus = "`+corpus+`"`, `topk = 1`,
		`[optimizer]`, `learning_rate = 1e-3`, `micro_batch_tokens = 256`,
		`[checkpoint]`, `every = 1`, `keep = 3`)
	return path, runDir
}

// demonstration is a prompt's ids and, behind them, model text ("m:") and outside text ("o:").
type demonstration struct {
	ids       []int32
	positions []int32
}

// teach raises the log-probability of the demonstrations' model tokens, so that a tiny random model
// learns to act in turns.
func teach(t *testing.T, m *engine.Model, demonstrations []demonstration, steps int, rate float64) {
	t.Helper()
	total := 0
	for _, d := range demonstrations {
		total += len(d.positions)
	}
	var rows []model.TrainRow
	for _, d := range demonstrations {
		weights := slices.Repeat([]float32{1 / float32(total)}, len(d.positions))
		rows = append(rows, model.TrainRow{IDs: d.ids, Positions: d.positions, Weights: weights})
	}
	for range steps {
		if _, err := m.ForwardBackward(rows, model.LossOptions{Kind: model.NegativeLogLikelihood, Temperature: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Update(rate, model.OptimizerOptions{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, ClipNorm: 1}); err != nil {
			t.Fatal(err)
		}
	}
}
