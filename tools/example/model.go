package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/weights"
)

// The shape of the model, and how its weights begin.
const (
	hiddenSize   = 64
	layers       = 2
	layerStd     = 0.02 // of the projections: what a layer adds is small beside the embedding
	plantedLogit = 12.0 // of a certain successor; all others together weigh about e^7
)

func (l *language) writeModel(dir string) error {
	dir = filepath.Join(dir, "model")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := l.tokenizer.Write(dir); err != nil {
		return err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return err
	}
	eos, _ := tok.ID(endOfTurn)
	if err := writeJSON(filepath.Join(dir, "config.json"), configFile(tok.Size(), eos)); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "generation_config.json"), map[string]any{"eos_token_id": eos}); err != nil {
		return err
	}
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		return err
	}
	tensors, err := l.tensors(architecture, tok)
	if err != nil {
		return err
	}
	var entries []weights.Entry
	for _, p := range architecture.Parameters() {
		entries = append(entries, weights.Entry{
			Name: p.Name, DType: weights.F32, Shape: p.Shape, Data: func() ([]byte, error) { return float32Bytes(tensors[p.Name]), nil },
		})
	}
	return weights.WriteFile(filepath.Join(dir, weights.SingleFile), entries)
}

func configFile(vocabulary int, eos int32) map[string]any {
	return map[string]any{
		"architectures": []string{model.Qwen2}, "model_type": "qwen2", "torch_dtype": "float32", "hidden_act": "silu",
		"vocab_size": vocabulary, "hidden_size": hiddenSize, "intermediate_size": 2 * hiddenSize, "num_hidden_layers": layers,
		"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
		"rope_theta": 10000.0, "tie_word_embeddings": false, "eos_token_id": eos, "pad_token_id": eos,
	}
}

// tensors draws the weights. Embeddings have deviation 1, so the final hidden state is about the
// embedding of the last token, and a row of the head that holds an embedding's share answers to it.
func (l *language) tensors(a model.Architecture, tok *tokenizer.Tokenizer) (map[string][]float32, error) {
	random := rand.New(rand.NewPCG(5, 0))
	tensors := map[string][]float32{}
	for _, p := range a.Parameters() {
		values := make([]float32, weights.Bytes(weights.F32, p.Shape)/4)
		for k := range values {
			switch {
			case strings.HasSuffix(p.Name, "norm.weight"):
				values[k] = 1
			case strings.HasSuffix(p.Name, ".bias"):
			case p.Name == "model.embed_tokens.weight":
				values[k] = float32(random.NormFloat64())
			default:
				values[k] = float32(layerStd * random.NormFloat64())
			}
		}
		tensors[p.Name] = values
	}
	row := func(tensor, token string) ([]float32, error) {
		ids := tok.EncodeTrusted(token)
		if len(ids) != 1 {
			return nil, fmt.Errorf("%q is %d tokens, want one", token, len(ids))
		}
		return tensors[tensor][int(ids[0])*hiddenSize:][:hiddenSize], nil
	}
	for _, pair := range l.pairs {
		embedding, err := row("model.embed_tokens.weight", pair.first)
		if err != nil {
			return nil, err
		}
		head, err := row("lm_head.weight", pair.second)
		if err != nil {
			return nil, err
		}
		for k, x := range embedding {
			head[k] += float32(plantedLogit+math.Log(pair.probability)) * x / hiddenSize
		}
	}
	return tensors, nil
}

func float32Bytes(values []float32) []byte {
	data := make([]byte, 0, 4*len(values))
	for _, value := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value))
	}
	return data
}

func writeJSON(path string, content any) error {
	data, err := json.MarshalIndent(content, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
