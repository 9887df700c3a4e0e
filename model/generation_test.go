package model

import (
	"slices"
	"strings"
	"testing"
)

func TestLoadGenerationConfig(t *testing.T) {
	const chat = `{"eos_token": "<|im_end|>", "added_tokens_decoder": {"7": {"content": "<|im_end|>"}, "8": {"content": "x"}}}`
	tests := map[string]struct {
		files map[string]any
		want  []int32
	}{
		"nothing":                                {nil, nil},
		"list":                                   {map[string]any{"generation_config.json": `{"eos_token_id": [151643, 151645]}`, "config.json": `{"eos_token_id": 151643}`}, []int32{151643, 151645}},
		"one":                                    {map[string]any{"generation_config.json": `{"eos_token_id": 0}`}, []int32{0}},
		"config, for a silent generation_config": {map[string]any{"generation_config.json": `{}`, "config.json": `{"eos_token_id": 5}`}, []int32{5}},
		"config, for null":                       {map[string]any{"generation_config.json": `{"eos_token_id": null}`, "config.json": `{"eos_token_id": [5]}`}, []int32{5}},
		"tokenizer_config":                       {map[string]any{"config.json": `{}`, "tokenizer_config.json": chat}, []int32{7}},
		"tokenizer_config, not needed":           {map[string]any{"config.json": `{"eos_token_id": 5}`, "tokenizer_config.json": chat}, []int32{5}},
		"token as an object, ids in tokenizer.json": {map[string]any{
			"tokenizer_config.json": `{"eos_token": {"content": "</s>"}}`,
			"tokenizer.json":        `{"added_tokens": [{"id": 1, "content": "<s>"}, {"id": 2, "content": "</s>"}]}`,
		}, []int32{2}},
		"a token that no file knows": {map[string]any{"tokenizer_config.json": `{"eos_token": "</s>"}`}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := LoadGenerationConfig(folder(t, test.files))
			if err != nil || !slices.Equal(got.EOS, test.want) {
				t.Errorf("got %v, %v, want %v", got.EOS, err, test.want)
			}
		})
	}
}

func TestLoadGenerationConfigRefuses(t *testing.T) {
	tests := map[string]struct{ file, text, want string }{
		"text":       {"generation_config.json", `{"eos_token_id": "</s>"}`, `eos_token_id is "</s>", allowed is a token id`},
		"negative":   {"config.json", `{"eos_token_id": [-1]}`, "eos_token_id is [-1]"},
		"broken":     {"generation_config.json", `{`, "not a JSON object"},
		"a number":   {"tokenizer_config.json", `{"eos_token": 3}`, "eos_token is 3, allowed is a token"},
		"bad tokens": {"tokenizer_config.json", `{"eos_token": "x", "added_tokens_decoder": {"y": 1}}`, "added_tokens_decoder is"},
	}
	for name, test := range tests {
		_, err := LoadGenerationConfig(folder(t, map[string]any{test.file: test.text}))
		if err == nil || !strings.Contains(err.Error(), test.file) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
