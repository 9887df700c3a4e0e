package model

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// small is a complete config.json of a small Llama.
func small() map[string]any {
	return map[string]any{
		"architectures": []string{Llama}, "model_type": "llama", "vocab_size": 32, "hidden_size": 16,
		"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
		"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
	}
}

// with is small with other values; a nil value deletes the key.
func with(changes map[string]any) map[string]any {
	config := small()
	maps.Copy(config, changes)
	maps.DeleteFunc(config, func(_ string, value any) bool { return value == nil })
	return config
}

// qwen is small as another architecture.
func qwen(name string, changes map[string]any) map[string]any {
	config := with(changes)
	config["architectures"] = []string{name}
	config["model_type"] = map[string]string{Qwen2: "qwen2", Qwen3: "qwen3"}[name]
	return config
}

// folder writes files into a fresh model folder; values that are not text are written as JSON.
func folder(t *testing.T, files map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range files {
		text, isText := value.(string)
		if !isText {
			encoded, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			text = string(encoded)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func load(t *testing.T, config any) (Architecture, error) {
	t.Helper()
	return LoadArchitecture(folder(t, map[string]any{"config.json": config}))
}

func TestLoadArchitectureOfTinyModels(t *testing.T) {
	qwen2 := Architecture{
		Name: Qwen2, VocabSize: 320, HiddenSize: 64, IntermediateSize: 128, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16,
		MaxPositions: 512, RMSNormEps: 1e-6, Rope: Rope{Type: RopeDefault, Theta: 1e6}, QKVBias: true, DType: "float32",
	}
	qwen3 := qwen2
	qwen3.Name, qwen3.HeadDim, qwen3.QKVBias, qwen3.QKNorm, qwen3.TiedEmbeddings = Qwen3, 32, false, true, true
	llama := Architecture{
		Name: Llama, VocabSize: 320, HiddenSize: 48, IntermediateSize: 96, Layers: 2, Heads: 3, KVHeads: 1, HeadDim: 16,
		MaxPositions: 512, RMSNormEps: 1e-5, Rope: Rope{Type: RopeDefault, Theta: 1e5}, TiedEmbeddings: true, DType: "float32",
	}
	for name, want := range map[string]Architecture{
		"qwen2-tiny": qwen2, "qwen2-tiny-sharded": qwen2, "qwen3-tiny": qwen3, "llama-tiny": llama,
	} {
		got, err := LoadArchitecture(filepath.Join("..", "testdata", "golden", "models", name))
		if err != nil || got != want {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, want)
		}
	}
}

func TestLoadArchitectureDefaults(t *testing.T) {
	llama3 := map[string]any{
		"rope_type": "llama3", "factor": 8, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
		"original_max_position_embeddings": 8192,
	}
	tests := map[string]struct {
		config map[string]any
		get    func(Architecture) any
		want   any
	}{
		"head_dim from hidden_size":      {small(), func(a Architecture) any { return a.HeadDim }, 4},
		"head_dim given":                 {with(map[string]any{"head_dim": 6}), func(a Architecture) any { return a.HeadDim }, 6},
		"head_dim of Qwen3":              {qwen(Qwen3, nil), func(a Architecture) any { return a.HeadDim }, 128},
		"kv heads of an old Llama":       {with(map[string]any{"num_key_value_heads": nil}), func(a Architecture) any { return a.KVHeads }, 4},
		"kv heads null":                  {with(map[string]any{"num_key_value_heads": json.RawMessage("null")}), func(a Architecture) any { return a.KVHeads }, 4},
		"rms_norm_eps":                   {with(map[string]any{"rms_norm_eps": nil}), func(a Architecture) any { return a.RMSNormEps }, 1e-6},
		"rope_theta":                     {small(), func(a Architecture) any { return a.Rope }, Rope{Type: RopeDefault, Theta: 10000}},
		"untied":                         {small(), func(a Architecture) any { return a.TiedEmbeddings }, false},
		"no dtype":                       {with(map[string]any{"torch_dtype": nil}), func(a Architecture) any { return a.DType }, "float32"},
		"newer dtype":                    {with(map[string]any{"torch_dtype": nil, "dtype": "float16"}), func(a Architecture) any { return a.DType }, "float16"},
		"attention_bias means o as well": {with(map[string]any{"attention_bias": true}), func(a Architecture) any { return a.QKVBias && a.OutputBias }, true},
		"Qwen3 attention_bias":           {qwen(Qwen3, map[string]any{"attention_bias": true}), func(a Architecture) any { return a.QKVBias && a.OutputBias }, true},
		"Qwen2 has no output bias":       {qwen(Qwen2, nil), func(a Architecture) any { return a.QKVBias && !a.OutputBias }, true},
		"mlp_bias":                       {with(map[string]any{"mlp_bias": true}), func(a Architecture) any { return a.MLPBias }, true},
		"older rope keys": {
			with(map[string]any{"rope_theta": 500000.0, "rope_scaling": llama3}), func(a Architecture) any { return a.Rope },
			Rope{Type: RopeLlama3, Theta: 500000, Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192},
		},
		"oldest rope key": {
			with(map[string]any{"rope_scaling": map[string]any{"type": "linear", "factor": 2}}), func(a Architecture) any { return a.Rope },
			Rope{Type: RopeLinear, Theta: 10000, Factor: 2},
		},
		"newer rope keys": {
			with(map[string]any{"rope_parameters": map[string]any{"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6}}),
			func(a Architecture) any { return a.Rope },
			Rope{Type: RopeLinear, Theta: 1e6, Factor: 4},
		},
		"sliding window off": {
			qwen(Qwen2, map[string]any{"use_sliding_window": false, "sliding_window": 32768}),
			func(a Architecture) any { return a.Layers }, 2,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, err := load(t, test.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := test.get(a); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestLoadArchitectureRefuses(t *testing.T) {
	scaling := func(values map[string]any) map[string]any { return with(map[string]any{"rope_scaling": values}) }
	tests := map[string]struct {
		config any
		want   string // part of the message after the file name
	}{
		"not JSON":             {"{", "not a JSON object"},
		"a list":               {"[]", "not a JSON object"},
		"another architecture": {with(map[string]any{"architectures": []string{"MistralForCausalLM"}}), `architectures is ["MistralForCausalLM"], allowed is a list of one of Qwen2ForCausalLM`},
		"no architecture":      {with(map[string]any{"architectures": nil}), "architectures is missing"},
		"two architectures":    {with(map[string]any{"architectures": []string{Qwen2, Llama}}), "allowed is a list of one of"},
		"another model_type":   {with(map[string]any{"model_type": "mistral"}), `model_type is "mistral", allowed is llama`},
		"no hidden_size":       {with(map[string]any{"hidden_size": nil}), "key hidden_size is missing"},
		"case of a key":        {with(map[string]any{"hidden_size": nil, "Hidden_Size": 16}), "key hidden_size is missing"},
		"text for a number":    {with(map[string]any{"hidden_size": "16"}), `hidden_size is "16", allowed is a whole number`},
		"zero layers":          {with(map[string]any{"num_hidden_layers": 0}), "num_hidden_layers is 0"},
		"a billion layers":     {with(map[string]any{"num_hidden_layers": 1000000000}), "num_hidden_layers is 1000000000, allowed is at most"},
		"too many parameters":  {with(map[string]any{"num_hidden_layers": 4096, "intermediate_size": 1<<31 - 1, "head_dim": 4096, "hidden_size": 1<<31 - 2}), "parameters, allowed are at most 1e+15"},
		"heads per kv head":    {with(map[string]any{"num_key_value_heads": 3}), "num_attention_heads is 4, allowed is a multiple"},
		"odd head_dim":         {with(map[string]any{"head_dim": 5}), "head_dim is 5"},
		"a billion head_dim":   {with(map[string]any{"head_dim": 1000000000}), "head_dim is 1000000000, allowed is an even number up to 4096"},
		"uneven hidden_size":   {with(map[string]any{"hidden_size": 18}), "hidden_size is 18"},
		"Qwen2 kv heads":       {qwen(Qwen2, map[string]any{"num_key_value_heads": nil}), "num_key_value_heads is missing"},
		"yarn":                 {scaling(map[string]any{"rope_type": "yarn", "factor": 4.0}), `rope_scaling: rope_type is "yarn", allowed is default, linear, llama3`},
		"dynamic":              {scaling(map[string]any{"type": "dynamic", "factor": 4.0}), `rope_scaling: type is "dynamic"`},
		"longrope":             {scaling(map[string]any{"rope_type": "longrope", "factor": 4.0}), `rope_type is "longrope"`},
		"mrope":                {scaling(map[string]any{"rope_type": "default", "mrope_section": []int{1, 1, 2}}), "mrope_section is [1,1,2]"},
		"linear, no factor":    {scaling(map[string]any{"rope_type": "linear"}), "rope_scaling: key factor is missing"},
		"llama3 factors":       {scaling(map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 32}), "high_freq_factor is 4, allowed is a number above"},
		"rope per layer type":  {with(map[string]any{"rope_parameters": map[string]any{"full_attention": map[string]any{"rope_type": "default"}}}), "full_attention is"},
		"partial rotary":       {with(map[string]any{"partial_rotary_factor": 0.5}), "partial_rotary_factor is 0.5, allowed is 1"},
		"two rope thetas":      {with(map[string]any{"rope_theta": 1e6, "rope_parameters": map[string]any{"rope_theta": 1e4}}), "the same as the outer rope_theta"},
		"two rope tables": {with(map[string]any{
			"rope_scaling": map[string]any{"rope_type": "linear", "factor": 2}, "rope_parameters": map[string]any{"rope_type": "default"},
		}), "the same as rope_parameters"},
		"two dtypes":         {with(map[string]any{"dtype": "float32"}), "the same as torch_dtype"},
		"float64":            {with(map[string]any{"torch_dtype": "float64"}), `torch_dtype is "float64", allowed is bfloat16, float16, float32`},
		"gelu":               {with(map[string]any{"hidden_act": "gelu"}), `hidden_act is "gelu", allowed is silu`},
		"sliding window":     {qwen(Qwen2, map[string]any{"use_sliding_window": true}), "use_sliding_window is true"},
		"sliding layer":      {qwen(Qwen2, map[string]any{"layer_types": []string{"full_attention", "sliding_attention"}}), "layer_types is"},
		"layer_types length": {qwen(Qwen2, map[string]any{"layer_types": []string{"full_attention"}}), "each of the 2 layers"},
		"quantized":          {with(map[string]any{"quantization_config": map[string]any{"quant_method": "awq"}}), "quantization_config is"},
		"not causal":         {with(map[string]any{"is_causal": false}), "is_causal is false"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, test.config)
			if err == nil {
				t.Fatal("accepted")
			}
			if text := err.Error(); !strings.Contains(text, "config.json") || !strings.Contains(text, test.want) || strings.Contains(text, "\n") {
				t.Errorf("message %q lacks %q", text, test.want)
			}
		})
	}
	if _, err := LoadArchitecture(t.TempDir()); err == nil || !strings.Contains(err.Error(), "config.json: no such file") {
		t.Errorf("a folder without config.json gives %v", err)
	}
	adapters := t.TempDir()
	if err := os.WriteFile(filepath.Join(adapters, "adapter_config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadArchitecture(adapters); err == nil || !strings.Contains(err.Error(), adapters+" holds adapters") {
		t.Errorf("a folder of adapters gives %v", err)
	}
}

func TestParametersOfEveryVariant(t *testing.T) {
	a := Architecture{VocabSize: 10, HiddenSize: 6, IntermediateSize: 5, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 8}
	plain := []Parameter{
		{"model.embed_tokens.weight", []int64{10, 6}},
		{"model.layers.0.self_attn.q_proj.weight", []int64{32, 6}},
		{"model.layers.0.self_attn.k_proj.weight", []int64{16, 6}},
		{"model.layers.0.self_attn.v_proj.weight", []int64{16, 6}},
		{"model.layers.0.self_attn.o_proj.weight", []int64{6, 32}},
		{"model.layers.0.mlp.gate_proj.weight", []int64{5, 6}},
		{"model.layers.0.mlp.up_proj.weight", []int64{5, 6}},
		{"model.layers.0.mlp.down_proj.weight", []int64{6, 5}},
		{"model.layers.0.input_layernorm.weight", []int64{6}},
		{"model.layers.0.post_attention_layernorm.weight", []int64{6}},
		{"model.norm.weight", []int64{6}},
		{"lm_head.weight", []int64{10, 6}},
	}
	if got := a.Parameters(); !reflect.DeepEqual(got, plain) {
		t.Errorf("untied: %v", got)
	}
	a.TiedEmbeddings = true
	if got := a.Parameters(); !reflect.DeepEqual(got, plain[:11]) {
		t.Errorf("tied: %v", got)
	}
	a.QKVBias, a.OutputBias, a.MLPBias, a.QKNorm = true, true, true, true
	shapes := map[string][]int64{
		"self_attn.q_proj.bias": {32}, "self_attn.k_proj.bias": {16}, "self_attn.v_proj.bias": {16}, "self_attn.o_proj.bias": {6},
		"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8},
		"mlp.gate_proj.bias": {5}, "mlp.up_proj.bias": {5}, "mlp.down_proj.bias": {6},
	}
	got := a.Parameters()
	if len(got) != 11+len(shapes) {
		t.Errorf("%d parameters with every bias, want %d", len(got), 11+len(shapes))
	}
	for _, p := range got {
		name := strings.TrimPrefix(p.Name, "model.layers.0.")
		if want, ok := shapes[name]; ok && !reflect.DeepEqual(p.Shape, want) {
			t.Errorf("%s has shape %v, want %v", name, p.Shape, want)
		}
		delete(shapes, name)
	}
	if len(shapes) > 0 {
		t.Errorf("not listed: %v", shapes)
	}
}
