package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
)

const tinyBERT = "testdata/golden/models/bert-tiny"

// denseIndex is an index of the corpus of a run by words and by a tiny encoder, with a graph where
// the program can make one.
func denseIndex(t *testing.T, runPath string) (dir, path string) {
	t.Helper()
	c, err := config.Load(runPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "index")
	path = write(t, filepath.Join(t.TempDir(), "index.toml"), `[index]`, `dir = "`+dir+`"`, `corpus = "`+c.Tools.Search.Corpus+`"`,
		`methods = ["bm25", "dense"]`, `[encoder]`, `path = "`+tinyBERT+`"`, `device = "cpu"`, `threads = 1`, `query_prefix = "q: "`,
		`[graph]`, fmt.Sprint("build = ", engine.GraphAvailable()))
	p := &program{out: &output{to: &bytes.Buffer{}}, errs: &bytes.Buffer{}}
	if err := p.makeIndex(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// Dense, approximate and hybrid search of a run are those of a service over the same index.
func TestARunAndAServiceFindTheSame(t *testing.T) {
	runPath, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	dir, _ := denseIndex(t, runPath)
	ways := [][]string{{"method=dense"}, {"method=hybrid"}, {"method=bm25"}}
	if engine.GraphAvailable() {
		ways = append(ways, []string{"method=dense", "approximate=true"})
	}
	for _, way := range ways {
		sets := []string{"tools.search.backend=index", "tools.search.index=" + dir}
		serving := []string{"encoder.threads=1", "encoder.device=cpu"}
		for _, set := range way {
			sets, serving = append(sets, "tools.search."+set), append(serving, "retrieve."+set)
		}
		address := freeAddress(t)
		file := write(t, filepath.Join(t.TempDir(), "retrieve.toml"), `[retrieve]`, `index = "`+dir+`"`, `listen = "`+address+`"`)
		r := startCommand(t, "retrieve", file, serving...)
		if !r.until("listening on") {
			t.Fatalf("%v: the service does not begin: %q", way, r.lines)
		}
		c, err := config.Load(runPath, sets)
		if err != nil {
			t.Fatal(err)
		}
		tools, err := loadTools(c, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{"a", "b z", "", "東京 <mem>"} {
			found, err := tools.Search.Search(t.Context(), query, 2)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, p := range found {
				ids = append(ids, p.ID)
			}
			if served := servedIDs(t, address, query); !slices.Equal(ids, served) || len(ids) == 0 && !slices.Contains(way, "method=bm25") {
				t.Errorf("%v, %q: the run finds %v, the service %v", way, query, ids, served)
			}
		}
		tools.close()
	}
}

// servedIDs asks a service for two passages.
func servedIDs(t *testing.T, address, query string) (ids []string) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"queries": []string{query}, "topk": 2})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+address+"/retrieve", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	var reply struct{ Result [][]struct{ ID string } }
	if err := json.Unmarshal(text, &reply); err != nil || len(reply.Result) != 1 {
		t.Fatalf("%s: %v", text, err)
	}
	for _, document := range reply.Result[0] {
		ids = append(ids, document.ID)
	}
	return ids
}

func TestAnIndexKeepsToItsEncoder(t *testing.T) {
	runPath, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	dir, path := denseIndex(t, runPath)
	p := &program{out: &output{to: &bytes.Buffer{}}, errs: &bytes.Buffer{}}
	refused(t, p.makeIndex(t.Context(), path, []string{"encoder.pooling=cls"}), fault.CodeUsage, `pooling "mean", now it is "cls"`)
	refused(t, p.makeIndex(t.Context(), path, []string{"encoder.path=" + tinyBERT + "-prefixed"}), fault.CodeUsage, dir)
	refused(t, p.makeIndex(t.Context(), path, []string{"encoder.path=none"}), fault.CodeUsage, "want a HuggingFace folder")
	serve := write(t, filepath.Join(t.TempDir(), "retrieve.toml"), `[retrieve]`, `index = "`+dir+`"`, `listen = "127.0.0.1:0"`)
	err := runRetrieve(t.Context(), serve, []string{"encoder.path=" + tinyBERT + "-prefixed", "encoder.threads=1"}, &bytes.Buffer{})
	refused(t, err, fault.CodeUsage, "the encoder does not fit the index")
	err = runRetrieve(t.Context(), serve, []string{"retrieve.backend=qdrant", "encoder.threads=1", "qdrant.collection=c", "qdrant.address=" + freeAddress(t)}, &bytes.Buffer{})
	refused(t, err, fault.CodeEnvironment, `collection "c" of Qdrant`)
}

func TestE5IsKnownByItsName(t *testing.T) {
	for name, want := range map[string]bool{
		"e5-base-v2": true, "intfloat_e5-base": true, "multilingual-e5-large": true, "E5": true, "e5base": false, "minilm-e55": false, "bge-base": false,
	} {
		dir := filepath.Join(t.TempDir(), name)
		if got := isE5(dir); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), `{"_name_or_path": "intfloat/e5-base-v2"}`)
	if !isE5(dir) || prefix("auto", "query: ", true) != "query: " || prefix("", "query: ", true) != "" || prefix("auto", "query: ", false) != "" {
		t.Error("prefixes")
	}
}
