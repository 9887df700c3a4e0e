package engine

import (
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// What is closed answers with errors, and may be closed again.
func TestUseAfterClose(t *testing.T) {
	m := load(t, "qwen2-tiny", Options{Trainable: true})
	s, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	row := model.TrainRow{
		IDs: []int32{1, 2}, Positions: []int32{1}, OldLogProbs: []float32{0}, RefLogProbs: []float32{0},
		Advantages: []float32{1}, Weights: []float32{1},
	}
	for name, use := range map[string]func() error{
		"Open":       func() error { _, err := s.Open(); return err },
		"Fork":       func() error { _, err := s.Fork(0, 0); return err },
		"Release":    func() error { return s.Release(0) },
		"Step":       func() error { _, err := s.Step([]model.RowInput{{IDs: []int32{1}}}); return err },
		"NewSession": func() error { _, err := m.NewSession(model.SessionOptions{}); return err },
		"Score": func() error {
			_, err := m.Score([]model.ScoreRow{{IDs: row.IDs, Positions: row.Positions}}, 1)
			return err
		},
		"ForwardBackward": func() error {
			_, err := m.ForwardBackward([]model.TrainRow{row}, model.LossOptions{KLEstimator: "k1", Temperature: 1})
			return err
		},
		"Update":       func() error { _, err := m.Update(1, model.OptimizerOptions{}); return err },
		"DropGradient": m.DropGradient,
		"ReadFloat32":  func() error { _, err := m.ReadFloat32(model.Master, "model.norm.weight"); return err },
		"WriteFloat32": func() error { return m.WriteFloat32(model.Master, "model.norm.weight", make([]float32, 64)) },
	} {
		if err := use(); err == nil || !strings.Contains(err.Error(), "null") {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	m.SetUpdateCount(3)
	if n := m.UpdateCount(); n != 0 {
		t.Errorf("a closed model has %d updates", n)
	}
}

func TestThreadsAreBounded(t *testing.T) {
	for _, threads := range []int{-1, mostThreads + 1} {
		if _, err := Start("cpu", threads); err == nil || !strings.Contains(err.Error(), "threads is") {
			t.Errorf("%d threads: %v", threads, err)
		}
	}
}
