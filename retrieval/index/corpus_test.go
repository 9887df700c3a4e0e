package index

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
)

func corpusFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadCorpus(t *testing.T) {
	long := strings.Repeat("long ", 1<<20)
	path := corpusFile(t, "\xef\xbb\xbf"+`{"id":"0","contents":"\"München\"\nsays 東京 <b>&</b>"}`+"\r\n\r\n \n"+
		`{"id":17,"title":"Lima","text":"is a city"}`+"\n"+
		`{"id":18,"title":"\"Peru\"","text":"is a country","url":"x"}`+"\n"+
		`{"id":"x","text":"no title"}`+"\n"+
		`{"id":"y","contents":"`+long+`"}`)
	got, err := LoadCorpus(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []retrieval.Passage{
		{ID: "0", Contents: "\"München\"\nsays 東京 <b>&</b>"},
		{ID: "17", Contents: "\"Lima\"\nis a city"},
		{ID: "18", Contents: "\"Peru\"\nis a country"},
		{ID: "x", Contents: "no title"},
		{ID: "y", Contents: long},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got[:4])
	}
}

func TestLoadCorpusRefuses(t *testing.T) {
	const good = `{"id":"0","contents":"c"}` + "\n"
	cases := map[string]struct{ content, want string }{
		"empty":           {"", "holds no passage, want one a line"},
		"blank":           {"\n\r\n", "holds no passage"},
		"broken line":     {good + "\n" + `{"id":"1","contents":`, "line 3: broken JSON"},
		"not an object":   {good + `["c"]`, "line 2: is a JSON array, want an object"},
		"null":            {good + `null`, `line 2: members none, want "contents", or "title" and "text"`},
		"no contents":     {good + `{"id":"1","body":"c"}`, `line 2: members "body", "id", want "contents", or "title" and "text"`},
		"contents number": {good + `{"id":"1","contents":3}`, "line 2: contents is a JSON number, want a string"},
		"no id":           {good + `{"contents":"c"}`, "line 2: no id"},
		"id null":         {good + `{"id":null,"contents":"c"}`, "line 2: no id"},
		"id a list":       {good + `{"id":[],"contents":"c"}`, "line 2: id is a list, want a string or a number"},
		"same id":         {good + "\n" + `{"id":0,"contents":"d"}`, `line 3: id "0" is already that of line 1`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := corpusFile(t, c.content)
			_, err := LoadCorpus(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := LoadCorpus(filepath.Join(t.TempDir(), "none.jsonl")); err == nil || !strings.Contains(err.Error(), "none.jsonl") {
		t.Errorf("a missing file: %v", err)
	}
}

// endless gives spaces for ever.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > 4*maxLine {
		return 0, fmt.Errorf("read far past the bound")
	}
	for k := range p {
		p[k] = ' '
	}
	return len(p), nil
}

func TestLineBound(t *testing.T) {
	_, err := readCorpus(io.MultiReader(strings.NewReader("\n"), &endless{}))
	if err == nil || !strings.Contains(err.Error(), "line 2: longer than 64 MiB") {
		t.Errorf("got %v", err)
	}
}

func FuzzCorpus(f *testing.F) {
	for _, seed := range []string{
		"", `{"id":"0","contents":"c"}` + "\r\n" + `{"id":1,"title":"t","text":"x"}`,
		"\xef\xbb\xbf{\"id\":1e3,\"contents\":\"\\ud800\"}", "null", `{"id":{},"contents":""}`, "{}{}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		passages, err := readCorpus(strings.NewReader(content))
		if (err == nil) == (len(passages) == 0) {
			t.Fatalf("%d passages and %v", len(passages), err)
		}
		seen := map[string]bool{}
		for _, p := range passages {
			if p.ID == "" || seen[p.ID] {
				t.Errorf("id %q", p.ID)
			}
			seen[p.ID] = true
		}
		if _, err := NewBM25(passages).Search(t.Context(), content, 3); err != nil {
			t.Error(err)
		}
	})
}
