//go:build shared

package engine

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// The shape of one real step: 16 trajectories of a 128-token prompt and three turns of 64 sampled
// and 96 outside tokens.
const (
	benchPrompt, benchTurns, benchTurn, benchTool = 128, 3, 64, 96
	benchLength                                   = benchPrompt + benchTurns*(benchTurn+benchTool) - benchTool
)

func benchModel(b *testing.B, o Options) *Model {
	b.Helper()
	folder := os.Getenv("MEMPO_SMOLLM2")
	if folder == "" {
		b.Fatal("MEMPO_SMOLLM2 is not set")
	}
	m, err := device.Load(folder, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	return m
}

func benchRows(m *Model, n int) []model.ScoreRow {
	r := rand.New(rand.NewPCG(1, 1))
	var rows []model.ScoreRow
	for range n {
		row := model.ScoreRow{IDs: randomIDs(r, benchLength, m.Architecture.VocabSize)}
		for turn := range benchTurns {
			for k := range benchTurn {
				row.Positions = append(row.Positions, int32(benchPrompt+turn*(benchTurn+benchTool)+k))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func BenchmarkScore(b *testing.B) {
	m := benchModel(b, Options{})
	rows := benchRows(m, 2)
	for b.Loop() {
		if _, err := m.Score(rows, 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*2*benchLength)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkUpdate(b *testing.B) {
	m := benchModel(b, Options{Trainable: true})
	rows := benchRows(m, 2)
	scores, err := m.Score(rows, 1)
	if err != nil {
		b.Fatal(err)
	}
	trained := asTrainRows(rows, scores)
	for b.Loop() {
		for k := range trained {
			if _, err := m.ForwardBackward(trained[k:k+1], ppo); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := m.Update(1e-6, adamW); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*2*benchLength)/b.Elapsed().Seconds(), "tokens/s")
}

func BenchmarkDecode(b *testing.B) {
	m := benchModel(b, Options{})
	s, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r := rand.New(rand.NewPCG(2, 2))
	inputs := make([]model.RowInput, 16)
	for k := range inputs {
		row, err := s.Open()
		if err != nil {
			b.Fatal(err)
		}
		inputs[k] = model.RowInput{Row: row, IDs: randomIDs(r, 400, m.Architecture.VocabSize), Sample: true, Sampling: model.Sampling{Temperature: 1}}
	}
	step := func() {
		out, err := s.Step(inputs)
		if err != nil {
			b.Fatal(err)
		}
		for k := range inputs {
			inputs[k].IDs, inputs[k].Seed = []int32{out[k].ID}, r.Uint64()
		}
	}
	step() // the prefill
	for b.Loop() {
		step()
	}
	b.ReportMetric(float64(b.N*16)/b.Elapsed().Seconds(), "tokens/s")
}
