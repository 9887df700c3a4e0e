package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// testdata/rope.json holds what LlamaRotaryEmbedding of transformers 5.24 computes, in float32.
func TestInverseFrequenciesAreThoseOfTransformers(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "rope.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		HeadDim int             `json:"head_dim"`
		Rope    json.RawMessage `json:"rope_parameters"`
		Want    []float64       `json:"inverse_frequencies"`
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) != 4 {
		t.Fatal(len(cases), err)
	}
	for _, test := range cases {
		a, err := load(t, with(map[string]any{"rope_parameters": test.Rope}))
		if err != nil {
			t.Fatal(err)
		}
		got := a.Rope.InverseFrequencies(test.HeadDim)
		if len(got) != len(test.Want) {
			t.Fatalf("%s: %d angles, want %d", test.Rope, len(got), len(test.Want))
		}
		for k, want := range test.Want {
			// transformers rounds at every step; near the edges of llama3's blend that adds up.
			if math.Abs(float64(got[k])/want-1) > 1e-6 {
				t.Errorf("%s: angle %d is %v, want %v", test.Rope, k, got[k], want)
			}
		}
	}
}

func TestInverseFrequenciesByHand(t *testing.T) {
	llama3 := Rope{Type: RopeLlama3, Theta: 500000, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	tests := []struct {
		name  string
		rope  Rope
		index int // of 64 angles
		want  float64
	}{
		{"first", Rope{Type: RopeDefault, Theta: 10000}, 0, 1},
		{"middle", Rope{Type: RopeDefault, Theta: 10000}, 32, 0.01},
		{"linear", Rope{Type: RopeLinear, Theta: 10000, Factor: 4}, 32, 0.01 / 4},
		{"llama3, the last short wave", llama3, 28, math.Pow(500000, -56.0/128)}, // wavelength 1956 < 2048
		{"llama3, long wave", llama3, 63, math.Pow(500000, -126.0/128) / 8},
		// wavelength 2401.738: kept = (8192/2401.738 − 1)/3 = 0.803621
		{"llama3, blend", llama3, 29, 0.0026160992529250353 * ((1-0.803621042099634)/8 + 0.803621042099634)},
	}
	for _, test := range tests {
		got := test.rope.InverseFrequencies(128)
		if math.Abs(float64(got[test.index])/test.want-1) > 1e-7 {
			t.Errorf("%s: angle %d is %v, want %v", test.name, test.index, got[test.index], test.want)
		}
	}
}
