package trainer

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// toyConfig is config.json of the model folder that a toy model pretends to come from.
const toyConfig = `{"architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 2, "intermediate_size": 2,
 "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 2048,
 "tie_word_embeddings": true, "torch_dtype": "float32", "eos_token_id": 256}`

const (
	embedding = "model.embed_tokens.weight"
	width     = 2 // of an embedding; its first element is the token's weight
)

// toyScorer is a "model" with one weight for each id: the log-probability of a token is a number
// that depends on all ids up to it, plus the token's weight. It need not be a distribution, and so
// everything can be computed by hand.
type toyScorer struct {
	weights     []float32
	probability func(context string) float64 // of each token of a memory's answer, if it is set
	calls       []scoreCall                  // of whole rows
	onScore     func() error                 // may refuse a call, of whole rows or in a session
}

type scoreCall struct {
	rows        []model.ScoreRow
	temperature float64
}

func (s *toyScorer) Score(rows []model.ScoreRow, temperature float64) ([]model.RowScores, error) {
	s.calls = append(s.calls, scoreCall{slices.Clone(rows), temperature})
	if err := s.mayScore(); err != nil {
		return nil, err
	}
	scores := make([]model.RowScores, len(rows))
	for k, row := range rows {
		scores[k] = s.scoreRow(row, temperature)
	}
	return scores, nil
}

func (s *toyScorer) mayScore() error {
	if s.onScore == nil {
		return nil
	}
	return s.onScore()
}

// scoreRow scores a row. Tests sample at another temperature than memories are measured at.
func (s *toyScorer) scoreRow(row model.ScoreRow, temperature float64) (scores model.RowScores) {
	if temperature == memoryTemperature && s.probability != nil {
		logProb := float32(math.Log(s.probability(decode(row.IDs[:row.Positions[0]]))))
		return model.RowScores{LogProbs: slices.Repeat([]float32{logProb}, len(row.Positions)), Entropy: make([]float32, len(row.Positions))}
	}
	logProbs := s.logProbs(row.IDs)
	for _, position := range row.Positions {
		scores.LogProbs = append(scores.LogProbs, logProbs[position])
		scores.Entropy = append(scores.Entropy, toyEntropy(row.IDs[position]))
	}
	return scores
}

// NewSession opens a session in which nothing can be sampled.
func (s *toyScorer) NewSession(model.SessionOptions) (model.Session, error) {
	return &fakeSession{scorer: s, rows: map[int]*fakeRow{}}, nil
}

// toyEntropy is a number that depends on the token.
func toyEntropy(id int32) float32 { return 1 + float32(id)/64 }

// logProbs of every token, by a running hash of the ids.
func (s *toyScorer) logProbs(ids []int32) []float32 {
	hash := uint32(2166136261)
	out := make([]float32, len(ids))
	for k, id := range ids {
		hash = (hash ^ uint32(id)) * 16777619
		out[k] = -float32(hash%997+1)/997 + s.weights[width*id]
	}
	return out
}

func (s *toyScorer) last(ids []int32) float32 { return s.logProbs(ids)[len(ids)-1] }

// toyActor is a toyScorer that writes by a script and learns by plain gradient descent. Its "first
// moment" is the latest gradient.
type toyActor struct {
	fakeWriter
	toyScorer
	parameters []model.Parameter
	tensors    map[string][]float32 // moments, by kind/name
	gradient   []float64            // accumulated, by id
	micro      [][]model.TrainRow   // of each ForwardBackward
	sizes      []int                // micro-batches of each Update tried
	pending    int                  // micro-batches since the last Update or drop
	gradients  [][]float64          // of each Update tried
	rates      []float64            // of each Update tried
	drops      int
	updates    int64

	onForward func(call int) error  // may refuse a micro-batch, counted from 1
	onUpdate  func(call int) error  // may refuse an update, counted from 1
	poison    func(update int) bool // makes a gradient NaN, counted from 1
	onDrop    error
}

func newToyActor(t testing.TB, s script) *toyActor {
	a := &toyActor{toyScorer: toyScorer{weights: make([]float32, width*(endID+1))}, gradient: make([]float64, endID+1), tensors: map[string][]float32{}}
	a.fakeWriter = fakeWriter{t: t, script: s, logProb: a.last, scorer: &a.toyScorer}
	return a
}

func (a *toyActor) NewSession(options model.SessionOptions) (model.Session, error) {
	return a.fakeWriter.NewSession(options)
}

// frozen is a copy that does not learn, its weights moved by shift.
func (a *toyActor) frozen(shift float32) *toyScorer {
	copied := slices.Clone(a.weights)
	for id := range endID + 1 {
		copied[width*id] += shift * float32(id%3)
	}
	return &toyScorer{weights: copied}
}

func (a *toyActor) ForwardBackward(rows []model.TrainRow, loss model.LossOptions) (model.LossStats, error) {
	a.micro = append(a.micro, rows)
	a.pending++
	if a.onForward != nil {
		if err := a.onForward(len(a.micro)); err != nil {
			return model.LossStats{}, err
		}
	}
	var stats model.LossStats
	for _, row := range rows {
		stats.Computed += float64(len(row.IDs))
		logProbs := a.logProbs(row.IDs)
		for k, position := range row.Positions {
			stats.Add(a.learn(row.IDs[position], k, float64(logProbs[position]), row, loss))
		}
	}
	return stats, nil
}

// learn adds one token's gradient: the clipped loss, and the KL term exp(d) − d − 1 of d = ref − new.
func (a *toyActor) learn(id int32, k int, logProb float64, row model.TrainRow, loss model.LossOptions) model.LossStats {
	weight, advantage := float64(row.Weights[k]), float64(row.Advantages[k])
	difference := logProb - float64(row.OldLogProbs[k])
	ratio := math.Exp(difference)
	plain := -ratio * advantage
	clipped := -min(max(ratio, 1-loss.ClipLow), 1+loss.ClipHigh) * advantage
	stats := model.LossStats{Policy: weight * max(plain, clipped), Tokens: 1, MaxLogRatio: math.Abs(difference)}
	if clipped > plain {
		stats.Clipped = 1
	} else {
		a.gradient[id] += weight * plain
	}
	d := float64(row.RefLogProbs[k]) - logProb
	stats.KL = weight * loss.KLCoef * (math.Exp(d) - d - 1)
	a.gradient[id] += weight * loss.KLCoef * (1 - math.Exp(d))
	return stats
}

func (a *toyActor) Update(rate float64, _ model.OptimizerOptions) (model.UpdateStats, error) {
	call := len(a.gradients) + 1
	if a.onUpdate != nil {
		if err := a.onUpdate(call); err != nil {
			return model.UpdateStats{}, err
		}
	}
	if a.poison != nil && a.poison(call) {
		a.gradient[7] = math.NaN()
	}
	a.gradients, a.rates, a.sizes = append(a.gradients, slices.Clone(a.gradient)), append(a.rates, rate), append(a.sizes, a.pending)
	squares := 0.0
	for _, g := range a.gradient {
		squares += g * g
	}
	stats := model.UpdateStats{GradNorm: math.Sqrt(squares), Skipped: math.IsNaN(squares)}
	if !stats.Skipped {
		moment := make([]float32, len(a.weights))
		for id, g := range a.gradient {
			a.weights[width*id] -= float32(rate * g)
			moment[width*id] = float32(g)
		}
		a.tensors[string(model.FirstMoment)+"/"+embedding] = moment
		a.updates++
	}
	a.clear()
	return stats, nil
}

func (a *toyActor) clear() {
	clear(a.gradient)
	a.pending = 0
}

func (a *toyActor) DropGradient() error {
	a.drops++
	a.clear()
	return a.onDrop
}

// rows of all micro-batches so far.
func (a *toyActor) rows() []model.TrainRow { return slices.Concat(a.micro...) }

func (a *toyActor) MemoryUsage() (model.MemoryUsage, error) {
	return model.MemoryUsage{Current: 1, Peak: 1 << 20}, nil
}

func (a *toyActor) ResetPeak() error { return nil }

func (a *toyActor) Parameters() []model.Parameter { return a.parameters }

func (a *toyActor) Adapters() model.Adapters { return model.Adapters{} }

func (a *toyActor) ReadFloat32(kind model.TensorKind, name string) ([]float32, error) {
	if kind == model.Master && name == embedding {
		return slices.Clone(a.weights), nil
	}
	if values, ok := a.tensors[string(kind)+"/"+name]; ok {
		return slices.Clone(values), nil
	}
	for _, parameter := range a.parameters {
		if parameter.Name == name {
			return make([]float32, weights.Bytes(weights.F32, parameter.Shape)/4), nil
		}
	}
	return nil, fmt.Errorf("no tensor %s", name)
}

func (a *toyActor) WriteFloat32(kind model.TensorKind, name string, data []float32) error {
	if kind == model.Master && name == embedding {
		copy(a.weights, data)
		return nil
	}
	a.tensors[string(kind)+"/"+name] = slices.Clone(data)
	return nil
}

func (a *toyActor) UpdateCount() int64     { return a.updates }
func (a *toyActor) SetUpdateCount(n int64) { a.updates = n }

// toyFolder is the model folder of a new toyActor.
func toyFolder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(toyConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	var entries []weights.Entry
	for _, parameter := range architecture.Parameters() {
		zeros := make([]byte, weights.Bytes(weights.F32, parameter.Shape))
		entries = append(entries, weights.Entry{Name: parameter.Name, DType: weights.F32, Shape: parameter.Shape, Data: func() ([]byte, error) { return zeros, nil }})
	}
	if err := weights.WriteFile(filepath.Join(dir, weights.SingleFile), entries); err != nil {
		t.Fatal(err)
	}
	return dir
}
