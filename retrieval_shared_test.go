//go:build shared

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/index"
)

// supported is a question with the titles of the passages that answer it.
type supported struct {
	Question string   `json:"question"`
	Titles   []string `json:"supporting_titles"`
}

func readSupported(t *testing.T, path string) (all []supported) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var q supported
		if err := json.Unmarshal(scanner.Bytes(), &q); err != nil {
			t.Fatal(err)
		}
		all = append(all, q)
	}
	return all
}

// recallAt is the mean share of a question's titles among its first k passages.
func recallAt(k int, questions []supported, found [][]retrieval.Scored) float64 {
	sum := 0.0
	for q, question := range questions {
		hits := 0
		for _, title := range question.Titles {
			if slices.ContainsFunc(found[q][:min(k, len(found[q]))], func(p retrieval.Scored) bool {
				return strings.HasPrefix(p.Contents, `"`+title+`"`+"\n")
			}) {
				hits++
			}
		}
		sum += float64(hits) / float64(len(question.Titles))
	}
	return sum / float64(len(questions))
}

// The methods on a sample of HotpotQA, and dense search against a full sort in float64 of the same
// vectors.
func TestRecallOnHotpotQA(t *testing.T) {
	sample, folder := filepath.Join(os.Getenv("MEMPO_SHARED"), "data/hotpotqa_sample"), os.Getenv("MEMPO_MINILM")
	if folder == "" {
		t.Fatal("MEMPO_MINILM is not set")
	}
	dir := filepath.Join(t.TempDir(), "index")
	path := write(t, filepath.Join(t.TempDir(), "index.toml"), `[index]`, `dir = "`+dir+`"`, `corpus = "`+filepath.Join(sample, "corpus.jsonl")+`"`,
		`methods = ["bm25", "dense"]`, `[encoder]`, `path = "`+folder+`"`, `device = "cpu"`)
	p := &program{out: &output{to: &bytes.Buffer{}}, errs: &bytes.Buffer{}}
	if err := p.makeIndex(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	questions := readSupported(t, filepath.Join(sample, "questions.jsonl"))
	var texts []string
	for _, q := range questions {
		texts = append(texts, q.Question)
	}
	encoder := config.DefaultRetrieve().Encoder
	encoder.Device = "cpu"
	table := "method  recall@5  recall@10\n"
	for _, method := range []string{index.MethodBM25, index.MethodDense, index.MethodHybrid} {
		search, err := openIndex(indexSettings{dir: dir, options: index.Options{Method: method}, encoder: encoder})
		if err != nil {
			t.Fatal(err)
		}
		found, err := search.texts(t.Context(), texts, 10)
		if err != nil {
			t.Fatal(err)
		}
		five, ten := recallAt(5, questions, found), recallAt(10, questions, found)
		table += fmt.Sprintf("%-6s  %.3f     %.3f\n", method, five, ten)
		if five < 0.6 || ten < five {
			t.Errorf("%s: recall %v at 5, %v at 10", method, five, ten)
		}
		if method == index.MethodDense {
			isAFullSort(t, search, texts, found)
		}
		if err := search.close(); err != nil {
			t.Error(err)
		}
	}
	t.Log("\n" + table)
}

// isAFullSort holds the results of dense search against all inner products of the same vectors.
func isAFullSort(t *testing.T, search *openedSearch, texts []string, found [][]retrieval.Scored) {
	t.Helper()
	queries, err := search.index.Encode(t.Context(), texts)
	if err != nil {
		t.Fatal(err)
	}
	passages, vectors, err := search.index.Rows(0, search.index.Len())
	if err != nil {
		t.Fatal(err)
	}
	for q, query := range queries {
		order, scores := make([]int, len(vectors)), make([]float64, len(vectors))
		for row, vector := range vectors {
			order[row] = row
			for k, x := range vector {
				scores[row] += float64(x) * float64(query[k])
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
		for k, got := range found[q] {
			if want := passages[order[k]]; got.Passage != want {
				t.Errorf("query %d: passage %d is %s, want %s", q, k, got.ID, want.ID)
			}
		}
	}
}
