package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// indexOf builds an index of the corpus of a run by words; it returns its folder.
func indexOf(t *testing.T, runPath string, sets ...string) string {
	t.Helper()
	c, err := config.Load(runPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "index")
	path := write(t, filepath.Join(t.TempDir(), "index.toml"), `[index]`, `dir = "`+dir+`"`, `corpus = "`+c.Tools.Search.Corpus+`"`)
	var out bytes.Buffer
	p := &program{out: &output{to: &out}, errs: &bytes.Buffer{}}
	if err := p.makeIndex(t.Context(), path, sets); err != nil {
		t.Fatal(err)
	}
	if out.String() != dir+"\n" {
		t.Errorf("the command printed %q", out.String())
	}
	return dir
}

// A run over an index of its corpus is the run over the corpus in memory, token for token.
func TestARunSearchesAnIndex(t *testing.T) {
	folder := taughtFolder(t, "qwen2-tiny")
	path, runDir := tinyConfig(t, folder)
	train(t, path)
	over, overDir := tinyConfig(t, folder)
	train(t, over, "tools.search.backend=index", "tools.search.index="+indexOf(t, over))
	for step := 1; step <= 3; step++ {
		want, got := records(t, runDir, step), records(t, overDir, step)
		if len(got) != len(want) {
			t.Fatalf("step %d: %d trajectories, want %d", step, len(got), len(want))
		}
		for k := range want {
			if fmt.Sprint(got[k].ResponseIDs) != fmt.Sprint(want[k].ResponseIDs) {
				t.Errorf("step %d, trajectory %d differs", step, k)
			}
		}
	}
}

func TestCheckOfIndexAndService(t *testing.T) {
	runPath, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	c, err := config.Load(runPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "index")
	path := write(t, filepath.Join(t.TempDir(), "index.toml"), `[index]`, `dir = "`+dir+`"`, `corpus = "`+c.Tools.Search.Corpus+`"`)
	shows := func(path string, sets []string, texts ...string) {
		t.Helper()
		var out strings.Builder
		err := runCheck(context.Background(), path, sets, &out)
		for _, text := range texts {
			if !strings.Contains(out.String(), text) {
				t.Errorf("check does not show %q (%v):\n%s", text, err, out.String())
			}
		}
	}
	shows(path, nil, "3 passages", `1: "\"a\"\nx"`, "is made", "nothing stands in the way")
	shows(path, []string{"index.corpus=none.jsonl"}, "none.jsonl: no such file")
	p := &program{out: &output{to: &bytes.Buffer{}}, errs: &bytes.Buffer{}}
	if err := p.makeIndex(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	shows(path, nil, "holds an index of 3 passages")
	other := write(t, filepath.Join(t.TempDir(), "other.jsonl"), `{"id":"1","contents":"x"}`)
	_, err = check(path, "index.corpus="+other)
	finds(t, err, fault.CodeUsage, dir+" holds an index, but it was made from another corpus")
	_, err = check(path, "index.corpus="+write(t, filepath.Join(t.TempDir(), "blank.jsonl"), ""))
	finds(t, err, fault.CodeUsage, "blank.jsonl: holds no passage")
	serve := write(t, filepath.Join(t.TempDir(), "serve.toml"), `[retrieve]`, `index = "`+dir+`"`, `listen = "127.0.0.1:0"`)
	shows(serve, nil, "3 passages, by bm25", "is free", "nothing stands in the way")
	shows(serve, []string{"retrieve.approximate=true"}, `approximate is true, but it is searched by "bm25"`)
	shows(serve, []string{"access.live=true", "access.per_second=0.5"}, "from the web, every public host, 0.5 requests a second to each")
	shows(serve, []string{"retrieve.method=dense"}, `method "dense" needs vectors`)
	if err := os.Remove(filepath.Join(dir, "titles.bin")); err != nil {
		t.Fatal(err)
	}
	err = runRetrieve(t.Context(), serve, nil, &bytes.Buffer{})
	refused(t, err, fault.CodeUsage, "titles.bin")
}

// A folder that no index can be put in is named before anything else is looked at.
func TestAnIndexNeedsAFolderOfItsOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	path := write(t, filepath.Join(t.TempDir(), "index.toml"), `[index]`, `dir = "."`, `corpus = "none.jsonl"`)
	p := &program{out: &output{to: &bytes.Buffer{}}, errs: &bytes.Buffer{}}
	refused(t, p.makeIndex(t.Context(), path, nil), fault.CodeUsage, "index.dir: the folder of the index cannot be \".\"")
}

// The hash of an encoder holds its weights, whatever the name of its folder.
func TestAnEncoderIsKnownByItsWeights(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v[1]*")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := encoderHash(dir); err == nil || !strings.Contains(err.Error(), "want a HuggingFace folder") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"config.json", "tokenizer.json", "a.safetensors"} {
		write(t, filepath.Join(dir, name), name)
	}
	before, err := encoderHash(dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.safetensors"), "other weights")
	if after, err := encoderHash(dir); err != nil || after == before {
		t.Errorf("other weights: %v, the same hash: %v", err, after == before)
	}
}
