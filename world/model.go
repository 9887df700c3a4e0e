package world

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/weights"
)

// ModelOptions are the sizes of the small model, a Qwen2 with tied embeddings.
type ModelOptions struct {
	Hidden, Layers, Heads, KVHeads, Intermediate int
	RopeTheta                                    float64
	MaxPositions                                 int  // tokens of context
	CopyingStart                                 bool // weights from which copying is learnt soon
}

// writeModel fills an existing folder with the tokenizer and the model.
func (o Options) writeModel(dir string, c *cast) error {
	if err := vocabulary(c, o.Questions.SystemPrompt).Write(dir); err != nil {
		return err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return err
	}
	end, _ := tok.ID(endToken)
	if err := writeJSON(filepath.Join(dir, "config.json"), o.Model.configFile(tok.Size(), end)); err != nil {
		return err
	}
	generation := map[string]any{"eos_token_id": end, "pad_token_id": end}
	if err := writeJSON(filepath.Join(dir, "generation_config.json"), generation); err != nil {
		return err
	}
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		return err
	}
	tensors := plainStart(architecture, stream("weights", o.Seed))
	if o.Model.CopyingStart {
		copyingStart(architecture, tensors, stream("copying start", o.Seed))
	}
	var entries []weights.Entry
	for _, p := range architecture.Parameters() {
		entries = append(entries, weights.Entry{
			Name: p.Name, DType: weights.F32, Shape: p.Shape, Data: func() ([]byte, error) { return littleEndian(tensors[p.Name]), nil },
		})
	}
	return weights.WriteFile(filepath.Join(dir, weights.SingleFile), entries)
}

func (m ModelOptions) configFile(vocabulary int, end int32) map[string]any {
	return map[string]any{
		"architectures": []string{model.Qwen2}, "model_type": "qwen2", "torch_dtype": "float32", "hidden_act": "silu",
		"vocab_size": vocabulary, "hidden_size": m.Hidden, "intermediate_size": m.Intermediate, "num_hidden_layers": m.Layers,
		"num_attention_heads": m.Heads, "num_key_value_heads": m.KVHeads, "max_position_embeddings": m.MaxPositions,
		"rms_norm_eps": 1e-6, "rope_theta": m.RopeTheta, "tie_word_embeddings": true, "use_sliding_window": false,
		"attention_dropout": 0.0, "eos_token_id": end, "pad_token_id": end,
	}
}

// plainStd is the deviation that transformers draws weights with.
const plainStd = 0.02

// plainStart draws weights as transformers does: biases 0, norms 1, all else Gaussian.
func plainStart(a model.Architecture, random *rand.Rand) map[string][]float32 {
	tensors := map[string][]float32{}
	for _, p := range a.Parameters() {
		values := make([]float32, weights.Bytes(weights.F32, p.Shape)/4)
		switch {
		case strings.HasSuffix(p.Name, "norm.weight"):
			fill(values, 1)
		case !strings.HasSuffix(p.Name, ".bias"):
			gaussian(values, plainStd, random)
		}
		tensors[p.Name] = values
	}
	return tensors
}

func fill(values []float32, with float32) {
	for k := range values {
		values[k] = with
	}
}

func gaussian(values []float32, std float64, random *rand.Rand) {
	for k := range values {
		values[k] = float32(std * random.NormFloat64())
	}
}

func littleEndian(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, value := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value))
	}
	return data
}
