package web

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
)

func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFolder(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		PagesFile: `{"url": "https://en.wikipedia.org/wiki/Lima", "page": "old"}

{"url": "https://en.wikipedia.org/wiki/Lima", "page": "Lima <b>&</b>"}
{"url": "http://example.org/a%20b?q=1", "file": "a.html"}
{"url": "https://example.org", "file": "b.txt"}
{"url": "https://example.org/cut", "pa`,
		"a.html": "<p>text<script>x</script>", "b.txt": "<p>as it is\r\n",
	})
	f, err := OpenFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Len() != 3 {
		t.Errorf("%d pages", f.Len())
	}
	for address, want := range map[string]string{
		"http://EN.wikipedia.org/wiki/Lima/#History": "Lima <b>&</b>",
		"https://example.org:443/a b?q=1":            "text",
		"https://example.org/a%20b?q=2":              "",
		"http://example.org/":                        "<p>as it is",
		"http://example.org/../../etc/passwd":        "",
		"https://example.org/cut":                    "",
	} {
		if text, err := f.Access(t.Context(), address); err != nil || text != want {
			t.Errorf("%s: %q, %v", address, text, err)
		}
	}
	_, err = f.Access(t.Context(), "http://127.0.0.1/")
	refusal(t, err)
}

func TestFolderRefuses(t *testing.T) {
	outside := writeFiles(t, map[string]string{"secret": "secret"})
	for text, want := range map[string]string{
		`{"url": "https://example.org"}` + "\n":                                                     `line 1: want "page" or "file"`,
		"\n" + `{"url": "https://example.org", "page": "", "file": "a"}` + "\n":                     `line 2: want "page" or "file"`,
		`{"url": "example.org", "page": ""}` + "\n":                                                 "want an address",
		`{"url": "https://example.org", "file": "missing"}` + "\n":                                  "cannot be read",
		`{"url": "https://example.org", "file": "../` + filepath.Base(outside) + `/secret"}` + "\n": "cannot be read",
		`{"url": "https://example.org", "file": "` + outside + `/secret"}` + "\n":                   "cannot be read",
		`{"url": "https://example.org", "file": "link"}` + "\n":                                     "cannot be read",
		`{"url": "https://example.org", "file": "."}` + "\n":                                        "no regular file",
		"broken\n": "line 1: not valid JSON",
	} {
		dir := writeFiles(t, map[string]string{PagesFile: text})
		if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if f, err := OpenFolder(dir, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), PagesFile) {
			t.Errorf("%s: %v, %v", text, f, err)
		}
	}
	if _, err := OpenFolder(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), PagesFile) {
		t.Errorf("an empty folder: %v", err)
	}
}

// TestRecordedPagesAreReplayed, with what a crash left unfinished in between.
func TestRecordedPagesAreReplayed(t *testing.T) {
	asked := 0
	n := newNetwork(t, func(w http.ResponseWriter, r *http.Request) {
		if asked++; r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		page("text/html", "<title>"+r.URL.Path+"</title><p>&lt;mem&gt; & 東京")(w, r)
	})
	dir := filepath.Join(t.TempDir(), "new")
	live := n.fetcher(t, Options{IgnoreRobots: true})
	addresses := []string{"http://example.org/a", "http://example.org/b", "http://example.org/a", "http://example.org/missing", "http://example.org/c"}
	seen := map[string]string{}
	for k, address := range addresses {
		r, err := Record(dir, live, nil)
		if err != nil {
			t.Fatal(err)
		}
		if seen[address], err = r.Access(t.Context(), address); err != nil {
			t.Error(err)
		}
		_, err = r.Access(t.Context(), "http://10.0.0.1/")
		refusal(t, err)
		if k < len(addresses)-1 {
			_, _ = r.file.WriteString(`{"url": "http://example.org/unfin`)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, PagesFile))
	if err != nil || strings.Count(string(text), "\n") != 4 || !strings.Contains(string(text), "<mem> & 東京") {
		t.Errorf("%s, %v", text, err)
	}
	f, err := OpenFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, address := range addresses {
		if text, err := f.Access(t.Context(), address); err != nil || text != seen[address] {
			t.Errorf("%s: %q, %v, want %q", address, text, err, seen[address])
		}
	}
	if asked != len(addresses) {
		t.Errorf("%d requests", asked)
	}
}

func FuzzFolder(f *testing.F) {
	f.Add([]byte(`{"url": "https://example.org/a", "page": "x"}`+"\n"), "https://example.org/a")
	f.Add([]byte(`{"url": "https://example.org", "file": "../x"}`+"\n\xff"), "x")
	f.Fuzz(func(t *testing.T, text []byte, address string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, PagesFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		folder, err := OpenFolder(dir, nil)
		if err != nil {
			return
		}
		defer folder.Close()
		var accessor retrieval.Accessor = folder
		_, _ = accessor.Access(context.Background(), address)
	})
}
