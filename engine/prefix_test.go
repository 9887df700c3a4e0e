package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/prefix"
)

// randomGroup makes what the trajectories of one question are to the model: a prompt, then 1 to 8 turns of their own, of
// which the tokens of turns are trained; some are cut in the middle of a turn, some begin alike beyond the prompt.
func randomGroup(r *rand.Rand, members, vocab int) (prompt []int32, rows []model.TrainRow) {
	prompt = randomIDs(r, 2+r.IntN(30), vocab)
	for k := range members {
		row := model.TrainRow{IDs: slices.Clone(prompt)}
		if k > 0 && r.IntN(3) == 0 { // the same first words as the one before
			before := rows[k-1]
			same := len(prompt) + r.IntN(len(before.IDs)-len(prompt))
			row.IDs = slices.Clone(before.IDs[:same])
			for _, position := range before.Positions {
				if int(position) < same {
					row.Positions = append(row.Positions, position)
				}
			}
		}
		for range 1 + r.IntN(8) {
			for range 1 + r.IntN(12) {
				row.Positions = append(row.Positions, int32(len(row.IDs)))
				row.IDs = append(row.IDs, randomIDs(r, 1, vocab)...)
			}
			row.IDs = append(row.IDs, randomIDs(r, r.IntN(9), vocab)...)
		}
		for range row.Positions {
			row.OldLogProbs = append(row.OldLogProbs, float32(-3-r.Float64()))
			row.RefLogProbs = append(row.RefLogProbs, float32(-3-r.Float64()))
			row.Advantages = append(row.Advantages, float32(r.NormFloat64()))
			row.Weights = append(row.Weights, 0.01)
		}
		rows = append(rows, row)
	}
	return prompt, rows
}

// What an update computes once for all rows that begin alike has the gradient that each row alone would give.
func TestSharedPromptsHaveTheGradientOfRowsAlone(t *testing.T) {
	for _, name := range tinyModels {
		for _, checkpointing := range []string{"none", "mlp", "layer"} {
			m := load(t, name, Options{Trainable: true, ActivationCheckpointing: checkpointing})
			r := rand.New(rand.NewPCG(11, 12))
			for trial := range 6 {
				var rows []model.TrainRow
				for range 1 + r.IntN(2) { // one or two questions
					_, group := randomGroup(r, 1+r.IntN(8), m.Architecture.VocabSize)
					rows = append(rows, group...)
				}
				packed, _, err := packTrainRows(rows, ppo.Kind, 1)
				if err != nil {
					t.Fatal(err)
				}
				if whole := tokensOf(rows); len(rows) > 2 && len(packed.ids) >= whole {
					t.Errorf("%d tokens are computed of %d: nothing is shared", len(packed.ids), whole)
				}
				alone := backward(t, m, rows, 1, ppo)
				want := gradientsOf(t, m)
				shared := backward(t, m, rows, len(rows), ppo)
				relative(t, "loss", shared.Loss(), alone.Loss(), 1e-5)
				got := gradientsOf(t, m)
				for tensor, wanted := range want {
					if distance := relativeDistance(got[tensor], wanted); !(distance <= 1e-4) {
						t.Errorf("%s, checkpointing %s, trial %d, %s: relative distance %.2g of the gradient", name, checkpointing, trial, tensor, distance)
					}
				}
			}
		}
	}
}

func tokensOf(rows []model.TrainRow) (tokens int) {
	for _, row := range rows {
		tokens += len(row.IDs)
	}
	return tokens
}

// gradientsOf reads the summed gradient of every parameter and drops it.
func gradientsOf(t *testing.T, m *Model) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, p := range m.Parameters() {
		values, err := m.ReadFloat32(gradient, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[p.Name] = values
	}
	if err := m.DropGradient(); err != nil {
		t.Fatal(err)
	}
	return all
}

// relativeDistance is ‖got − want‖ / ‖want‖.
func relativeDistance(got, want []float32) float64 {
	var difference, size float64
	for k := range want {
		difference += math.Pow(float64(got[k])-float64(want[k]), 2)
		size += math.Pow(float64(want[k]), 2)
	}
	if size == 0 {
		return math.Sqrt(difference)
	}
	return math.Sqrt(difference / size)
}

// scoredRows are the rows of a group as they are scored for the memory reward and for the old log-probs.
func scoredRows(r *rand.Rand, prompt []int32, trained []model.TrainRow, vocab int) (rows []prefix.Row) {
	answer := randomIDs(r, 1+r.IntN(6), vocab)
	score := func(context ...[]int32) {
		row := prefix.Row{ScoreRow: model.ScoreRow{IDs: slices.Concat(context...)}, Temperature: 1}
		for k := range answer {
			row.Positions = append(row.Positions, int32(len(row.IDs)+k))
		}
		row.IDs = append(row.IDs, answer...)
		rows = append(rows, row)
	}
	mark := []int32{5, 6}
	for _, row := range trained {
		rows = append(rows, prefix.Row{ScoreRow: model.ScoreRow{IDs: row.IDs, Positions: row.Positions}, Temperature: 0.8})
		for at := len(prompt) + 1; at < len(row.IDs); at += 1 + r.IntN(20) {
			score(row.IDs[:at], mark)
			score(prompt, row.IDs[at:min(at+4, len(row.IDs))], mark)
		}
	}
	return rows
}

// One pass over the tree gives what each row alone gives, within any budget.
func TestScoresOfATreeAreThoseOfRowsAlone(t *testing.T) {
	for _, name := range tinyModels {
		m := load(t, name, Options{})
		r := rand.New(rand.NewPCG(13, 14))
		for trial := range 12 {
			prompt, trained := randomGroup(r, 1+r.IntN(8), m.Architecture.VocabSize)
			rows := scoredRows(r, prompt, trained, m.Architecture.VocabSize)
			budget := []int{1 << 20, 300, 40}[trial%3]
			s, err := m.NewSession(model.SessionOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := prefix.Score(context.Background(), s, rows, budget, nil)
			if err != nil {
				t.Fatal(err)
			}
			if pages := s.Usage().Pages; pages != 0 {
				t.Errorf("%d pages are in use at the end", pages)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for k, row := range rows {
				want, err := m.Score([]model.ScoreRow{row.ScoreRow}, row.Temperature)
				if err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("%s, trial %d, row %d", name, trial, k)
				near(t, what, got[k].LogProbs, want[0].LogProbs, 1e-4)
				near(t, what+", entropy", got[k].Entropy, want[0].Entropy, 1e-4)
			}
		}
	}
}
