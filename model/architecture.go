package model

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// The architectures that are understood; others are refused by name.
const (
	Qwen2 = "Qwen2ForCausalLM"
	Qwen3 = "Qwen3ForCausalLM"
	Llama = "LlamaForCausalLM"
)

// maxLayers bounds the list of parameters that a broken config.json can ask for, maxHeadDim the table of the rotary
// embedding, which is made before any weight.
const (
	maxLayers  = 4096
	maxHeadDim = 4096
)

// maxParameters is a thousand times the largest models; sizes of such a model in bytes fit into an int64.
const maxParameters = 1e15

// Architecture is what config.json of a HuggingFace model folder says about the computation.
type Architecture struct {
	Name             string // Qwen2ForCausalLM, Qwen3ForCausalLM or LlamaForCausalLM
	VocabSize        int    // rows of the embedding; often more than the tokenizer has tokens
	HiddenSize       int
	IntermediateSize int
	Layers           int
	Heads            int // query heads; a multiple of KVHeads
	KVHeads          int
	HeadDim          int // even; Heads × HeadDim may differ from HiddenSize
	MaxPositions     int // tokens of context
	RMSNormEps       float64
	Rope             Rope
	QKVBias          bool
	OutputBias       bool // bias of the attention's output projection
	MLPBias          bool
	QKNorm           bool   // RMSNorm of each query and key head, before the rotary embedding
	TiedEmbeddings   bool   // the output head is the embedding matrix
	DType            string // of the weight files by config.json: bfloat16, float16 or float32
}

// LoadArchitecture reads config.json of a model folder. Keys may have the spelling of
// transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype), and
// missing keys have transformers' defaults. What is not understood and would change the numbers
// is refused by name: architectures, kinds of rotary embedding, activations, sliding windows,
// quantization.
func LoadArchitecture(dir string) (Architecture, error) {
	file, err := readJSONFile(filepath.Join(dir, "config.json"))
	if err != nil {
		if _, noAdapters := os.Stat(filepath.Join(dir, "adapter_config.json")); noAdapters == nil {
			err = fmt.Errorf("%w; %s holds adapters, which are no model: the model that has them is the folder above", err, dir)
		}
		return Architecture{}, err
	}
	name := architectureName(file)
	a := Architecture{
		Name:             name,
		VocabSize:        file.integer("vocab_size", 0),
		HiddenSize:       file.integer("hidden_size", 0),
		IntermediateSize: file.integer("intermediate_size", 0),
		Layers:           file.integer("num_hidden_layers", 0),
		Heads:            file.integer("num_attention_heads", 0),
		MaxPositions:     file.integer("max_position_embeddings", 0),
		RMSNormEps:       file.positive("rms_norm_eps", 1e-6),
		TiedEmbeddings:   file.boolean("tie_word_embeddings", false),
		QKNorm:           name == Qwen3,
		DType:            storedDType(file),
	}
	readHeads(file, &a)
	readBiases(file, &a)
	a.Rope = readRope(file)
	refuseUnsupported(file, a.Layers)
	refuseHuge(file, a)
	return a, file.err
}

// architectureName reads the architecture; model_type, which decides for transformers, must agree.
func architectureName(file *jsonFile) string {
	types := map[string]string{Qwen2: "qwen2", Qwen3: "qwen3", Llama: "llama"}
	var names []string
	if !file.has("architectures") {
		file.missing("architectures", "one of Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM")
		return ""
	}
	if json.Unmarshal(file.keys["architectures"], &names) != nil || len(names) != 1 || types[names[0]] == "" {
		file.refuse("architectures", "a list of one of Qwen2ForCausalLM, Qwen3ForCausalLM, LlamaForCausalLM")
		return ""
	}
	file.oneOf("model_type", "", types[names[0]])
	return names[0]
}

// readHeads reads the shape of the attention, with the defaults of transformers' config classes.
func readHeads(file *jsonFile, a *Architecture) {
	kvHeads, headDim := a.Heads, 0
	if _, given := file.keys["num_key_value_heads"]; !given && a.Name != Llama {
		kvHeads = 0 // transformers' default of 32 fits no small model: the key is asked for
	}
	if a.Heads > 0 {
		headDim = a.HiddenSize / a.Heads
	}
	if a.Name == Qwen3 {
		headDim = 128
	}
	a.KVHeads = file.integer("num_key_value_heads", kvHeads)
	a.HeadDim = file.integer("head_dim", headDim)
	switch {
	case file.err != nil:
	case a.Heads%a.KVHeads != 0:
		file.err = fmt.Errorf("%s: num_attention_heads is %d, allowed is a multiple of num_key_value_heads, which is %d",
			file.path, a.Heads, a.KVHeads)
	case !file.has("head_dim") && a.Name != Qwen3 && a.HiddenSize%a.Heads != 0:
		file.err = fmt.Errorf("%s: hidden_size is %d, allowed without a head_dim is a multiple of num_attention_heads, which is %d",
			file.path, a.HiddenSize, a.Heads)
	case a.HeadDim%2 != 0 || a.HeadDim > maxHeadDim:
		file.err = fmt.Errorf("%s: head_dim is %d, allowed is an even number up to %d", file.path, a.HeadDim, maxHeadDim)
	}
}

// readBiases sets which projections have biases: Qwen2 always has q, k and v; attention_bias of
// Llama and Qwen3 means q, k, v and the output; mlp_bias exists in Llama.
func readBiases(file *jsonFile, a *Architecture) {
	switch a.Name {
	case Qwen2:
		a.QKVBias = true
	case Qwen3, Llama:
		a.QKVBias = file.boolean("attention_bias", false)
		a.OutputBias = a.QKVBias
	}
	if a.Name == Llama {
		a.MLPBias = file.boolean("mlp_bias", false)
	}
}

// storedDType reads dtype, or torch_dtype as it was called before transformers 5.
func storedDType(file *jsonFile) string {
	allowed := []string{"bfloat16", "float16", "float32"}
	older := file.oneOf("torch_dtype", "", allowed...)
	newer := file.oneOf("dtype", "", allowed...)
	switch {
	case newer != "" && older != "" && newer != older:
		file.refuse("dtype", "the same as torch_dtype, which is "+older)
	case newer == "" && older == "":
		return "float32" // what transformers takes a silent config for
	case newer == "":
		return older
	}
	return newer
}

// readRope reads the rotary embedding: rope_theta and rope_scaling, or rope_parameters with both.
func readRope(file *jsonFile) Rope {
	if file.has("rope_scaling") && file.has("rope_parameters") && !sameJSON(file.keys["rope_scaling"], file.keys["rope_parameters"]) {
		file.refuse("rope_scaling", "the same as rope_parameters where both are given")
	}
	table := "rope_parameters"
	if file.has("rope_scaling") {
		table = "rope_scaling"
	}
	theta := file.positive("rope_theta", 10000)
	scaling := file.sub(table)
	if scaling == nil {
		return Rope{Type: RopeDefault, Theta: theta}
	}
	rope := readScaling(scaling, theta)
	if scaling.has("rope_theta") && file.has("rope_theta") && rope.Theta != theta {
		scaling.refuse("rope_theta", fmt.Sprintf("the same as the outer rope_theta, which is %v", theta))
	}
	if file.err == nil {
		file.err = scaling.err
	}
	return rope
}

// readScaling reads the table that says how the angles are scaled. A key that is not known is
// refused, since it may change the angles.
func readScaling(table *jsonFile, theta float64) Rope {
	known := []string{
		"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
		"original_max_position_embeddings", "partial_rotary_factor",
	}
	typeKey := "rope_type"
	if !table.has(typeKey) {
		typeKey = "type" // the older spelling
	}
	rope := Rope{
		Type:  table.oneOf(typeKey, RopeDefault, RopeDefault, RopeLinear, RopeLlama3),
		Theta: table.positive("rope_theta", theta),
	}
	for _, key := range sortedKeys(table.keys) {
		if !slices.Contains(known, key) {
			table.refuse(key, "only "+strings.Join(known, ", "))
		}
	}
	if table.positive("partial_rotary_factor", 1) != 1 {
		table.refuse("partial_rotary_factor", "1")
	}
	if rope.Type == RopeLinear || rope.Type == RopeLlama3 {
		rope.Factor = table.positive("factor", 0)
	}
	if rope.Type == RopeLlama3 {
		rope.LowFreqFactor = table.positive("low_freq_factor", 0)
		rope.HighFreqFactor = table.positive("high_freq_factor", 0)
		rope.OriginalMaxPositions = table.integer("original_max_position_embeddings", 0)
		if table.err == nil && rope.HighFreqFactor <= rope.LowFreqFactor {
			table.refuse("high_freq_factor", fmt.Sprintf("a number above low_freq_factor, which is %v", rope.LowFreqFactor))
		}
	}
	return rope
}

// refuseUnsupported refuses what transformers would compute in another way than we do.
func refuseUnsupported(file *jsonFile, layers int) {
	if layers > maxLayers {
		file.refuse("num_hidden_layers", fmt.Sprintf("at most %d", maxLayers))
	}
	file.oneOf("hidden_act", "silu", "silu")
	if file.boolean("use_sliding_window", false) {
		file.refuse("use_sliding_window", "false")
	}
	if !file.boolean("is_causal", true) {
		file.refuse("is_causal", "true")
	}
	if file.positive("partial_rotary_factor", 1) != 1 {
		file.refuse("partial_rotary_factor", "1")
	}
	for _, key := range []string{"quantization_config", "compression_config"} {
		if file.has(key) {
			file.refuse(key, "only a model that is not quantized")
		}
	}
	if file.has("layer_types") {
		var types []string
		other := func(kind string) bool { return kind != "full_attention" }
		if json.Unmarshal(file.keys["layer_types"], &types) != nil || len(types) != layers || slices.ContainsFunc(types, other) {
			file.refuse("layer_types", fmt.Sprintf("full_attention for each of the %d layers", layers))
		}
	}
}

// refuseHuge refuses lengths that are possible one by one, but not with each other.
func refuseHuge(file *jsonFile, a Architecture) {
	if file.err != nil {
		return
	}
	var count float64 // which cannot overflow
	for _, p := range a.Parameters() {
		elements := 1.0
		for _, length := range p.Shape {
			elements *= float64(length)
		}
		count += elements
	}
	if count > maxParameters {
		file.err = fmt.Errorf("%s: the lengths ask for %.3g parameters, allowed are at most %g", file.path, count, maxParameters)
	}
}

// sameJSON reports whether two texts hold the same JSON value.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// sortedKeys gives the keys of an object in a fixed order, so that errors are reproducible.
func sortedKeys(object map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
