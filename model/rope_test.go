package model

import (
	"math"
	"testing"
)

func TestInverseFrequencies(t *testing.T) {
	llama3 := Rope{Type: RopeLlama3, Theta: 500000, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	tests := []struct {
		name  string
		rope  Rope
		dim   int
		index int
		want  float64
	}{
		{"first", Rope{Type: RopeDefault, Theta: 10000}, 64, 0, 1},
		{"last", Rope{Type: RopeDefault, Theta: 10000}, 64, 31, 1 / math.Pow(10000, 62.0/64)},
		{"linear", Rope{Type: RopeLinear, Theta: 10000, Factor: 4}, 64, 16, 0.01 / 4},
		{"llama3 short wave", llama3, 128, 0, 1},
		{"llama3 short wave, the last one kept", llama3, 128, 28, math.Pow(500000, -56.0/128)}, // wavelength 1956 < 2048
		{"llama3 long wave", llama3, 128, 63, math.Pow(500000, -126.0/128) / 8},
		// wavelength 2401.738: kept = (8192/2401.738 − 1)/3 = 0.803621
		{"llama3 blend", llama3, 128, 29, 0.0026160992529250353 * ((1-0.803621042099634)/8 + 0.803621042099634)},
	}
	for _, test := range tests {
		got := test.rope.InverseFrequencies(test.dim)
		if len(got) != test.dim/2 {
			t.Fatalf("%s: %d angles for head_dim %d", test.name, len(got), test.dim)
		}
		if relative := math.Abs(float64(got[test.index])/test.want - 1); relative > 1e-7 {
			t.Errorf("%s: angle %d is %v, want %v", test.name, test.index, got[test.index], test.want)
		}
	}
}
