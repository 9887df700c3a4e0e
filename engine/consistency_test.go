package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

func randomIDs(r *rand.Rand, n, vocab int) []int32 {
	ids := make([]int32, n)
	for k := range ids {
		ids[k] = int32(r.IntN(vocab))
	}
	return ids
}

// Generation with a cache, scoring and the training forward are one function of the tokens,
// whatever shares a batch with them.
func TestDecodePrefillAndTrainingForwardAgree(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			m := load(t, name, Options{Trainable: true})
			r := rand.New(rand.NewPCG(1, 2))
			sampled, rows := generateRagged(t, m, r)
			alone := scoreInSplits(t, m, rows, 1)
			for _, size := range []int{2, 3, len(rows)} {
				for k, s := range scoreInSplits(t, m, rows, size) {
					near(t, "scored in another split", s.LogProbs, alone[k].LogProbs, 5e-5)
				}
			}
			for k := range rows {
				near(t, "sampled log-probs", sampled[k], alone[k].LogProbs, 5e-5)
			}
			stats := backward(t, m, asTrainRows(rows, alone), len(rows), ppo)
			if stats.MaxLogRatio > 5e-5 {
				t.Errorf("training forward differs from scoring by %g", stats.MaxLogRatio)
			}
		})
	}
}

// generateRagged continues prompts of different lengths together: some rows decode while others
// take in several tokens, one is forked, one joins late.
func generateRagged(t *testing.T, m *Model, r *rand.Rand) (logProbs [][]float32, rows []model.ScoreRow) {
	t.Helper()
	s, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	vocab := m.Architecture.VocabSize
	var handles []int
	var pending [][]int32
	for _, length := range []int{1, 7, 300, 19} {
		row, err := s.Open()
		if err != nil {
			t.Fatal(err)
		}
		handles, pending = append(handles, row), append(pending, randomIDs(r, length, vocab))
	}
	rows, logProbs = make([]model.ScoreRow, len(handles)), make([][]float32, len(handles))
	for round := range 30 {
		var inputs []model.RowInput
		var who []int
		for k, row := range handles {
			if k == 3 && round < 5 {
				continue
			}
			if round%7 == k { // a tool result of several tokens follows the last sampled one
				pending[k] = append(pending[k], randomIDs(r, 1+r.IntN(20), vocab)...)
			}
			rows[k].IDs = append(rows[k].IDs, pending[k]...)
			inputs = append(inputs, model.RowInput{Row: row, IDs: pending[k], Sample: true, Sampling: model.Sampling{Temperature: 1}, Seed: r.Uint64()})
			who = append(who, k)
		}
		out, err := s.Step(inputs)
		if err != nil {
			t.Fatal(err)
		}
		for n, k := range who {
			rows[k].Positions = append(rows[k].Positions, int32(len(rows[k].IDs)))
			logProbs[k] = append(logProbs[k], out[n].LogProb)
			pending[k] = []int32{out[n].ID}
		}
		if round == 10 {
			forked, err := s.Fork(handles[1], len(rows[1].IDs))
			if err != nil {
				t.Fatal(err)
			}
			handles, pending = append(handles, forked), append(pending, pending[1])
			rows = append(rows, model.ScoreRow{IDs: append([]int32(nil), rows[1].IDs...), Positions: append([]int32(nil), rows[1].Positions...)})
			logProbs = append(logProbs, append([]float32(nil), logProbs[1]...))
		}
	}
	for k := range rows {
		rows[k].IDs = append(rows[k].IDs, pending[k]...)
	}
	return logProbs, rows
}

func scoreInSplits(t *testing.T, m *Model, rows []model.ScoreRow, size int) []model.RowScores {
	t.Helper()
	var all []model.RowScores
	for at := 0; at < len(rows); at += size {
		scores, err := m.Score(rows[at:min(at+size, len(rows))], 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, scores...)
	}
	return all
}

func asTrainRows(rows []model.ScoreRow, scores []model.RowScores) []model.TrainRow {
	var out []model.TrainRow
	for k, row := range rows {
		ones := make([]float32, len(row.Positions))
		for n := range ones {
			ones[n] = 1
		}
		out = append(out, model.TrainRow{
			IDs: row.IDs, Positions: row.Positions, OldLogProbs: scores[k].LogProbs, RefLogProbs: scores[k].LogProbs,
			Advantages: ones, Weights: ones,
		})
	}
	return out
}

// Before any update the ratio is exactly 1 when the same rows share a batch.
func TestRatioIsOneInTheSameSplit(t *testing.T) {
	for _, name := range tinyModels {
		for _, checkpointing := range []string{"none", "mlp", "layer"} {
			m := load(t, name, Options{Trainable: true, ActivationCheckpointing: checkpointing})
			r := rand.New(rand.NewPCG(3, 4))
			var rows []model.ScoreRow
			for _, length := range []int{5, 40, 17} {
				rows = append(rows, model.ScoreRow{IDs: randomIDs(r, length, m.Architecture.VocabSize), Positions: every(length)})
			}
			scores, err := m.Score(rows, 0.8)
			if err != nil {
				t.Fatal(err)
			}
			loss := ppo
			loss.Temperature = 0.8
			stats := backward(t, m, asTrainRows(rows, scores), len(rows), loss)
			if stats.MaxLogRatio != 0 || stats.Clipped != 0 || stats.KL != 0 {
				t.Errorf("%s: max |log ratio| = %g, clipped = %g, kl = %g; want 0", name, stats.MaxLogRatio, stats.Clipped, stats.KL)
			}
		}
	}
}

func TestSamplingFollowsTheDistribution(t *testing.T) {
	m := load(t, "qwen2-tiny", Options{})
	s, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	prompt := []int32{5, 9, 100}
	root, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step([]model.RowInput{{Row: root, IDs: prompt[:2]}}); err != nil {
		t.Fatal(err)
	}
	const draws = 4000
	counts := map[int32]float64{}
	for seed := range uint64(draws) {
		row, err := s.Fork(root, 2)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Step([]model.RowInput{{Row: row, IDs: prompt[2:], Sample: true, Sampling: model.Sampling{Temperature: 1}, Seed: seed}})
		if err != nil {
			t.Fatal(err)
		}
		counts[out[0].ID]++
		if err := s.Release(row); err != nil {
			t.Fatal(err)
		}
	}
	logits := nextLogits(t, "qwen2-tiny", prompt)
	p, err := filteredDistribution(logits, model.Sampling{Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	for id, q := range p {
		// Six standard deviations of a binomial count, and one draw for very rare ids.
		expected := draws * float64(q)
		if diff := counts[int32(id)] - expected; diff*diff > 36*expected+36 {
			t.Errorf("id %d: drawn %v times, expected %v", id, counts[int32(id)], expected)
		}
	}
}

func TestInvalidIDsAreRedrawnAndCounted(t *testing.T) {
	m := load(t, "qwen2-tiny", Options{})
	valid := make([]bool, 300) // ids from 300 on have no token
	for id := 100; id < 300; id++ {
		valid[id] = true
	}
	s, err := m.NewSession(model.SessionOptions{Valid: valid})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	row, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	redraws, next := 0, []int32{150}
	for k := range 200 {
		out, err := s.Step([]model.RowInput{{Row: row, IDs: next, Sample: true, Sampling: model.Sampling{Temperature: float64(k % 3)}, Seed: uint64(k)}})
		if err != nil {
			t.Fatal(err)
		}
		if id := out[0].ID; id < 100 || id >= 300 {
			t.Fatalf("sampled id %d, which has no token", id)
		}
		redraws += out[0].Redraws
		next = []int32{out[0].ID}
	}
	if redraws == 0 {
		t.Error("no redraw was counted")
	}
}

func TestWrongCallsAreErrors(t *testing.T) {
	m := load(t, "llama-tiny", Options{})
	if _, err := m.Score([]model.ScoreRow{{IDs: []int32{1, 320}, Positions: []int32{1}}}, 1); err == nil {
		t.Error("an id outside the vocabulary was scored")
	}
	if _, err := m.Score([]model.ScoreRow{{IDs: []int32{1, 2}, Positions: []int32{0}}}, 1); err == nil {
		t.Error("the first token of a row was scored")
	}
	if _, err := m.ForwardBackward([]model.TrainRow{{IDs: []int32{1, 2}, Positions: []int32{1}, OldLogProbs: []float32{0}, RefLogProbs: []float32{0}, Advantages: []float32{0}, Weights: []float32{0}}}, ppo); err == nil {
		t.Error("a model that is not trainable took a gradient")
	}
	s, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Step([]model.RowInput{{Row: 99, IDs: []int32{1}}}); err == nil {
		t.Error("a row that was never opened was extended")
	}
}

// What the program holds must not grow from step to step.
func TestMemoryStaysFlatOver200Steps(t *testing.T) {
	m := load(t, "qwen2-tiny", Options{Trainable: true})
	r := rand.New(rand.NewPCG(5, 6))
	step := func() {
		rows := []model.ScoreRow{{IDs: randomIDs(r, 50, 320), Positions: every(50)}, {IDs: randomIDs(r, 80, 320), Positions: every(80)}}
		generate(t, m, rows[0].IDs, 5, model.Sampling{Temperature: 1}, r.Uint64())
		scores, err := m.Score(rows, 1)
		if err != nil {
			t.Fatal(err)
		}
		backward(t, m, asTrainRows(rows, scores), 2, ppo)
		if _, err := m.Update(1e-5, adamW); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		step()
	}
	before, err := m.MemoryUsage()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		step()
	}
	after, err := m.MemoryUsage()
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Current - before.Current; grown > 8<<20 {
		t.Errorf("memory grew by %d bytes over 200 steps", grown)
	}
}
