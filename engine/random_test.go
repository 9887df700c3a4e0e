package engine

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// random loads the shape of a golden model with random weights, out of a folder that holds nothing but the shape.
func random(t *testing.T, seed uint64) *Model {
	t.Helper()
	shape, err := os.ReadFile(filepath.Join(golden, "models/qwen2-tiny/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), shape, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := device.Load(dir, Options{DType: float32Name, Trainable: true, RandomWeights: true, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestRandomWeights(t *testing.T) {
	m, again, other := random(t, 1), random(t, 1), random(t, 2)
	ids := []int32{5, 6, 7, 8, 9, 10, 11, 12}
	rows := []model.ScoreRow{{IDs: ids, Positions: every(len(ids))}}
	first := scoreInSplits(t, m, rows, 1)[0].LogProbs
	near(t, "the same seed", scoreInSplits(t, again, rows, 1)[0].LogProbs, first, 0)
	if changed := scoreInSplits(t, other, rows, 1)[0].LogProbs; changed[0] == first[0] {
		t.Error("another seed gives the same weights")
	}
	var last []float32
	for _, p := range m.Parameters() {
		values, err := m.ReadFloat32(model.Master, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		mean, deviation := moments(values)
		switch {
		case strings.HasSuffix(p.Name, "norm.weight"):
			if mean != 1 || deviation != 0 {
				t.Errorf("%s: %g ± %g, want 1", p.Name, mean, deviation)
			}
		case strings.HasSuffix(p.Name, ".bias"):
			if mean != 0 || deviation != 0 {
				t.Errorf("%s: %g ± %g, want 0", p.Name, mean, deviation)
			}
		default:
			// Five deviations of the estimates of so many draws.
			room := 5 * initialDeviation / math.Sqrt(float64(len(values)))
			if math.Abs(mean) > room || math.Abs(deviation-initialDeviation) > room {
				t.Errorf("%s: %g ± %g, want 0 ± %g within %g", p.Name, mean, deviation, initialDeviation, room)
			}
			if len(last) > 1 && last[0] == values[0] && last[1] == values[1] {
				t.Errorf("%s begins as the weight before it", p.Name)
			}
			last = values
		}
	}
}

// moments are the mean and the standard deviation of numbers.
func moments(values []float32) (mean, deviation float64) {
	for _, v := range values {
		mean += float64(v) / float64(len(values))
	}
	for _, v := range values {
		deviation += (float64(v) - mean) * (float64(v) - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation)
}
