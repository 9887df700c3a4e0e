package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval"
)

// storedPassages writes passages into a folder of their own and opens them.
func storedPassages(t testing.TB, all []retrieval.Passage) (dir string, p *passages) {
	t.Helper()
	dir = t.TempDir()
	w, err := newPassageWriter(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, passage := range all {
		if err := w.add(passage); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	if p, err = openPassages(dir, len(all)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return dir, p
}

// madeUp are passages over few words, so that equal scores are common.
func madeUp(r *rand.Rand, n int) []retrieval.Passage {
	words := []string{"lima", "river", "the", "Peru", "capital", "東京", "ÉTÉ", "zwei", "of", "one"}
	all := make([]retrieval.Passage, n)
	for k := range all {
		var text strings.Builder
		for range r.IntN(30) {
			text.WriteString(words[min(r.IntN(len(words)), r.IntN(len(words)))] + " ")
		}
		all[k] = retrieval.Passage{ID: fmt.Sprint("p", k), Contents: fmt.Sprintf("\"Title %d\"\n%s", k%17, text.String())}
	}
	return all
}

// The files give the hits of BM25 in memory, with the same scores to the last bit.
func TestStoredBM25IsBM25(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 50, 3000} {
		all := madeUp(r, n)
		dir, p := storedPassages(t, all)
		words, err := buildWords(t.Context(), dir, p, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		stored, err := openBM25(dir, n, words)
		if err != nil {
			t.Fatal(err)
		}
		memory := NewBM25(all)
		for _, query := range []string{"", "none", "lima", "the river of the capital of Peru", "東京 été", "title 3", "one one two ZWEI"} {
			for _, k := range []int{0, 1, 7, 100} {
				want, err := memory.rank(context.Background(), query, k)
				if err != nil {
					t.Fatal(err)
				}
				got, err := stored.search(t.Context(), query, k)
				if err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("%d passages, %q, best %d: %v, in memory %v", n, query, k, got, want)
				}
			}
		}
		if err := stored.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A disk that takes no more is the machine's fault; here it is a limit on the size of files.
func TestAFullDiskEndsBM25AsTheMachinesFault(t *testing.T) {
	all := make([]retrieval.Passage, 9000)
	for k := range all {
		all[k] = retrieval.Passage{ID: fmt.Sprint(k), Contents: fmt.Sprintf("w%d", k)}
	}
	dir, p := storedPassages(t, all)
	if os.Getenv(smallFiles) != "" {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		limit.Cur = 64 << 10
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		_, err := buildWords(t.Context(), dir, p, func(int) {})
		if fault.Code(err) != fault.CodeEnvironment || !strings.Contains(err.Error(), "file too large") {
			t.Errorf("exit code %d: %v", fault.Code(err), err)
		}
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		if _, err := buildWords(t.Context(), dir, p, func(int) {}); err != nil {
			t.Errorf("going on with room: %v", err)
		}
		return
	}
	// The limit holds for a whole process: in this one it would strike what the go command writes, too.
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), smallFiles+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("with a limit on the size of files: %v\n%s", err, out)
	}
}

// smallFiles is set in the process that builds under a limit on the size of files.
const smallFiles = "MEMPO_TEST_SMALL_FILES"

func BenchmarkStoredBM25(b *testing.B) {
	dir, p := storedPassages(b, benchmarkCorpus())
	begin := time.Now()
	words, err := buildWords(b.Context(), dir, p, func(int) {})
	if err != nil {
		b.Fatal(err)
	}
	built := time.Since(begin)
	x, err := openBM25(dir, p.count, words)
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	generator := rand.New(rand.NewPCG(7, 7))
	for b.Loop() {
		if _, err := x.search(b.Context(), benchmarkText(generator, 9), 3); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(built.Seconds(), "s/build")
}
