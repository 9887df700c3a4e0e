package engine

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/wangkuiyi/gotorch"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// Options say how a model is loaded.
type Options struct {
	DType                   string         // compute dtype: "auto" (float32 on a CPU, bfloat16 on CUDA), "float32", "bfloat16"
	Trainable               bool           // keep float32 master weights, so that it can learn
	ActivationCheckpointing string         // what the backward pass computes again: "none" (or ""), "mlp" or "layer"
	OptimizerOffload        string         // where masters and moments are kept: "none" (or "", on the device) or "cpu"
	Adapters                model.Adapters // of a trainable model: what is trained in place of its weights
	RandomWeights           bool           // made on the device: of the folder only config.json is read
	Seed                    uint64         // of the adapters' first values, and of random weights
}

// Model is a language model on the device. It implements model.Policy, model.Scorer,
// model.Learner and model.State.
type Model struct {
	*Runtime
	Architecture model.Architecture
	handle       modelHandle
	adapters     model.Adapters
	sizes        map[string]int // elements of each weight, adapters' ones among them
	groups       int            // of the rows of a call, which run side by side
}

// smallModel is the number of parameters below which the rows of a call run in groups side by side, one for each thread:
// its products are too small to be shared by threads. Each group has a sum of gradients of its own, so there are no more
// than mostGroups.
const smallModel, mostGroups = 1 << 24, 8

var (
	_ model.Policy  = (*Model)(nil)
	_ model.Scorer  = (*Model)(nil)
	_ model.Learner = (*Model)(nil)
	_ model.State   = (*Model)(nil)
	_ model.Memory  = (*Model)(nil)
)

// Load reads a HuggingFace model folder onto the device.
func (r *Runtime) Load(dir string, o Options) (*Model, error) {
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		return nil, err
	}
	var files *weights.Folder
	if !o.RandomWeights {
		if files, err = weights.Open(dir); err != nil {
			return nil, err
		}
		defer files.Close()
	}
	dtype, err := computeDType(o.DType, r.device)
	if err != nil {
		return nil, err
	}
	m := &Model{Runtime: r, Architecture: architecture, adapters: o.Adapters, sizes: map[string]int{}, groups: r.groupsOf(architecture.Parameters())}
	for _, p := range slices.Concat(architecture.Parameters(), architecture.AdapterParameters(o.Adapters)) {
		m.sizes[p.Name] = elements(p.Shape)
	}
	err = r.do(func() error {
		if m.handle, err = modelNew(architecture, r.device, o, dtype, m.groups); err != nil {
			return err
		}
		if o.RandomWeights {
			return m.fillRandomly(o.Seed)
		}
		return copyWeights(architecture.Parameters(), files, func(name string, tensor unsafe.Pointer) error {
			return modelSetWeight(m.handle, name, tensor)
		})
	})
	for _, p := range architecture.AdapterParameters(o.Adapters) {
		if err == nil {
			err = m.WriteFloat32(model.Master, p.Name, p.Start(o.Seed))
		}
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("loading model %s: %w", dir, err)
	}
	return m, nil
}

// copyWeights hands the tensors of the files over, one at a time, each as an at::Tensor*.
func copyWeights(parameters []model.Parameter, files *weights.Folder, set func(name string, tensor unsafe.Pointer) error) error {
	const collectEvery = 256 << 20 // gotorch frees its copies in finalizers only
	pending := 0
	for _, p := range parameters {
		stored, found := files.Tensor(p.Name)
		if !found {
			return fmt.Errorf("tensor %s is missing", p.Name)
		}
		tensor, err := tensorOf(unsafe.Pointer(unsafe.SliceData(stored.Data)), stored.DType, stored.Shape)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", p.Name, err)
		}
		err = set(p.Name, *tensor.T)
		runtime.KeepAlive(tensor)
		if err != nil {
			return err
		}
		if pending += len(stored.Data); pending > collectEvery {
			pending = 0
			runtime.GC()
		}
	}
	runtime.GC()
	return nil
}

// tensorOf copies numbers into a tensor of a shape.
func tensorOf(data unsafe.Pointer, dtype string, shape []int64) (tensor gotorch.Tensor, err error) {
	defer func() { // gotorch panics where torch throws, as it does here only for want of memory
		if problem := recover(); problem != nil {
			text, _, _ := strings.Cut(fmt.Sprint(problem), "\n") // what follows is for people who debug libtorch
			err = fmt.Errorf("%w: %s", model.ErrOutOfMemory, text)
		}
	}()
	return gotorch.FromBlob(data, torchDType[dtype], shape), nil
}

var torchDType = map[string]int8{"F32": gotorch.Float, "F16": gotorch.Half, "BF16": gotorch.BFloat16}

// The compute dtypes.
const float32Name, bfloat16Name = "float32", "bfloat16"

func computeDType(name, device string) (string, error) {
	switch name {
	case float32Name, bfloat16Name:
		return name, nil
	case "", "auto":
		if device == "cpu" {
			return float32Name, nil
		}
		return bfloat16Name, nil
	}
	return "", fmt.Errorf(`dtype is %q; allowed are "auto", "float32" and "bfloat16"`, name)
}

// groupsOf is the number of groups that the rows of a call are split into, for a model of these parameters.
func (r *Runtime) groupsOf(parameters []model.Parameter) int {
	total := 0
	for _, p := range parameters {
		total += elements(p.Shape)
	}
	if r.device == "cpu" && total < smallModel {
		return min(r.threads, mostGroups)
	}
	return 1
}

func elements(shape []int64) int {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return int(n)
}

// Close frees the model. Sessions must be closed before.
func (m *Model) Close() error {
	if m.handle == nil {
		return nil
	}
	return m.do(func() error {
		modelFree(m.handle)
		m.handle = nil
		return nil
	})
}

// Score implements model.Scorer.
func (m *Model) Score(rows []model.ScoreRow, temperature float64) ([]model.RowScores, error) {
	return m.score(rows, temperature, false)
}

func (m *Model) score(rows []model.ScoreRow, temperature float64, base bool) ([]model.RowScores, error) {
	var packed packedRows
	for _, row := range rows {
		if err := checkPositions(row.IDs, row.Positions); err != nil {
			return nil, err
		}
		packed.add(row.IDs, row.Positions)
	}
	scores := make([]model.RowScores, len(rows))
	if len(packed.positions) == 0 {
		return scores, nil
	}
	var logProbs, entropies []float32
	err := m.do(func() (err error) {
		logProbs, entropies, err = score(m.handle, &packed, temperature, base)
		return err
	})
	if err != nil {
		return nil, err
	}
	for k, row := range rows {
		scores[k], logProbs, entropies = cutScores(len(row.Positions), logProbs, entropies)
	}
	return scores, nil
}

// cutScores takes the scores of n tokens from the front of columns.
func cutScores(n int, logProbs, entropies []float32) (scores model.RowScores, restOfLogProbs, restOfEntropies []float32) {
	return model.RowScores{LogProbs: logProbs[:n:n], Entropy: entropies[:n:n]}, logProbs[n:], entropies[n:]
}

// ForwardBackward implements model.Learner.
func (m *Model) ForwardBackward(rows []model.TrainRow, loss model.LossOptions) (stats model.LossStats, err error) {
	packed, columns, err := packTrainRows(rows, loss.Kind, m.groups)
	if err != nil || len(packed.positions) == 0 {
		return model.LossStats{}, err
	}
	err = m.do(func() (err error) {
		stats, err = forwardBackward(m.handle, packed, columns, loss)
		stats.Computed = float64(len(packed.ids))
		return err
	})
	return stats, err
}

// Update implements model.Learner.
func (m *Model) Update(learningRate float64, o model.OptimizerOptions) (stats model.UpdateStats, err error) {
	err = m.do(func() (err error) {
		stats, err = update(m.handle, learningRate, o)
		return err
	})
	return stats, err
}

// DropGradient implements model.Learner.
func (m *Model) DropGradient() error {
	return m.do(func() error { return dropGradient(m.handle) })
}

// TokenLoss computes the loss of given log-probabilities and its gradient to them; every slice is
// aligned with newLogProbs. Row.IDs and Row.Positions are not read.
func TokenLoss(newLogProbs []float32, row model.TrainRow, o model.LossOptions) (model.LossStats, []float32, error) {
	var columns lossColumns
	if err := columns.add(o.Kind, len(newLogProbs), row.OldLogProbs, row.RefLogProbs, row.Advantages, row.Weights); err != nil {
		return model.LossStats{}, nil, err
	}
	return tokenLoss(newLogProbs, &columns, o)
}

// Parameters implements model.State.
func (m *Model) Parameters() []model.Parameter { return m.Architecture.Trained(m.adapters) }

// Adapters implements model.State.
func (m *Model) Adapters() model.Adapters { return m.adapters }

// ReadFloat32 implements model.State.
func (m *Model) ReadFloat32(kind model.TensorKind, name string) ([]float32, error) {
	out := make([]float32, m.sizes[name])
	err := m.do(func() error { return modelRead(m.handle, kind, name, out) })
	return out, err
}

// WriteFloat32 implements model.State.
func (m *Model) WriteFloat32(kind model.TensorKind, name string, data []float32) error {
	return m.do(func() error { return modelWrite(m.handle, kind, name, data) })
}

// UpdateCount implements model.State.
func (m *Model) UpdateCount() (n int64) {
	_ = m.do(func() error { n = modelUpdateCount(m.handle); return nil })
	return n
}

// SetUpdateCount implements model.State.
func (m *Model) SetUpdateCount(n int64) {
	_ = m.do(func() error { modelSetUpdateCount(m.handle, n); return nil })
}
