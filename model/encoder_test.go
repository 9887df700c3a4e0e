package model

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallBERT is a complete config.json of a small encoder, with other values; a nil value deletes the key.
func smallBERT(changes map[string]any) map[string]any {
	config := map[string]any{
		"architectures": []string{"BertModel"}, "model_type": "bert", "vocab_size": 32, "hidden_size": 12, "intermediate_size": 24,
		"num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 64, "type_vocab_size": 1,
		"layer_norm_eps": 1e-5, "hidden_act": "relu", "position_embedding_type": "absolute",
	}
	maps.Copy(config, changes)
	maps.DeleteFunc(config, func(_ string, value any) bool { return value == nil })
	return config
}

func loadBERT(t *testing.T, config any) (EncoderArchitecture, error) {
	t.Helper()
	return LoadEncoderArchitecture(folder(t, map[string]any{"config.json": config}))
}

func TestLoadEncoderArchitecture(t *testing.T) {
	got, err := loadBERT(t, smallBERT(nil))
	want := EncoderArchitecture{32, 12, 24, 2, 3, 64, 1, 1e-5, ReLU}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	got, err = loadBERT(t, map[string]any{"model_type": "bert"})
	want = EncoderArchitecture{30522, 768, 3072, 12, 12, 512, 2, 1e-12, GELU}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want transformers' defaults %+v", got, err, want)
	}
	if got, err = loadBERT(t, smallBERT(map[string]any{"hidden_act": "gelu_pytorch_tanh"})); err != nil || got.Activation != GELUTanh {
		t.Errorf("activation %q, %v", got.Activation, err)
	}
}

func TestLoadEncoderArchitectureRefuses(t *testing.T) {
	for key, c := range map[string]struct {
		value any
		want  string
	}{
		"model_type":              {"roberta", `"roberta", allowed is bert`},
		"hidden_act":              {"silu", "gelu, gelu_new"},
		"hidden_size":             {13, "multiple of num_attention_heads, which is 3"},
		"num_hidden_layers":       {5000, "at most 4096"},
		"vocab_size":              {0, "whole number"},
		"layer_norm_eps":          {-1, "above 0"},
		"position_embedding_type": {"relative_key", "absolute"},
		"is_decoder":              {true, "allowed is false"},
		"quantization_config":     {map[string]any{"bits": 4}, "not quantized"},
	} {
		if _, err := loadBERT(t, smallBERT(map[string]any{key: c.value})); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: %v, want %q", key, c.value, err, c.want)
		}
	}
	if _, err := loadBERT(t, smallBERT(map[string]any{"model_type": nil})); err == nil || !strings.Contains(err.Error(), "model_type") {
		t.Errorf("without model_type: %v", err)
	}
}

func TestParametersOfAnEncoder(t *testing.T) {
	e, err := loadBERT(t, smallBERT(nil))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	for _, p := range e.Parameters() {
		sizes[p.Name] = 1
		for _, n := range p.Shape {
			sizes[p.Name] *= n
		}
	}
	if len(sizes) != 5+2*16 || sizes["encoder.layer.1.intermediate.dense.weight"] != 24*12 || sizes["encoder.layer.0.attention.output.LayerNorm.bias"] != 12 {
		t.Errorf("%d parameters: %v", len(sizes), sizes)
	}
}

// modules is a modules.json of kinds with their folders.
func modules(parts ...string) []map[string]string {
	var list []map[string]string
	for k := 0; k < len(parts); k += 2 {
		list = append(list, map[string]string{"type": "sentence_transformers.models." + parts[k], "path": parts[k+1]})
	}
	return list
}

func TestLoadPooling(t *testing.T) {
	on := func(key string) map[string]any {
		return map[string]any{"word_embedding_dimension": 12, "pooling_mode_cls_token": false, "pooling_mode_" + key: true}
	}
	whole := modules("Transformer", "", "Pooling", "1_Pooling", "Normalize", "2_Normalize")
	for name, c := range map[string]struct {
		modules, pooling any
		want             Pooling
		failure          string
	}{
		"no modules":     {nil, nil, Pooling{PoolMean, true}, ""},
		"normalized":     {whole, on("mean_tokens"), Pooling{PoolMean, true}, ""},
		"not normalized": {whole[:2], on("cls_token"), Pooling{PoolFirst, false}, ""},
		"another mode":   {whole, on("max_tokens"), Pooling{}, "pooling_mode_max_tokens"},
		"two modes":      {whole, map[string]any{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}, Pooling{}, "alone"},
		"no mode":        {whole, map[string]any{}, Pooling{}, "pooling_mode_mean_tokens is missing"},
		"no file":        {whole, nil, Pooling{}, "config.json"},
		"another module": {append(whole, modules("Dense", "3_Dense")...), on("mean_tokens"), Pooling{}, `"sentence_transformers.models.Dense"`},
		"no pooling":     {whole[:1], nil, Pooling{}, "no Pooling module"},
		"far away":       {modules("Transformer", "", "Pooling", "../1_Pooling"), on("mean_tokens"), Pooling{}, `"../1_Pooling"`},
		"no list":        {map[string]any{}, nil, Pooling{}, "not a JSON list"},
	} {
		files := map[string]any{}
		if c.modules != nil {
			files["modules.json"] = c.modules
		}
		dir := folder(t, files)
		if c.pooling != nil {
			if err := os.Rename(folder(t, map[string]any{"config.json": c.pooling}), filepath.Join(dir, "1_Pooling")); err != nil {
				t.Fatal(err)
			}
		}
		got, err := LoadPooling(dir)
		if failed := c.failure != ""; failed != (err != nil) || failed && !strings.Contains(err.Error(), c.failure) || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v, %q", name, got, err, c.want, c.failure)
		}
	}
}

// FuzzEncoderFolder reads broken files: an error with a text or settings that are sound, never a panic.
func FuzzEncoderFolder(f *testing.F) {
	f.Add(`{"model_type":"bert","hidden_size":8,"num_attention_heads":2}`, `[{"type":"x.Transformer","path":""},{"type":"x.Pooling","path":"p"}]`, `{"pooling_mode_cls_token":true}`)
	f.Add(`{"model_type":"bert","num_attention_heads":0}`, `[{"type":".","path":"/"}]`, `{"pooling_mode_":true}`)
	f.Add(`[]`, `{}`, `null`)
	f.Fuzz(func(t *testing.T, config, modules, pooling string) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "p"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"config.json": config, "modules.json": modules, "p/config.json": pooling} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e, err := LoadEncoderArchitecture(dir)
		if err == nil && (e.Heads < 1 || e.HiddenSize%e.Heads != 0 || e.Layers > maxLayers) || err != nil && err.Error() == "" {
			t.Errorf("%q gives %+v, %v", config, e, err)
		}
		p, err := LoadPooling(dir)
		if err == nil && p.Mode != PoolMean && p.Mode != PoolFirst || err != nil && err.Error() == "" {
			t.Errorf("%q and %q give %+v, %v", modules, pooling, p, err)
		}
	})
}
