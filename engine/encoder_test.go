package engine

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// goldenEncoder is what transformers makes of texts, as tools/golden_encoder.py wrote it.
type goldenEncoder struct {
	Texts   []string    `json:"texts"`
	IDs     [][]int32   `json:"ids"`
	Vectors [][]float32 `json:"vectors"`
}

func loadEncoder(t testing.TB, name string, o EncoderOptions) *Encoder {
	t.Helper()
	o.DType = float32Name
	e, err := device.LoadEncoder(filepath.Join(golden, "models", name), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func encode(t testing.TB, e *Encoder, texts ...string) [][]float32 {
	t.Helper()
	vectors, err := e.Encode(context.Background(), texts)
	if err != nil {
		t.Fatal(err)
	}
	return vectors
}

// expectGolden compares vectors and ids with those of transformers.
func expectGolden(t *testing.T, e *Encoder, want goldenEncoder) {
	t.Helper()
	for k, text := range want.Texts {
		got := e.tokenizer.Encode(text, e.maxTokens)
		if len(got) != len(want.IDs[k]) {
			t.Fatalf("%.60q becomes %d ids, want %d", text, len(got), len(want.IDs[k]))
		}
		for n := range got {
			if got[n] != want.IDs[k][n] {
				t.Fatalf("%.60q becomes %v, want %v", text, got, want.IDs[k])
			}
		}
	}
	for k, vector := range encode(t, e, want.Texts...) {
		near(t, want.Texts[k], vector, want.Vectors[k], 1e-5)
	}
}

func TestVectorsOfTransformers(t *testing.T) {
	for _, name := range []string{"bert-tiny", "bert-tiny-prefixed"} {
		t.Run(name, func(t *testing.T) {
			var want goldenEncoder
			readJSON(t, "encoder/"+name+".json", &want)
			e := loadEncoder(t, name, EncoderOptions{})
			if e.Dimensions() != 32 || e.MaxTokens() != 48 {
				t.Errorf("%d dimensions, %d tokens", e.Dimensions(), e.MaxTokens())
			}
			expectGolden(t, e, want)
		})
	}
}

// However texts are cut into batches, each has its vector.
func TestVectorsDoNotDependOnTheBatch(t *testing.T) {
	var want goldenEncoder
	readJSON(t, "encoder/bert-tiny.json", &want)
	for _, batch := range []int{1, 50, 200, 1000} {
		e := loadEncoder(t, "bert-tiny", EncoderOptions{BatchTokens: batch})
		expectGolden(t, e, want)
		for k, text := range want.Texts {
			near(t, text, encode(t, e, text)[0], want.Vectors[k], 1e-5)
		}
	}
}

func TestEncoderOptions(t *testing.T) {
	var want goldenEncoder
	readJSON(t, "encoder/bert-tiny.json", &want)
	long := want.Texts[3]
	no := false
	plain := loadEncoder(t, "bert-tiny", EncoderOptions{Normalize: &no})
	vector := encode(t, plain, long)[0]
	squares := 0.0
	for _, v := range vector {
		squares += float64(v) * float64(v)
	}
	if squares > 0.99 && squares < 1.01 {
		t.Errorf("a vector that was not to be normalized has length² %v", squares)
	}
	first := loadEncoder(t, "bert-tiny", EncoderOptions{Pooling: model.PoolFirst, Normalize: &no})
	if encode(t, first, long)[0][0] == vector[0] {
		t.Error("the first token's vector is the mean")
	}
	short := loadEncoder(t, "bert-tiny", EncoderOptions{MaxTokens: 5})
	near(t, "cut", encode(t, short, long)[0], encode(t, short, "passage: the")[0], 1e-6)
	if vectors := encode(t, short); len(vectors) != 0 {
		t.Errorf("%d vectors of no text", len(vectors))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := short.Encode(ctx, []string{"a"}); err == nil {
		t.Error("a canceled call gave vectors")
	}
}

func TestEncoderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		folder string
		o      EncoderOptions
		want   string
	}{
		"a language model": {"qwen2-tiny", EncoderOptions{}, "model_type"},
		"no folder":        {"none", EncoderOptions{}, "config.json"},
		"pooling":          {"bert-tiny", EncoderOptions{Pooling: "max"}, `"max"`},
		"too few tokens":   {"bert-tiny", EncoderOptions{MaxTokens: 2}, "allowed are 3 to 48"},
		"too many tokens":  {"bert-tiny", EncoderOptions{MaxTokens: 49}, "allowed are 3 to 48"},
		"a dtype":          {"bert-tiny", EncoderOptions{DType: "float8"}, "float8"},
	} {
		e, err := device.LoadEncoder(filepath.Join(golden, "models", c.folder), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if e != nil {
			t.Errorf("%s: an encoder beside an error", name)
		}
	}
	e := loadEncoder(t, "bert-tiny", EncoderOptions{})
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.Encode(context.Background(), []string{"a"}); err == nil || !strings.Contains(err.Error(), "null") {
		t.Errorf("a closed encoder: %v", err)
	}
}
