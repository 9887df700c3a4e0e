package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// The activations of an encoder's layers.
const (
	GELU     = "gelu"     // x·Φ(x)
	GELUTanh = "gelu_new" // its approximation with tanh
	ReLU     = "relu"
)

// EncoderArchitecture is what config.json of a folder says about a model of the BERT family, which turns a text into vectors: learned
// positions, attention in both directions, a norm behind each half of a layer.
type EncoderArchitecture struct {
	VocabSize        int
	HiddenSize       int // a multiple of Heads
	IntermediateSize int
	Layers           int
	Heads            int
	MaxPositions     int // tokens of a text
	TokenTypes       int
	LayerNormEps     float64
	Activation       string // GELU, GELUTanh or ReLU
}

// LoadEncoderArchitecture reads config.json of an encoder's folder. Missing keys have transformers' defaults; what is not understood
// and would change the numbers is refused by name.
func LoadEncoderArchitecture(dir string) (EncoderArchitecture, error) {
	file, err := readJSONFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return EncoderArchitecture{}, err
	}
	if !file.has("model_type") {
		file.missing("model_type", `"bert"`)
	}
	file.oneOf("model_type", "", "bert")
	e := EncoderArchitecture{
		VocabSize:        file.integer("vocab_size", 30522),
		HiddenSize:       file.integer("hidden_size", 768),
		IntermediateSize: file.integer("intermediate_size", 3072),
		Layers:           file.integer("num_hidden_layers", 12),
		Heads:            file.integer("num_attention_heads", 12),
		MaxPositions:     file.integer("max_position_embeddings", 512),
		TokenTypes:       file.integer("type_vocab_size", 2),
		LayerNormEps:     file.positive("layer_norm_eps", 1e-12),
		Activation:       file.oneOf("hidden_act", GELU, GELU, GELUTanh, "gelu_pytorch_tanh", ReLU),
	}
	if e.Activation == "gelu_pytorch_tanh" {
		e.Activation = GELUTanh
	}
	if file.err == nil && e.HiddenSize%e.Heads != 0 {
		file.refuse("hidden_size", fmt.Sprintf("a multiple of num_attention_heads, which is %d", e.Heads))
	}
	if e.Layers > maxLayers {
		file.refuse("num_hidden_layers", fmt.Sprintf("at most %d", maxLayers))
	}
	file.oneOf("position_embedding_type", "absolute", "absolute")
	for _, key := range []string{"is_decoder", "add_cross_attention"} {
		if file.boolean(key, false) {
			file.refuse(key, "false")
		}
	}
	if file.has("quantization_config") {
		file.refuse("quantization_config", "only a model that is not quantized")
	}
	return e, file.err
}

// Parameters lists every weight in a fixed order under its name in transformers' BertModel.
func (e EncoderArchitecture) Parameters() []Parameter {
	hidden, inner := int64(e.HiddenSize), int64(e.IntermediateSize)
	var parameters []Parameter
	add := func(name string, shape ...int64) { parameters = append(parameters, Parameter{name, shape}) }
	affine := func(name string, shape ...int64) {
		add(name+".weight", shape...)
		add(name+".bias", shape[0])
	}
	add("embeddings.word_embeddings.weight", int64(e.VocabSize), hidden)
	add("embeddings.position_embeddings.weight", int64(e.MaxPositions), hidden)
	add("embeddings.token_type_embeddings.weight", int64(e.TokenTypes), hidden)
	affine("embeddings.LayerNorm", hidden)
	for layer := range e.Layers {
		prefix := fmt.Sprintf("encoder.layer.%d.", layer)
		for _, projection := range []string{"self.query", "self.key", "self.value", "output.dense"} {
			affine(prefix+"attention."+projection, hidden, hidden)
		}
		affine(prefix+"attention.output.LayerNorm", hidden)
		affine(prefix+"intermediate.dense", inner, hidden)
		affine(prefix+"output.dense", hidden, inner)
		affine(prefix+"output.LayerNorm", hidden)
	}
	return parameters
}

// What stands for a text.
const (
	PoolMean  = "mean" // the mean of its tokens' vectors, the special ones included
	PoolFirst = "cls"  // the vector of its first token
)

// Pooling says how an encoder makes one vector of a text.
type Pooling struct {
	Mode      string // PoolMean or PoolFirst
	Normalize bool   // each vector is divided by its length
}

// LoadPooling reads how the vectors of a folder in the form of sentence-transformers are made: modules.json, and the
// config.json of its pooling module. A folder without modules.json has normalized means. Modules and modes that are not
// understood are refused by name.
func LoadPooling(dir string) (Pooling, error) {
	path := filepath.Join(dir, "modules.json")
	data, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Pooling{Mode: PoolMean, Normalize: true}, nil
	}
	if err != nil {
		return Pooling{}, err
	}
	var modules []struct{ Type, Path string }
	if err := json.Unmarshal(data, &modules); err != nil {
		return Pooling{}, fmt.Errorf("%s is not a JSON list of modules: %w", path, err)
	}
	var pooling Pooling
	for k, module := range modules {
		kind := module.Type[strings.LastIndexByte(module.Type, '.')+1:]
		switch {
		case kind == "Transformer" && k == 0 && module.Path == "":
		case kind == "Pooling" && k == 1 && filepath.IsLocal(module.Path):
			if pooling.Mode, err = poolingMode(filepath.Join(dir, module.Path)); err != nil {
				return Pooling{}, err
			}
		case kind == "Normalize" && k == 2:
			pooling.Normalize = true
		default:
			return Pooling{}, fmt.Errorf("%s: module %d is %q in folder %q, allowed are a Transformer in this folder, a Pooling in one below it and a Normalize, in this order",
				path, k, module.Type, module.Path)
		}
	}
	if pooling.Mode == "" {
		return Pooling{}, fmt.Errorf("%s: there is no Pooling module", path)
	}
	return pooling, nil
}

// poolingMode reads the config.json of a pooling module, in which one mode must be on.
func poolingMode(dir string) (string, error) {
	file, err := readJSONFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return "", err
	}
	modes := map[string]string{"pooling_mode_mean_tokens": PoolMean, "pooling_mode_cls_token": PoolFirst}
	mode := ""
	for _, key := range sortedKeys(file.keys) {
		if !strings.HasPrefix(key, "pooling_mode_") || !file.boolean(key, false) {
			continue
		}
		if modes[key] == "" || mode != "" {
			file.refuse(key, "false: one of pooling_mode_mean_tokens and pooling_mode_cls_token alone is supported")
		}
		mode = modes[key]
	}
	if mode == "" {
		file.missing("pooling_mode_mean_tokens", "true, or pooling_mode_cls_token")
	}
	return mode, file.err
}
