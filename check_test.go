package main

import (
	"bytes"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// check runs check and returns what it prints and what it finds.
func check(path string, sets ...string) (string, error) {
	var out bytes.Buffer
	err := runCheck(context.Background(), path, sets, &out)
	return out.String(), err
}

// holds reports every wanted text that is missing, in their order.
func holds(t *testing.T, text string, wanted ...string) {
	t.Helper()
	rest := text
	for _, want := range wanted {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Errorf("%q is missing, or not in its place, in:\n%s", want, text)
			continue
		}
		rest = after
	}
}

func finds(t *testing.T, err error, code int, wanted ...string) {
	t.Helper()
	if fault.Code(err) != code {
		t.Errorf("exit code %d, want %d: %v", fault.Code(err), code, err)
	}
	for _, want := range wanted {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}

// tree lists the files below a folder with their sizes and times.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var list strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		list.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list.String()
}

func TestCheckPrintsThePlanAndWritesNothing(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	before := tree(t, filepath.Dir(runDir))
	text, err := check(path, "rollout.prefill=<mem>")
	if err != nil {
		t.Fatal(err)
	}
	holds(t, text,
		"== settings ==", "questions_per_step = 2", `prefill = "<mem>"`, "learning_rate = 0.001",
		"== step ==", "2 questions × 4 trajectories: 8 trajectories, 1 optimiser step of 8", "outcome EM", "KL", "0.001",
		"== system prompt ==", "\nQ\n", "== texts ==", "corrective: ", "tool_error: ",
		"== data ==", "training: 3 questions", "a: on a → x", "c: on c → x | z", "3 steps draw 6 questions: 2.0 passes",
		"== first prompt, ", "<|im_start|>user\non a<|im_end|>\n<|im_start|>assistant\n<mem>",
		"== tools ==", "search: 3 passages of ", "== model ==", "Qwen2ForCausalLM", "parameters", "float32 on cpu",
		"== memory", "weights", "moments", "reference", "keys and values of 8 rows", "gradients", "activations", "logits", "peak",
		"== run folder "+runDir, "a new run of 3 steps", "a checkpoint: ", "free disk space",
		"== verdict ==", "nothing stands in the way",
	)
	if after := tree(t, filepath.Dir(runDir)); after != before {
		t.Errorf("files changed from\n%s to\n%s", before, after)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	file := write(t, filepath.Join(t.TempDir(), "file"), "")
	broken := write(t, filepath.Join(t.TempDir(), "q.jsonl"), `{"id":"a","question":"on a","golden_answers":["x"]}`, `{"id":`)
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nobody := "http://127.0.0.1:1"
	http := []string{"tools.search.backend=http", "tools.search.url=" + nobody, "tools.search.tries=1"}
	cases := []struct {
		name  string
		sets  []string
		code  int
		named []string
		shown []string // is printed all the same
	}{
		{"unknown key", []string{"rollout.groups=3"}, 2, []string{"rollout.groups"}, nil},
		{"no index", []string{"tools.search.backend=index", "tools.search.index=" + empty}, 2, []string{empty}, []string{"a new run"}},
		{"no model", []string{"model.path=" + filepath.Dir(file)}, 2, []string{"config.json"}, []string{"search: 3 passages"}},
		{"broken line", []string{"data.train=" + broken}, 2, []string{broken, "line 2"}, []string{"search: 3 passages", "Qwen2ForCausalLM"}},
		{"empty corpus", []string{"tools.search.corpus=" + empty}, 2, []string{empty}, []string{"training: 3 questions"}},
		{
			"over-long prompts",
			[]string{"data.max_prompt_tokens=2", "data.over_length=error"},
			2,
			[]string{"3 of 3 prompts are longer than 2 tokens", "a, b, c"},
			[]string{"Qwen2ForCausalLM"},
		},
		{"nobody listens", http, 3, []string{"search", nobody}, []string{"not reachable", "== memory", "a new run of 3 steps"}},
		{
			"no pages",
			[]string{`tools.enabled=["search","access"]`, "tools.access.url=" + nobody},
			3,
			[]string{"access", nobody},
			[]string{"search: 3 passages", "not reachable"},
		},
		{"usage decides", append(http, "data.train="+broken), 2, []string{broken, nobody}, nil},
		{"no folder", []string{"run.dir=" + filepath.Join(file, "run")}, 3, []string{"cannot be written", "not a directory"}, nil},
		{"no device", []string{"model.device=cuda:99"}, 3, []string{"cuda:99"}, []string{"a new run"}},
		{"disk too small", []string{"checkpoint.keep=1000000000"}, 3, []string{"free disk space", "checkpoint.keep is 1000000000"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path, _ := tinyConfig(t, dir)
			text, err := check(path, c.sets...)
			finds(t, err, c.code, c.named...)
			for _, want := range c.shown {
				holds(t, text, want)
			}
		})
	}
}

func TestCheckAsksTheSearchService(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"result":[[{"document":{"id":"1","contents":"\"a\"\nb"},"score":1}]]}`))
	}))
	defer service.Close()
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	text, err := check(path, "tools.search.backend=http", "tools.search.url="+service.URL, `tools.enabled=["search","access"]`, "tools.access.url="+service.URL)
	if err != nil {
		t.Error(err)
	}
	holds(t, text, "search: service at "+service.URL+", reachable", "access: service at "+service.URL+", reachable")
}

func TestCheckTellsWhereARunGoesOn(t *testing.T) {
	dir := tinyFolder(t, "llama-tiny")
	path, runDir := tinyConfig(t, dir)
	train(t, path, "run.steps=1")
	text, err := check(path, "optimizer.learning_rate=0.5")
	if err != nil {
		t.Error(err)
	}
	holds(t, text, "goes on after step 1 of 3", "changed since: run.steps: 1 → 3", "changed since: optimizer.learning_rate: 0.001 → 0.5", "1 are there")
	text, err = check(path, "run.steps=1")
	if err != nil {
		t.Error(err)
	}
	holds(t, text, "all steps are trained already")

	_, err = check(path, "run.resume=never")
	finds(t, err, 2, "holds a run already")
	other := write(t, filepath.Join(t.TempDir(), "q.jsonl"), `{"id":"z","question":"on z","golden_answers":["x"]}`)
	_, err = check(path, "data.train="+other)
	finds(t, err, 2, "training data")
	_, err = check(path, "model.path="+tinyFolder(t, "qwen3-tiny"))
	finds(t, err, 2, "belongs to model "+dir)

	folder, err := rundir.Open(runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	_, err = check(path)
	finds(t, err, 2, "in use by process")
}
