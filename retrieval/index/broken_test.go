package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
)

// listGraph is a graph that keeps its rows in a list, in the format of its file: the numbers.
type listGraph struct {
	dimensions int
	rows       []float32
}

func (g *listGraph) Add(vectors []float32) error {
	g.rows = append(g.rows, vectors...)
	return nil
}

func (g *listGraph) Save(path string) error {
	var data []byte
	data, err := binary.Append(data, binary.LittleEndian, g.rows)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

func (g *listGraph) Search(queries [][]float32, ef, k int) ([][]int32, [][]float32, error) {
	if ef < k {
		return nil, nil, fmt.Errorf("ef %d is less than k %d", ef, k)
	}
	return PlainExact{}.TopK(queries, g.rows, g.dimensions, k)
}

func (g *listGraph) Close() error { return nil }

var listGraphs = GraphLibrary{
	New: func(o GraphOptions) (Graph, error) { return &listGraph{dimensions: o.Dimensions}, nil },
	Open: func(path string, dimensions int) (Graph, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		g := &listGraph{dimensions: dimensions, rows: make([]float32, len(data)/4)}
		_, err = binary.Decode(data, binary.LittleEndian, g.rows)
		return g, err
	},
}

// wholeIndex is an index with everything.
func wholeIndex(t testing.TB, n int) (dir string, encoder *bagOfWords) {
	all := madeUp(rand.New(rand.NewPCG(11, 12)), n)
	o, encoder := buildOptions(t, all)
	o.Graph, o.Graphs = &GraphOptions{M: 4, EFConstruction: 8, Seed: 1}, listGraphs
	built(t, o)
	return o.Dir, encoder
}

func TestTheGraphIsSearched(t *testing.T) {
	dir, encoder := wholeIndex(t, 300)
	exact := opened(t, dir, Options{Method: MethodDense, Encoder: encoder})
	approximate := opened(t, dir, Options{Method: MethodDense, Encoder: encoder, Approximate: true, Graphs: listGraphs, EF: 4})
	queries := []string{"lima river", "peru"}
	want, err := exact.SearchBatch(t.Context(), queries, 8)
	if err != nil {
		t.Fatal(err)
	}
	got, err := approximate.SearchBatch(t.Context(), queries, 8)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v; %v", got, want, err)
	}
	if _, err := Open(dir, Options{Method: MethodDense, Approximate: true}); err == nil || !strings.Contains(err.Error(), "without approximate search") {
		t.Errorf("without a library: %v", err)
	}
}

// searchAll opens a folder and searches it in each way; what is broken must show as an error, or not
// at all.
func searchAll(dir string, encoder retrieval.Encoder) error {
	var errs []error
	for _, method := range []string{MethodBM25, MethodDense, MethodHybrid} {
		x, err := Open(dir, Options{Method: method, Encoder: encoder, Approximate: true, Graphs: listGraphs})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, err = x.SearchBatch(context.Background(), []string{"lima river title", "one two zwei 東京"}, 50)
		errs = append(errs, err)
		_, err = x.Page("https://example.org/wiki/Title_3")
		errs = append(errs, err, x.Close())
	}
	return errors.Join(errs...)
}

// files lists those of a folder, relative to it.
func files(t testing.TB, dir string) (names []string) {
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func copied(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestCutAndMissingFilesAreRefused(t *testing.T) {
	dir, encoder := wholeIndex(t, 200)
	if err := searchAll(dir, encoder); err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, dir) {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range [][]byte{nil, whole[:len(whole)/2], whole[:len(whole)-2]} {
			broken := copied(t, dir)
			if err := os.WriteFile(filepath.Join(broken, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := searchAll(broken, encoder); err == nil {
				t.Errorf("%s cut to %d of %d bytes: no error", name, len(content), len(whole))
			}
		}
		gone := copied(t, dir)
		if err := os.Remove(filepath.Join(gone, name)); err != nil {
			t.Fatal(err)
		}
		if err := searchAll(gone, encoder); err == nil {
			t.Errorf("%s is gone: no error", name)
		}
	}
}

func TestFoldersThatAreNoIndex(t *testing.T) {
	for _, c := range []struct{ manifest, want string }{
		{`{"format":2}`, "this program reads format 1"},
		{`{"format":1,"passages":0}`, "passages is 0"},
		{`{"format":1,"passages":-5}`, "passages is -5"},
		{`{"format":1,"passages":3,"encoder":{"dimensions":1000000000}}`, "encoder.dimensions is 1000000000"},
		{`{"format":1,"passages":3,"graph":{}}`, "no encoder"},
		{`{"format":1,"pasages":3}`, "pasages"},
		{`[]`, "found array, want an object"},
		{`{"format":1`, "not valid JSON"},
		{`{"format":1,"passages":3,"files":{"../../etc/passwd":{}}}`, "outside its folder"},
		{strings.Repeat(" ", maxManifest+1), "more than"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, manifestFile), []byte(c.manifest), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%.40q: want %q, got %v", c.manifest, c.want, err)
		}
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "is no index") {
		t.Errorf("an empty folder: %v", err)
	}
}

// FuzzFolder writes bytes over a file of an index: whatever they are, opening and searching end, in an
// error or not.
func FuzzFolder(f *testing.F) {
	dir, encoder := wholeIndex(f, 40)
	names := files(f, dir)
	for k := range names {
		f.Add(uint8(k), uint32(3), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
		f.Add(uint8(k), uint32(0), []byte("{\"format\":1}"))
	}
	f.Fuzz(func(t *testing.T, file uint8, at uint32, over []byte) {
		broken := copied(t, dir)
		path := filepath.Join(broken, names[int(file)%len(names)])
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) > 0 {
			copy(content[int(at)%len(content):], over)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := ReadManifest(broken); err == nil { // else the checksums would tell
			if err := errors.Join(m.seal(broken), m.write(filepath.Join(broken, manifestFile))); err != nil {
				t.Fatal(err)
			}
		}
		_ = searchAll(broken, encoder)
	})
}

func FuzzManifest(f *testing.F) {
	for _, seed := range []string{`{"format":1,"passages":3}`, `{"format":1,"passages":1,"words":4,"encoder":{"dimensions":2},"graph":{"m":1}}`, `null`, `[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil {
			return
		}
		if m.Passages < 1 || m.Encoder != nil && m.Encoder.Dimensions < 1 {
			t.Errorf("%s is taken for %+v", data, m)
		}
	})
}

func TestPages(t *testing.T) {
	all := []retrieval.Passage{
		{ID: "1", Contents: "\"Lima\"\nLima is the capital of Peru."},
		{ID: "2", Contents: "\"AC/DC\"\nA band."},
		{ID: "3", Contents: "no title\nat all"},
		{ID: "4", Contents: "\"Lima\"\nIt lies by the sea."},
		{ID: "5", Contents: "\"Rímac River\"\nThe Rímac."},
		{ID: "6", Contents: "\"" + strings.Repeat("long ", 2000) + "\"\nx"},
		{ID: "7", Contents: "\"Big\"\n" + strings.Repeat("東", pageBytes)},
	}
	o, _ := buildOptions(t, all)
	o.Encoder = nil
	built(t, o)
	x := opened(t, o.Dir, Options{})
	lima := "\"Lima\"\nLima is the capital of Peru.\nIt lies by the sea."
	for address, want := range map[string]string{
		"Lima": lima, "lima ": lima, "https://en.wikipedia.org/wiki/Lima": lima, "https://en.wikipedia.org/wiki/Lima/": lima,
		"http://x/Lima?y=1#z": lima, "https://en.wikipedia.org/wiki/AC/DC": "\"AC/DC\"\nA band.",
		"https://de.wikipedia.org/wiki/R%C3%ADmac_River": "\"Rímac River\"\nThe Rímac.",
		"": "", "https://en.wikipedia.org/": "", "no title": "", "Peru": "", "https://%zz": "", "http://[": "",
	} {
		if got, err := x.Page(address); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", address, got, err, want)
		}
	}
	if big, err := x.Page("Big"); err != nil || len(big) > pageBytes || len(big) < pageBytes-4 {
		t.Errorf("a page of %d bytes, %v", len(big), err)
	}
}

// A file that is cut while an index is open, as by copying another one over it, is an error of every
// search and not the end of the process.
func TestFilesThatAreCutUnderAnOpenIndex(t *testing.T) {
	var all []retrieval.Passage
	for k := range 3000 {
		all = append(all, retrieval.Passage{ID: fmt.Sprint(k), Contents: fmt.Sprintf("\"Title %d\"\nwords of passage %d", k, k)})
	}
	for _, c := range []struct {
		method      string
		approximate bool
	}{{MethodBM25, false}, {MethodDense, false}, {MethodDense, true}} {
		o, encoder := buildOptions(t, all)
		o.Graph, o.Graphs = &GraphOptions{M: 4, EFConstruction: 10}, listGraphs
		built(t, o)
		x := opened(t, o.Dir, Options{Method: c.method, Encoder: encoder, Approximate: c.approximate, EF: 20, Graphs: listGraphs})
		err := filepath.WalkDir(o.Dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			return os.Truncate(path, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := x.SearchBatch(t.Context(), []string{"title passage"}, 3); err == nil || !strings.Contains(err.Error(), "file was cut while it was in use") {
				t.Errorf("%+v: %v", c, err)
			}
			if c.method == MethodDense {
				if _, _, err := x.Rows(0, 3); err == nil || !strings.Contains(err.Error(), "file was cut while it was in use") {
					t.Errorf("rows: %v", err)
				}
			}
			if _, err := x.Page("Title 2999"); err == nil || !strings.Contains(err.Error(), "a file was cut") {
				t.Errorf("page: %v", err)
			}
		}
	}
}

// Cut after the size was looked at, the file is an error of plain Go's search, and of what copies numbers out of it.
func TestAFileThatIsCutWhileItIsRead(t *testing.T) {
	const rows, dimensions = 5000, 8
	path := filepath.Join(t.TempDir(), "vectors.bin")
	if err := os.WriteFile(path, make([]byte, 4*rows*dimensions), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := mapFile(path, 4*rows*dimensions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if err := m.whole(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 4*rows*dimensions/2); err != nil {
		t.Fatal(err)
	}
	_, _, searched := PlainExact{}.TopK([][]float32{make([]float32, dimensions)}, m.float32s(), dimensions, 3)
	_, copied := m.numbers(0, rows*dimensions)
	for what, err := range map[string]error{"search": searched, "copy": copied, "size": m.whole()} {
		if err == nil || !strings.Contains(err.Error(), "file was cut while it was in use") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
