package index

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval"
)

// bagOfWords is an encoder of hashed words, of unit length.
type bagOfWords struct {
	dimensions int
	encoded    atomic.Int64 // texts
	calls      atomic.Int64
	failAfter  int64 // texts; 0 is never
}

var errEncoder = errors.New("the encoder gave up")

func (e *bagOfWords) Dimensions() int { return e.dimensions }

func (e *bagOfWords) Encode(ctx context.Context, texts []string) ([][]float32, error) {
	e.calls.Add(1)
	if n := e.encoded.Add(int64(len(texts))); e.failAfter > 0 && n > e.failAfter {
		return nil, errEncoder
	}
	vectors := make([][]float32, len(texts))
	for k, text := range texts {
		vectors[k] = make([]float32, e.dimensions)
		tokens(text, func(word []byte) { vectors[k][hashText(string(word))%uint64(e.dimensions)]++ })
	}
	return vectors, ctx.Err()
}

// quiet shows no progress.
type quiet struct{}

func (quiet) Add(int) {}
func (quiet) Done()   {}

func noProgress(string, int) Stage { return quiet{} }

// corpusOf writes a corpus file.
func corpusOf(t testing.TB, all []retrieval.Passage) string {
	t.Helper()
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	for _, p := range all {
		if err := encoder.Encode(map[string]string{"id": p.ID, "contents": p.Contents}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func buildOptions(t testing.TB, all []retrieval.Passage) (BuildOptions, *bagOfWords) {
	encoder := &bagOfWords{dimensions: 64}
	return BuildOptions{
		Dir: filepath.Join(t.TempDir(), "index"), Corpus: []string{corpusOf(t, all)}, BM25: true, Progress: noProgress,
		Encoder: encoder, Identity: EncoderIdentity{Path: "m", SHA256: "h", PassagePrefix: "passage: ", QueryPrefix: "query: ", Dimensions: 64},
	}, encoder
}

func built(t testing.TB, o BuildOptions) *Manifest {
	t.Helper()
	m, err := Build(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func opened(t testing.TB, dir string, o Options) *Index {
	t.Helper()
	x, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// contentsOf are the passages of results.
func contentsOf(results []retrieval.Scored) []retrieval.Passage {
	var all []retrieval.Passage
	for _, r := range results {
		all = append(all, r.Passage)
	}
	return all
}

func TestAnIndexFindsWhatItsPartsFind(t *testing.T) {
	all := madeUp(rand.New(rand.NewPCG(5, 6)), 5000)
	o, encoder := buildOptions(t, all)
	if m := built(t, o); m.Passages != len(all) || m.Words == nil || m.Encoder.Dimensions != 64 {
		t.Fatalf("manifest %+v", m)
	}
	queries := []string{"the river of Peru", "東京", "title 4", "", "capital \xff\xfe"}
	memory := NewBM25(all)
	words := opened(t, o.Dir, Options{Method: MethodBM25})
	byWords, err := words.SearchBatch(t.Context(), queries, 10)
	if err != nil {
		t.Fatal(err)
	}
	dense := opened(t, o.Dir, Options{Method: MethodDense, Encoder: encoder})
	encoder.calls.Store(0)
	byMeaning, err := dense.SearchBatch(t.Context(), queries, 10)
	if err != nil || encoder.calls.Load() != 1 {
		t.Fatalf("%d calls of the encoder for one batch, %v", encoder.calls.Load(), err)
	}
	for q, query := range queries {
		want, _ := memory.Search(t.Context(), query, 10)
		if got := contentsOf(byWords[q]); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q by words: %v, want %v", query, got, want)
		}
		vector, _ := encoder.Encode(t.Context(), []string{"query: " + strings.ToValidUTF8(query, "\uFFFD")})
		texts := make([]string, len(all))
		for k, p := range all {
			texts[k] = "passage: " + p.Contents
		}
		vectors, _ := encoder.Encode(t.Context(), texts)
		var flat []float32
		for _, v := range vectors {
			flat = append(flat, v...)
		}
		for k, row := range sortedRows(vector[0], flat)[:10] {
			if got := byMeaning[q][k].Passage; got != all[row] {
				t.Errorf("%q by meaning: passage %d is %v, want %v", query, k, got, all[row])
			}
		}
	}
}

func TestFusionIsTheFormula(t *testing.T) {
	words := []hit{{7, 9}, {3, 8}, {1, 7}}
	meaning := []hit{{3, 0.9}, {5, 0.8}}
	got := fuse(60, 3, words, meaning)
	first, second := 1/61.0, 1/62.0
	want := []hit{{3, second + first}, {7, first}, {5, second}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("fused %v, want %v", got, want)
	}
}

func TestHybridHoldsTheBestOfBoth(t *testing.T) {
	all := madeUp(rand.New(rand.NewPCG(7, 8)), 500)
	o, encoder := buildOptions(t, all)
	built(t, o)
	x := opened(t, o.Dir, Options{Encoder: encoder})
	if x.Method() != MethodHybrid {
		t.Fatalf("the method is %q", x.Method())
	}
	results, err := x.SearchBatch(t.Context(), []string{"capital of Peru", "river"}, 5)
	if err != nil || len(results[0]) != 5 || len(results[1]) != 5 {
		t.Fatalf("%v, %v", results, err)
	}
	for k := 1; k < 5; k++ {
		if results[0][k].Score > results[0][k-1].Score {
			t.Errorf("scores are not in order: %v", results[0])
		}
	}
}

// A build that stops goes on at the chunk where it was, and gives the same files.
func TestABuildGoesOnWhereItStopped(t *testing.T) {
	all := madeUp(rand.New(rand.NewPCG(9, 10)), 3*chunkPassages+100)
	whole, _ := buildOptions(t, all)
	built(t, whole)
	o, encoder := buildOptions(t, all)
	encoder.failAfter = 2*chunkPassages + 1
	if _, err := Build(t.Context(), o); !errors.Is(err, errEncoder) {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(o.Dir); err == nil {
		t.Fatal("a build that stopped left an index")
	}
	sums := filepath.Join(o.Dir+".tmp", sumsFile)
	if info, err := os.Stat(sums); err != nil || info.Size() != 8 {
		t.Fatalf("two chunks should be kept: %v, %v", info, err)
	}
	// A torn write behind the second chunk, as a crash leaves one.
	torn, err := os.OpenFile(filepath.Join(o.Dir+".tmp", vectorsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = torn.WriteString("half a chunk")
	_ = torn.Close()
	encoder.failAfter = 0
	encoder.encoded.Store(0)
	built(t, o)
	if got := encoder.encoded.Load(); got != chunkPassages+100 {
		t.Errorf("%d passages were encoded again, want %d", got, chunkPassages+100)
	}
	sameFiles(t, whole.Dir, o.Dir, passagesFile, offsetsFile, titlesFile, vectorsFile)
	if left, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(left) != 7 {
		t.Errorf("the folder holds %v", left)
	}
	encoder.encoded.Store(0)
	built(t, o) // it is there already
	if encoder.encoded.Load() != 0 {
		t.Error("an index that is there was built again")
	}
}

func sameFiles(t *testing.T, a, b string, names ...string) {
	t.Helper()
	for _, name := range names {
		x, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s differs", name)
		}
	}
}

// A chunk that was damaged is encoded again.
func TestADamagedChunkIsEncodedAgain(t *testing.T) {
	all := madeUp(rand.New(rand.NewPCG(9, 11)), 3*chunkPassages)
	o, encoder := buildOptions(t, all)
	encoder.failAfter = 2*chunkPassages + 1
	if _, err := Build(t.Context(), o); !errors.Is(err, errEncoder) {
		t.Fatalf("got %v", err)
	}
	path := filepath.Join(o.Dir+".tmp", vectorsFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[chunkPassages*64*4+5] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	encoder.failAfter = 0
	encoder.encoded.Store(0)
	built(t, o)
	if got := encoder.encoded.Load(); got != 2*chunkPassages {
		t.Errorf("%d passages were encoded, want the second and the third chunk", got)
	}
}

func TestWhatDiffersIsSaid(t *testing.T) {
	all := madeUp(rand.New(rand.NewPCG(1, 1)), 20)
	base, encoder := buildOptions(t, all)
	built(t, base)
	half := base
	half.Dir += "-half"
	encoder.failAfter = encoder.encoded.Load() + 1
	if _, err := Build(t.Context(), half); !errors.Is(err, errEncoder) {
		t.Fatal(err)
	}
	encoder.failAfter = 0
	for _, c := range []struct {
		change func(*BuildOptions)
		want   string
	}{
		{func(o *BuildOptions) { o.Corpus = []string{corpusOf(t, all[1:])} }, "another corpus"},
		{func(o *BuildOptions) { o.BM25 = false }, "no bm25"},
		{func(o *BuildOptions) { o.Encoder = nil }, "no vectors"},
		{func(o *BuildOptions) { o.Identity.SHA256 = "x" }, "another model"},
		{func(o *BuildOptions) { o.Identity.PassagePrefix = "" }, `passage_prefix "passage: ", now it is ""`},
		{func(o *BuildOptions) { o.Graph = &GraphOptions{M: 8} }, "this one has graph"},
	} {
		for _, o := range []BuildOptions{base, half} {
			c.change(&o)
			_, err := Build(t.Context(), o)
			if err == nil || fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), o.Dir) {
				t.Errorf("want %q of %s, got %v", c.want, o.Dir, err)
			}
		}
	}
	if built(t, half).Passages != 20 {
		t.Error("the half index did not go on")
	}
}

func TestCorporaThatAreRefused(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "holds no passage"},
		{"{\"id\":\"1\",\"contents\":\"a\"}\nnonsense", "line 2"},
		{"{\"contents\":\"a\"}", "no id"},
		{"{\"id\":\"1\",\"contents\":\"a\"}\n{\"id\":\"2\",\"contents\":\"a\"}\n{\"id\":1,\"contents\":\"b\"}", `passages 1 and 3, counted from 1, have the same id "1"`},
	} {
		o, _ := buildOptions(t, nil)
		if err := os.WriteFile(o.Corpus[0], []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Build(t.Context(), o); fault.Code(err) != fault.CodeUsage || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%q: want %q, got %v", c.text, c.want, err)
		}
	}
	o, _ := buildOptions(t, madeUp(rand.New(rand.NewPCG(1, 1)), 3))
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), o); fault.Code(err) != fault.CodeUsage || !strings.Contains(fmt.Sprint(err), "is no index") {
		t.Errorf("a folder of something else: %v", err)
	}
}

// Long passages go to the encoder a few at a time.
func TestLongPassagesAreEncodedInParts(t *testing.T) {
	var all []retrieval.Passage
	for k := range 5 {
		all = append(all, retrieval.Passage{ID: fmt.Sprint(k), Contents: fmt.Sprintf("w%d ", k) + strings.Repeat(" ", encodedBytes/2)})
	}
	o, encoder := buildOptions(t, all)
	o.BM25 = false
	built(t, o)
	if calls, texts := encoder.calls.Load(), encoder.encoded.Load(); calls != 3 || texts != 5 {
		t.Errorf("%d texts in %d calls, want 5 in 3", texts, calls)
	}
	x, err := Open(o.Dir, Options{Encoder: encoder})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for k := range all {
		if _, vectors, err := x.Rows(k, k+1); err != nil || vectors[0][hashText(fmt.Sprintf("w%d", k))%64] != 1 {
			t.Errorf("passage %d: %v, %v", k, vectors, err)
		}
	}
}

func TestInspectTellsWhatBuildFinds(t *testing.T) {
	o, encoder := buildOptions(t, []retrieval.Passage{{ID: "a", Contents: "one two"}, {ID: "b", Contents: "three"}})
	inspect := func(wantMade, wantBegun bool, wantErr string) {
		t.Helper()
		made, begun, err := Inspect(o)
		if (made != nil) != wantMade || begun != wantBegun || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("made %v, begun %v, %v; want %v, %v, %q", made != nil, begun, err, wantMade, wantBegun, wantErr)
		}
	}
	inspect(false, false, "")
	encoder.failAfter = 1
	if _, err := Build(context.Background(), o); !errors.Is(err, errEncoder) {
		t.Fatal(err)
	}
	inspect(false, true, "")
	o.BM25 = false
	inspect(false, false, "holds an index that was begun, but this one has no bm25")
	o.BM25, encoder.failAfter = true, 0
	built(t, o)
	inspect(true, false, "")
	if err := os.Truncate(filepath.Join(o.Dir, vectorsFile), 8); err != nil {
		t.Fatal(err)
	}
	inspect(false, false, "vectors.bin has 8 bytes")
	if _, err := Build(context.Background(), o); fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), "remove it to build it again") {
		t.Errorf("building again over a cut index: %v", err)
	}
}
