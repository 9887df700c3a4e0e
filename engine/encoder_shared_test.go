//go:build shared

package engine

import (
	"os"
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
