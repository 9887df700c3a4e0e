package engine

import (
	"math"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

type goldenTrain struct {
	Lengths []int    `json:"lengths"`
	Named   []string `json:"named"`
	Cases   []struct {
		Case   string  `json:"case"`
		KLCoef float64 `json:"kl_coef"`
		Steps  []struct {
			Loss     float64 `json:"loss"`
			Policy   float64 `json:"pg_loss"`
			KL       float64 `json:"kl_loss"`
			Clipped  float64 `json:"clipfrac"`
			Entropy  float64 `json:"entropy"`
			GradNorm float64 `json:"grad_norm_before_clip"`
		} `json:"steps"`
	} `json:"cases"`
}

var ppo = model.LossOptions{ClipLow: 0.2, ClipHigh: 0.2, DualClip: 3, KLEstimator: "low_var_kl", KLCoef: 0.001, Temperature: 1}

var adamW = model.OptimizerOptions{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, ClipNorm: 1}

// trainRows reads the golden batch; the loss is the mean over its tokens.
func trainRows(t *testing.T, f tensors, lengths []int) []model.TrainRow {
	t.Helper()
	ids, mask := f.rows("input_ids"), f.rows("response_mask")
	old, ref, advantages := f.rows("old_logprobs"), f.rows("ref_logprobs"), f.rows("advantages")
	var rows []model.TrainRow
	total := 0
	for r, length := range lengths {
		row := model.TrainRow{}
		for p := range length {
			row.IDs = append(row.IDs, int32(ids[r][p]))
			if mask[r][p] == 0 {
				continue
			}
			total++
			row.Positions = append(row.Positions, int32(p))
			row.OldLogProbs = append(row.OldLogProbs, old[r][p])
			row.RefLogProbs = append(row.RefLogProbs, ref[r][p])
			row.Advantages = append(row.Advantages, advantages[r][p])
		}
		rows = append(rows, row)
	}
	for r := range rows {
		for range rows[r].Positions {
			rows[r].Weights = append(rows[r].Weights, 1/float32(total))
		}
	}
	return rows
}

func relative(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	deviation := math.Abs(got-want) / math.Max(math.Abs(want), 1e-3)
	record(t, deviation, tolerance)
	if !(deviation <= tolerance) {
		t.Errorf("%s = %.9g, want %.9g (relative tolerance %g)", what, got, want, tolerance)
	}
}

// backward adds the gradients of the rows in micro-batches of the given size.
func backward(t *testing.T, m *Model, rows []model.TrainRow, size int, loss model.LossOptions) model.LossStats {
	t.Helper()
	var sum model.LossStats
	for at := 0; at < len(rows); at += size {
		stats, err := m.ForwardBackward(rows[at:min(at+size, len(rows))], loss)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(stats)
	}
	return sum
}

func TestTrainingStepOfPyTorch(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenTrain
		readJSON(t, "train/"+name+".json", &want)
		for n, c := range want.Cases {
			for _, checkpointing := range []string{"none", "mlp", "layer"} {
				t.Run(name+"/"+c.Case, func(t *testing.T) {
					m := load(t, name, Options{Trainable: true, ActivationCheckpointing: checkpointing})
					numbers := openTensors(t, "train/"+name+"-"+c.Case+".safetensors")
					loss := ppo
					loss.KLCoef = want.Cases[n].KLCoef
					rows := trainRows(t, numbers, want.Lengths)
					for k, s := range c.Steps {
						stats := backward(t, m, rows, 4-2*k, loss)
						relative(t, "policy loss", stats.Policy, s.Policy, 1e-5*math.Pow(300, float64(k)))
						relative(t, "kl loss", stats.KL, s.KL*c.KLCoef, 1e-5*math.Pow(300, float64(k)))
						relative(t, "clip fraction", stats.Clipped/stats.Tokens, s.Clipped, 1e-6)
						if k == 0 {
							compareGradients(t, m, numbers, want.Named, c.Case)
						}
						updated, err := m.Update(1e-3, adamW)
						if err != nil || updated.Skipped {
							t.Fatal(updated, err)
						}
						relative(t, "gradient norm", updated.GradNorm, s.GradNorm, 1e-4*math.Pow(100, float64(k)))
						compareWeights(t, m, numbers, want.Named, c.Case, k)
					}
				})
			}
		}
	}
}

func compareGradients(t *testing.T, m *Model, numbers tensors, named []string, caseName string) {
	t.Helper()
	for _, name := range comparedNames(m, named, caseName == "A") {
		want, _ := numbers.get("grad." + name)
		got, err := m.ReadFloat32(gradient, name)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "gradient of "+name, got, want, 2e-5)
	}
}

func comparedNames(m *Model, named []string, all bool) []string {
	if !all {
		return named
	}
	named = nil
	for _, p := range m.Parameters() {
		named = append(named, p.Name)
	}
	return named
}

// compareWeights allows stray entries: AdamW's first step moves a weight by about the learning
// rate whatever the size of its gradient, so that rounding of a gradient near 0 shows.
func compareWeights(t *testing.T, m *Model, numbers tensors, named []string, caseName string, step int) {
	t.Helper()
	key := []string{"after1.", "after2."}[step]
	compared, strays := 0, 0
	for _, name := range comparedNames(m, named, step == 0 && caseName != "C") {
		want, _ := numbers.get(key + name)
		got, err := m.ReadFloat32(model.Master, name)
		if err != nil {
			t.Fatal(err)
		}
		for k := range want {
			diff := math.Abs(float64(got[k] - want[k]))
			compared++
			if diff > 2e-6 {
				strays++
			}
			if !(diff <= 2.1e-3) {
				t.Fatalf("%s%s[%d] = %v, want %v", key, name, k, got[k], want[k])
			}
		}
	}
	// The second step starts from weights that already differ in those entries.
	if limit := 3 + compared*(1+4*step)/1000; strays > limit {
		t.Errorf("%s: %d of %d weights are off by more than 2e-6; at most %d may be", key, strays, compared, limit)
	}
}

func TestMicroBatchesAddUpToTheSameGradient(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenTrain
		readJSON(t, "train/"+name+".json", &want)
		numbers := openTensors(t, "train/"+name+"-A.safetensors")
		rows := trainRows(t, numbers, want.Lengths)
		m := load(t, name, Options{Trainable: true})
		var first map[string][]float32
		for _, size := range []int{4, 3, 2, 1} {
			backward(t, m, rows, size, ppo)
			gradients := map[string][]float32{}
			for _, p := range m.Parameters() {
				g, err := m.ReadFloat32(gradient, p.Name)
				if err != nil {
					t.Fatal(err)
				}
				gradients[p.Name] = g
			}
			if first == nil {
				first = gradients
			}
			for parameter, g := range gradients {
				near(t, parameter, g, first[parameter], 1e-5)
			}
			if err := m.DropGradient(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestNonFiniteGradientChangesNothing(t *testing.T) {
	var want goldenTrain
	readJSON(t, "train/qwen2-tiny.json", &want)
	rows := trainRows(t, openTensors(t, "train/qwen2-tiny-A.safetensors"), want.Lengths)
	m := load(t, "qwen2-tiny", Options{Trainable: true})
	backward(t, m, rows, 4, ppo)
	if _, err := m.Update(1e-3, adamW); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, m)
	rows[1].Advantages[0] = float32(math.NaN())
	backward(t, m, rows, 4, ppo)
	updated, err := m.Update(1e-3, adamW)
	if err != nil || !updated.Skipped {
		t.Fatalf("update = %+v, %v; want it skipped", updated, err)
	}
	for key, values := range snapshot(t, m) {
		near(t, key, values, before[key], 0)
	}
	if m.UpdateCount() != 1 {
		t.Errorf("update count = %d, want 1", m.UpdateCount())
	}
}

// snapshot copies master weights and moments.
func snapshot(t *testing.T, m *Model) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, kind := range []model.TensorKind{model.Master, model.FirstMoment, model.SecondMoment} {
		for _, p := range m.Parameters() {
			values, err := m.ReadFloat32(kind, p.Name)
			if err != nil {
				t.Fatal(err)
			}
			all[string(kind)+" "+p.Name] = values
		}
	}
	return all
}

func TestStateGoesRoundThroughWrites(t *testing.T) {
	var want goldenTrain
	readJSON(t, "train/qwen3-tiny.json", &want)
	rows := trainRows(t, openTensors(t, "train/qwen3-tiny-A.safetensors"), want.Lengths)
	a, b := load(t, "qwen3-tiny", Options{Trainable: true}), load(t, "qwen3-tiny", Options{Trainable: true})
	step := func(m *Model) {
		backward(t, m, rows, 2, ppo)
		if _, err := m.Update(1e-3, adamW); err != nil {
			t.Fatal(err)
		}
	}
	step(a)
	for _, kind := range []model.TensorKind{model.Master, model.FirstMoment, model.SecondMoment} {
		for _, p := range a.Parameters() {
			values, err := a.ReadFloat32(kind, p.Name)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.WriteFloat32(kind, p.Name, values); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.SetUpdateCount(a.UpdateCount())
	step(a)
	step(b)
	after := snapshot(t, a)
	for key, values := range snapshot(t, b) {
		near(t, key, values, after[key], 0)
	}
}

// The negative log-likelihood of every token of the golden sequences is what PyTorch's
// log-probabilities give.
func TestNegativeLogLikelihoodOfPyTorch(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenForward
		readJSON(t, "forward/"+name+".json", &want)
		m := load(t, name, Options{Trainable: true})
		var rows []model.TrainRow
		sum := 0.0
		for r, ids := range want.InputIDs {
			row := model.TrainRow{IDs: ids, Positions: every(len(ids))}
			for k, logProb := range want.Sequences[r].LogProbs {
				row.Weights = append(row.Weights, 1/float32(k+2))
				sum -= float64(logProb) * float64(row.Weights[k])
			}
			rows = append(rows, row)
		}
		for _, size := range []int{1, len(rows)} {
			stats := backward(t, m, rows, size, model.LossOptions{Kind: model.NegativeLogLikelihood, Temperature: 1})
			relative(t, name, stats.NegativeLogLikelihood, sum, 1e-5)
			if other := (model.LossStats{NegativeLogLikelihood: stats.NegativeLogLikelihood, Tokens: stats.Tokens, Computed: stats.Computed}); stats != other {
				t.Errorf("%s: the figures of the policy loss are %+v, want 0", name, stats)
			}
		}
	}
}

// The sign of the whole machine: a token with a positive advantage becomes likelier.
func TestAdvantageSignMovesTheProbability(t *testing.T) {
	for _, c := range []struct {
		advantage float32
		dtype     string
	}{{1, float32Name}, {-1, float32Name}, {1, bfloat16Name}, {-1, bfloat16Name}} {
		m := load(t, "llama-tiny", Options{Trainable: true, DType: c.dtype})
		ids := []int32{5, 6, 7, 8}
		row := []model.ScoreRow{{IDs: ids, Positions: []int32{3}}}
		before, err := m.Score(row, 1)
		if err != nil {
			t.Fatal(err)
		}
		p := before[0].LogProbs
		backward(t, m, []model.TrainRow{{IDs: ids, Positions: []int32{3}, OldLogProbs: p, RefLogProbs: p, Advantages: []float32{c.advantage}, Weights: []float32{1}}}, 1, ppo)
		if _, err := m.Update(1e-3, adamW); err != nil {
			t.Fatal(err)
		}
		after, err := m.Score(row, 1)
		if err != nil {
			t.Fatal(err)
		}
		if change := after[0].LogProbs[0] - p[0]; change*c.advantage <= 0 {
			t.Errorf("%s: advantage %v moved the log-prob by %v", c.dtype, c.advantage, change)
		}
	}
}
