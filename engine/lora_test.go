package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

type goldenLoRA struct {
	Adapters struct {
		Rank    int      `json:"rank"`
		Alpha   float64  `json:"alpha"`
		Targets []string `json:"targets"`
	} `json:"adapters"`
	Rows []struct {
		IDs       []int32 `json:"ids"`
		Positions []int32 `json:"positions"`
	} `json:"rows"`
	LogProbs        [][]float32 `json:"log_probs"`
	LogProbsWithout [][]float32 `json:"log_probs_without"`
	LogProbsAfter   [][]float32 `json:"log_probs_after"`
	Loss            float64     `json:"loss"`
	GradNorm        float64     `json:"grad_norm"`
}

func (g goldenLoRA) adapters() model.Adapters {
	return model.Adapters{Rank: g.Adapters.Rank, Alpha: g.Adapters.Alpha, Targets: g.Adapters.Targets}
}

// trainRows are those of the mean of −log p over all positions.
func (g goldenLoRA) trainRows() []model.TrainRow {
	total := 0
	for _, row := range g.Rows {
		total += len(row.Positions)
	}
	var rows []model.TrainRow
	for _, row := range g.Rows {
		rows = append(rows, model.TrainRow{IDs: row.IDs, Positions: row.Positions, Weights: slices.Repeat([]float32{1 / float32(total)}, len(row.Positions))})
	}
	return rows
}

// compare holds log-probs against those wanted, within a tolerance relative to the largest of a row.
func (g goldenLoRA) compare(t *testing.T, what string, scorer model.Scorer, want [][]float32, tolerance float64) {
	t.Helper()
	var rows []model.ScoreRow
	for _, row := range g.Rows {
		rows = append(rows, model.ScoreRow{IDs: row.IDs, Positions: row.Positions})
	}
	scores, err := scorer.Score(rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range scores {
		nearInSize(t, what, s.LogProbs, want[k], tolerance)
	}
}

func readTensor(t *testing.T, m *Model, kind model.TensorKind, name string) []float32 {
	t.Helper()
	values, err := m.ReadFloat32(kind, name)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// One step of training adapters is PEFT's and PyTorch's. Both round to float32, each in its own order of the sums: a logit is one
// of 48 to 64 products, so it is off by some 8 roundings of 6e-8 of its size (the square root of the products), and so is the
// normaliser; what the layers below add is of that size again. A gradient passes as many products on its way back, and is made of
// differences: 1e-5. The step itself divides gradients by their size, so that it turns errors of small ones into large ones.
func TestAdaptersOfPyTorch(t *testing.T) {
	const sameFloat32 = 32.0 / (1 << 24)
	for _, name := range tinyModels {
		for _, checkpointing := range []string{"none", "mlp", "layer"} {
			t.Run(name+"/"+checkpointing, func(t *testing.T) {
				var want goldenLoRA
				readJSON(t, "lora/"+name+".json", &want)
				numbers := openTensors(t, "lora/"+name+".safetensors")
				m := load(t, name, Options{Trainable: true, ActivationCheckpointing: checkpointing, Adapters: want.adapters()})
				for _, p := range m.Parameters() {
					start, _ := numbers.get("start." + p.Name)
					if err := m.WriteFloat32(model.Master, p.Name, start); err != nil {
						t.Fatal(err)
					}
				}
				want.compare(t, "log-probs", m, want.LogProbs, sameFloat32)
				want.compare(t, "log-probs without adapters", m.Base(), want.LogProbsWithout, sameFloat32)

				loss := model.LossOptions{Kind: model.NegativeLogLikelihood, Temperature: 1}
				stats := backward(t, m, want.trainRows(), 3, loss)
				relative(t, "loss", stats.NegativeLogLikelihood, want.Loss, 1e-5)
				for _, p := range m.Parameters() {
					gradients, _ := numbers.get("gradient." + p.Name)
					nearInSize(t, "gradient of "+p.Name, readTensor(t, m, gradient, p.Name), gradients, 1e-5)
				}
				updated, err := m.Update(1e-3, adamW)
				if err != nil || updated.Skipped {
					t.Fatal(updated, err)
				}
				relative(t, "gradient norm", updated.GradNorm, want.GradNorm, 1e-4)
				compareAfter(t, m, numbers)
				want.compare(t, "log-probs after the step", m, want.LogProbsAfter, 5e-6)
				want.compare(t, "log-probs without adapters after the step", m.Base(), want.LogProbsWithout, sameFloat32)
			})
		}
	}
}

// compareAfter holds the adapters, and the weights that they are added to, against those after the step.
func compareAfter(t *testing.T, m *Model, numbers tensors) {
	t.Helper()
	for _, p := range m.Parameters() {
		want, _ := numbers.get("after." + p.Name)
		near(t, p.Name+" after the step", readTensor(t, m, model.Master, p.Name), want, 1e-4)
	}
	for _, p := range m.Architecture.Parameters() {
		if strings.HasPrefix(p.Name, "model.layers.1.") && strings.HasSuffix(p.Name, "_proj.weight") {
			want, _ := numbers.get("merged." + p.Name)
			near(t, "merged "+p.Name, readTensor(t, m, model.Merged, p.Name), want, 1e-4)
		}
	}
}

// adapted loads a model with adapters on all projections, of which B is random where it is not to be zero.
func adapted(t *testing.T, name string, o Options, random bool) *Model {
	t.Helper()
	o.Trainable, o.Adapters, o.Seed = true, model.Adapters{Rank: 3, Alpha: 6, Targets: model.Projections}, 9
	m := load(t, name, o)
	r := rand.New(rand.NewPCG(5, 6))
	for _, p := range m.Parameters() {
		if !random || !strings.HasSuffix(p.Name, ".lora_B.weight") {
			continue
		}
		values := make([]float32, elements(p.Shape))
		for k := range values {
			values[k] = 0.2 * float32(r.NormFloat64())
		}
		if err := m.WriteFloat32(model.Master, p.Name, values); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Adapters as they start, with a B of zeros, give the model that they are added to, bit for bit.
func TestAdaptersAddNothingAtFirst(t *testing.T) {
	for _, name := range tinyModels {
		for _, dtype := range []string{float32Name, bfloat16Name} {
			plain, m := load(t, name, Options{DType: dtype}), adapted(t, name, Options{DType: dtype}, false)
			row := model.ScoreRow{IDs: randomIDs(rand.New(rand.NewPCG(1, 1)), 60, m.Architecture.VocabSize), Positions: every(60)}
			want, errWant := plain.Score([]model.ScoreRow{row}, 1)
			got, err := m.Score([]model.ScoreRow{row}, 1)
			if errWant != nil || err != nil || !slices.Equal(got[0].LogProbs, want[0].LogProbs) || !slices.Equal(got[0].Entropy, want[0].Entropy) {
				t.Errorf("%s in %s: scores differ, %v %v", name, dtype, errWant, err)
			}
			wantIDs, wantLogProbs := generate(t, plain, row.IDs[:20], 30, model.Sampling{Temperature: 1}, 7)
			ids, logProbs := generate(t, m, row.IDs[:20], 30, model.Sampling{Temperature: 1}, 7)
			if !slices.Equal(ids, wantIDs) || !slices.Equal(logProbs, wantLogProbs) {
				t.Errorf("%s in %s: what is generated differs", name, dtype)
			}
			for _, p := range m.Architecture.Parameters() {
				if !slices.Equal(readTensor(t, m, model.Merged, p.Name), readTensor(t, plain, model.Master, p.Name)) {
					t.Errorf("%s in %s: merged, %s is another", name, dtype, p.Name)
				}
			}
		}
	}
}

// Generation, scoring and the training forward agree with adapters too, and so do generation and scoring without them.
func TestDecodePrefillAndTrainingForwardAgreeWithAdapters(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			m := adapted(t, name, Options{}, true)
			sampled, rows := generateRagged(t, m, rand.New(rand.NewPCG(1, 2)))
			alone := scoreInSplits(t, m, rows, 1)
			for k := range rows {
				near(t, "sampled log-probs", sampled[k], alone[k].LogProbs, 5e-5)
			}
			if stats := backward(t, m, asTrainRows(rows, alone), len(rows), ppo); stats.MaxLogRatio > 5e-5 {
				t.Errorf("training forward differs from scoring by %g", stats.MaxLogRatio)
			}
			base, err := m.Base().Score(rows, 1)
			if err != nil {
				t.Fatal(err)
			}
			plain := scoreInSplits(t, load(t, name, Options{}), rows, len(rows))
			for k := range rows {
				near(t, "scored without adapters", base[k].LogProbs, plain[k].LogProbs, 0)
				near(t, "in a session without adapters", sessionScores(t, m.Base(), rows[k]), base[k].LogProbs, 5e-5)
			}
			if most := mostApart(base[0].LogProbs, alone[0].LogProbs); most < 0.01 {
				t.Errorf("adapters change log-probs by no more than %g", most)
			}
		})
	}
}

func sessionScores(t *testing.T, p model.Policy, row model.ScoreRow) []float32 {
	t.Helper()
	s, err := p.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	handle, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	scores, err := s.Score([]model.Piece{{Row: handle, IDs: row.IDs, Positions: row.Positions, Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return scores[0].LogProbs
}

func mostApart(a, b []float32) float64 {
	most := 0.0
	for k := range a {
		most = math.Max(most, math.Abs(float64(a[k]-b[k])))
	}
	return most
}

// A model whose weights have the adapters added is the model with adapters.
func TestMergedWeightsAreTheModelWithAdapters(t *testing.T) {
	for _, name := range tinyModels {
		m, plain := adapted(t, name, Options{}, true), load(t, name, Options{})
		for _, p := range plain.Parameters() {
			if err := plain.WriteFloat32(model.Master, p.Name, readTensor(t, m, model.Merged, p.Name)); err != nil {
				t.Fatal(err)
			}
		}
		rows := []model.ScoreRow{{IDs: randomIDs(rand.New(rand.NewPCG(2, 1)), 70, m.Architecture.VocabSize), Positions: every(70)}}
		near(t, name, scoreInSplits(t, plain, rows, 1)[0].LogProbs, scoreInSplits(t, m, rows, 1)[0].LogProbs, 3e-5)
	}
}

// Steps move adapters and nothing else, in either dtype, and lower the loss.
func TestOnlyAdaptersAreTrained(t *testing.T) {
	for _, dtype := range []string{float32Name, bfloat16Name} {
		m := adapted(t, "qwen3-tiny", Options{DType: dtype}, false)
		before := map[string][]float32{}
		for _, p := range m.Architecture.Parameters() {
			before[p.Name] = readTensor(t, m, model.Master, p.Name)
		}
		ids := randomIDs(rand.New(rand.NewPCG(3, 1)), 40, m.Architecture.VocabSize)
		rows := []model.TrainRow{{IDs: ids, Positions: every(40), Weights: slices.Repeat([]float32{1.0 / 39}, 39)}}
		var losses []float64
		for range 30 {
			losses = append(losses, backward(t, m, rows, 1, model.LossOptions{Kind: model.NegativeLogLikelihood, Temperature: 1}).Loss())
			if _, err := m.Update(1e-2, adamW); err != nil {
				t.Fatal(err)
			}
		}
		if last := losses[len(losses)-1]; last > losses[0]-1 {
			t.Errorf("%s: the loss went from %g to %g", dtype, losses[0], last)
		}
		for name, values := range before {
			if !slices.Equal(readTensor(t, m, model.Master, name), values) {
				t.Errorf("%s: %s has moved", dtype, name)
			}
			if kept := readTensor(t, m, model.FirstMoment, name); slices.Max(kept) != 0 {
				t.Errorf("%s: %s has moments", dtype, name)
			}
		}
		for _, p := range m.Parameters() {
			if kept := readTensor(t, m, model.SecondMoment, p.Name); slices.Max(kept) == 0 {
				t.Errorf("%s: %s was not trained", dtype, p.Name)
			}
		}
	}
}

func TestWrongAdapters(t *testing.T) {
	_, err := device.Load(golden+"/models/qwen2-tiny", Options{Trainable: true, Adapters: model.Adapters{Rank: 2, Alpha: 4, Targets: []string{"lm_head"}}})
	if err == nil || !strings.Contains(err.Error(), `adapters on "lm_head"; allowed are q_proj, k_proj`) {
		t.Errorf("got %v", err)
	}
	m := adapted(t, "qwen2-tiny", Options{}, false)
	frozen := m.Architecture.Parameters()[0]
	if err := m.WriteFloat32(model.FirstMoment, frozen.Name, make([]float32, elements(frozen.Shape))); err == nil || !strings.Contains(err.Error(), "only adapters are") {
		t.Errorf("moments of a frozen weight: %v", err)
	}
	if err := m.WriteFloat32(model.Merged, frozen.Name, make([]float32, elements(frozen.Shape))); err == nil {
		t.Error("a merged weight was written")
	}
}
