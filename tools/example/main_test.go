package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/weights"
)

func TestFolderIsAModelThatKeepsTheFormat(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "model")
	architecture, err := model.LoadArchitecture(folder)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Size() != architecture.VocabSize {
		t.Errorf("%d tokens for %d embeddings", tok.Size(), architecture.VocabSize)
	}
	files, err := weights.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	embeddings, head := matrix(t, files, "model.embed_tokens.weight"), matrix(t, files, "lm_head.weight")
	turn := "\n<mem> silk</mem><think> next</think><search>Belmar</search>"
	ids := tok.EncodeTrusted(turn)
	if len(ids) != 10 {
		t.Fatalf("%q is %d tokens, want 10", turn, len(ids))
	}
	for k := range ids[1:] {
		p := successors(embeddings, head, ids[k])
		if p[ids[k+1]] < 0.02 {
			t.Errorf("%q follows %q with probability %.3f", tok.Decode(ids[k+1:k+2]), tok.Decode(ids[k:k+1]), p[ids[k+1]])
		}
	}
	mem, _ := tok.ID("<mem>")
	if p := successors(embeddings, head, '\n')[mem]; p < 0.9 {
		t.Errorf("a turn begins with <mem> with probability %.3f only", p)
	}
}

func matrix(t *testing.T, files *weights.Folder, name string) []float32 {
	t.Helper()
	tensor, found := files.Tensor(name)
	if !found {
		t.Fatalf("no tensor %s", name)
	}
	values, err := tensor.Float32()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// successors is the distribution behind a token if the layers added nothing.
func successors(embeddings, head []float32, id int32) []float64 {
	state := embeddings[int(id)*hiddenSize:][:hiddenSize]
	square := 0.0
	for _, x := range state {
		square += float64(x) * float64(x)
	}
	scale := math.Sqrt(hiddenSize / square) // the final norm
	p := make([]float64, len(head)/hiddenSize)
	sum := 0.0
	for n := range p {
		for k, x := range state {
			p[n] += float64(x) * scale * float64(head[n*hiddenSize+k])
		}
		p[n] = math.Exp(p[n])
		sum += p[n]
	}
	for n := range p {
		p[n] /= sum
	}
	return p
}

func TestTextsAnswerTheQuestions(t *testing.T) {
	w := newWorld(1)
	if len(w.towns) != 24 {
		t.Fatalf("%d towns, want 24", len(w.towns))
	}
	names := map[string]bool{}
	for _, town := range w.towns {
		names[town.name] = true
		for _, question := range town.questions() {
			if !strings.Contains(question[0], town.name) || !strings.Contains(town.passage(), question[1]) {
				t.Errorf("%q, answer %q, is not answered by %q", question[0], question[1], town.passage())
			}
			if !slices.Contains(slices.Concat(goods, rivers), question[1]) {
				t.Errorf("answer %q cannot be guessed", question[1])
			}
		}
	}
	if len(names) != len(w.towns) {
		t.Error("a name occurs twice")
	}
}

func TestSameBytesEveryTime(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for _, dir := range []string{a, b} {
		if err := write(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"corpus.jsonl", "questions.jsonl", "model/model.safetensors", "model/tokenizer.json", "model/config.json"} {
		x, errX := os.ReadFile(filepath.Join(a, name))
		y, errY := os.ReadFile(filepath.Join(b, name))
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs from one time to the next", name)
		}
	}
}
