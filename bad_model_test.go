package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// refused checks that an error has its exit code and is one clear sentence: short, on one line, and
// naming what it must.
func refused(t *testing.T, err error, code int, named ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("accepted")
	}
	text := err.Error()
	t.Log(text)
	if fault.Code(err) != code {
		t.Errorf("exit code %d, want %d: %s", fault.Code(err), code, text)
	}
	for _, want := range named {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not named: %s", want, text)
		}
	}
	if n := engine.LiveHandles(); n != 0 {
		t.Errorf("%d models or sessions are left open", n)
	}
	if strings.ContainsAny(text, "\n\x00\x1b") || len(text) > 600 || strings.Contains(text, "%!") {
		t.Errorf("no short sentence on one line: %q", text)
	}
}

// damage is a change to a good folder that makes it a bad one.
type damage func(t *testing.T, dir string)

func remove(name string) damage {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func cut(name string, size int64) damage {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil {
			t.Fatal(err)
		}
	}
}

func replace(name, content string) damage {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// set changes members of a JSON file; nil removes one.
func set(name string, members map[string]any) damage {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, name)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{}
		if err := json.Unmarshal(data, &object); err != nil {
			t.Fatal(err)
		}
		for key, value := range members {
			object[key] = value
			if value == nil {
				delete(object, key)
			}
		}
		if data, err = json.Marshal(object); err != nil {
			t.Fatal(err)
		}
		replace(name, string(data))(t, dir)
	}
}

func swap(name, a, b string) damage {
	return func(t *testing.T, dir string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		replace(name, strings.NewReplacer(a, b, b, a).Replace(string(data)))(t, dir)
	}
}

func manySpecials(t *testing.T, dir string) {
	t.Helper()
	specials := make([]string, 300)
	for k := range specials {
		specials[k] = "<special_" + strings.Repeat("x", k) + ">"
	}
	if err := tokenizertest.Write(dir, specials...); err != nil {
		t.Fatal(err)
	}
}

func TestModelFoldersThatCannotBeTrained(t *testing.T) {
	swapped := map[string]any{"added_tokens_decoder": map[string]any{"278": map[string]any{"content": "</mem>"}, "279": map[string]any{"content": "<mem>"}}}
	const shard = "model-00003-of-00004.safetensors"
	tests := []struct {
		name   string
		model  string
		damage damage
		named  []string // beside the folder
	}{
		{"no config.json", "qwen2-tiny", remove("config.json"), []string{"config.json"}},
		{"config.json is no JSON", "qwen2-tiny", replace("config.json", `{"architectures":`), []string{"config.json"}},
		{"config.json is a list", "qwen2-tiny", replace("config.json", `[]`), []string{"config.json"}},
		{"config.json is empty", "qwen2-tiny", replace("config.json", ``), []string{"config.json"}},
		{
			"unknown architecture", "qwen2-tiny", set("config.json", map[string]any{"architectures": []string{"GPT2LMHeadModel"}}),
			[]string{"config.json", "architectures", "GPT2LMHeadModel", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "LlamaForCausalLM"},
		},
		{"no architecture", "qwen2-tiny", set("config.json", map[string]any{"architectures": nil}), []string{"config.json", "architectures"}},
		{"a size is text", "qwen2-tiny", set("config.json", map[string]any{"hidden_size": "64"}), []string{"config.json", "hidden_size"}},
		{"a size is missing", "llama-tiny", set("config.json", map[string]any{"num_hidden_layers": nil}), []string{"config.json", "num_hidden_layers"}},
		{"a size is negative", "llama-tiny", set("config.json", map[string]any{"vocab_size": -5}), []string{"config.json", "vocab_size", "-5"}},
		{"a size is enormous", "llama-tiny", set("config.json", map[string]any{"intermediate_size": 1 << 40}), []string{"intermediate_size", "1099511627776"}},
		{
			"unknown scaling of positions", "qwen2-tiny",
			set("config.json", map[string]any{"rope_parameters": nil, "rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4}}),
			[]string{"config.json", "yarn"},
		},
		{"no weights", "qwen2-tiny", remove("model.safetensors"), []string{"safetensors"}},
		{"missing shard", "qwen2-tiny-sharded", remove(shard), []string{shard}},
		{"truncated shard", "qwen2-tiny-sharded", cut(shard, 1000), []string{shard}},
		{"truncated header", "qwen2-tiny-sharded", cut(shard, 5), []string{shard}},
		{"empty shard", "qwen2-tiny-sharded", cut(shard, 0), []string{shard}},
		{"shard is text", "qwen2-tiny-sharded", replace(shard, strings.Repeat("version https://git-lfs.github.com/spec/v1\n", 9)), []string{shard}},
		{"index is no JSON", "qwen2-tiny-sharded", replace("model.safetensors.index.json", "x"), []string{"model.safetensors.index.json"}},
		{"index leads out of the folder", "qwen2-tiny-sharded", swap("model.safetensors.index.json", shard, "../"+shard), []string{"../" + shard}},
		{"wrong shape", "qwen2-tiny", set("config.json", map[string]any{"intermediate_size": 8}), []string{"mlp"}},
		{"another vocabulary", "qwen3-tiny", set("config.json", map[string]any{"vocab_size": 4096}), []string{"embed_tokens", "4096"}},
		{"more layers than weights", "llama-tiny", set("config.json", map[string]any{"num_hidden_layers": 9}), []string{"layers."}},
		{"no tokenizer", "qwen2-tiny", remove("tokenizer.json"), []string{"tokenizer.json"}},
		{"tokenizer is no JSON", "qwen2-tiny", replace("tokenizer.json", "{"), []string{"tokenizer.json"}},
		{"tokenizer with more ids than the model", "qwen2-tiny", manySpecials, []string{"tokenizer.json", "vocab_size"}},
		{"tags swapped in half of the tokenizer", "qwen2-tiny", set("tokenizer_config.json", swapped), []string{"</mem>", "278", "279"}},
		{"no chat template", "qwen2-tiny", set("tokenizer_config.json", map[string]any{"chat_template": nil}), []string{"chat template", "raw"}},
		{"chat template that fails", "qwen2-tiny", set("tokenizer_config.json", map[string]any{"chat_template": "{{ raise_exception('no system') }}"}), []string{"no system"}},
		{"chat template of another language", "qwen2-tiny", set("tokenizer_config.json", map[string]any{"chat_template": "{% for x %}"}), []string{"template"}},
		{"chat template that drops the question", "qwen2-tiny", set("tokenizer_config.json", map[string]any{"chat_template": "{% for m in messages %}{{ loop.index }}{% endfor %}"}), []string{"template"}},
		{"generation_config.json is no JSON", "qwen2-tiny", replace("generation_config.json", "{"), []string{"generation_config.json"}},
		{"end of sequence is text", "qwen2-tiny", set("generation_config.json", map[string]any{"eos_token_id": "x"}), []string{"generation_config.json", "eos_token_id"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := tinyFolder(t, test.model)
			test.damage(t, dir)
			path, runDir := tinyConfig(t, dir)
			refused(t, runTrain(t.Context(), path, nil, nil), fault.CodeUsage, append(test.named, dir)...)
			if _, err := os.Stat(filepath.Join(runDir, "metrics.jsonl")); err == nil {
				t.Error("a run was begun")
			}
		})
	}
}
