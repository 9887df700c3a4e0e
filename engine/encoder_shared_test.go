//go:build shared

package engine

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// all-MiniLM-L6-v2 gives the ids and vectors of transformers, tools/golden_encoder.py --folder.
func TestMiniLMEqualsTransformers(t *testing.T) {
	folder := os.Getenv("MEMPO_MINILM")
	if folder == "" {
		t.Fatal("MEMPO_MINILM is not set")
	}
	var want goldenEncoder
	readJSON(t, "encoder/minilm.json", &want)
	for _, batch := range []int{1, 0} {
		e, err := device.LoadEncoder(folder, EncoderOptions{DType: float32Name, BatchTokens: batch})
		if err != nil {
			t.Fatal(err)
		}
		if e.Dimensions() != 384 || e.MaxTokens() != 512 {
			t.Errorf("%d dimensions, %d tokens", e.Dimensions(), e.MaxTokens())
		}
		expectGolden(t, e, want)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkEncode encodes passages of about a hundred words, 256 at a time, and queries of ten one by one.
func BenchmarkEncode(b *testing.B) {
	folder := os.Getenv("MEMPO_MINILM")
	if folder == "" {
		b.Fatal("MEMPO_MINILM is not set")
	}
	e, err := device.LoadEncoder(folder, EncoderOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	r := rand.New(rand.NewPCG(1, 2))
	words := func(n int) string {
		var text strings.Builder
		for range n {
			text.WriteString([]string{"the ", "of ", "water ", "university ", "born ", "in ", "1953 ", "film ", "director "}[r.IntN(9)])
		}
		return text.String()
	}
	passages, queries := make([]string, 256), make([]string, 16)
	for k := range passages {
		passages[k] = words(50 + r.IntN(100))
	}
	for k := range queries {
		queries[k] = words(10)
	}
	b.Run("passages", func(b *testing.B) {
		for b.Loop() {
			encode(b, e, passages...)
		}
		b.ReportMetric(float64(len(passages)*b.N)/b.Elapsed().Seconds(), "passages/s")
	})
	b.Run("queries", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			encode(b, e, queries[n%len(queries)])
		}
	})
}
