// Package tokenizertest writes a small tokenizer for tests.
package tokenizertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mempo-train/mempo-train/model/tokenizer/internal/bytealphabet"
)

// The control tokens every written tokenizer has; EndOfTurn is its eos_token.
const (
	StartOfTurn = "<|im_start|>"
	EndOfTurn   = "<|im_end|>"
)

// Template is the ChatML chat template that goes into tokenizer_config.json.
const Template = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// merges lists pairs of raw byte strings by rank. Besides pieces of words they make tokens that
// reach beyond a tag: "><" and ">\n"; and one that holds part of a character: "\x9d\xb1" of "東".
var merges = [][2]string{
	{"h", "e"},
	{" ", "t"},
	{" t", "he"},
	{"i", "n"},
	{"e", "r"},
	{"a", "n"},
	{"o", "n"},
	{"o", "r"},
	{"r", "e"},
	{" ", "a"},
	{" ", "s"},
	{"an", "d"},
	{"in", "g"},
	{">", "<"},
	{">", "\n"},
	{"<", "/"},
	{"s", "e"},
	{"\x9d", "\xb1"},
	{"\n", "\n"},
	{" ", " "},
}

// FirstAddedID is the id of StartOfTurn. Ids below 256 are the byte values, those between are
// merges; EndOfTurn is FirstAddedID + 1, and the further special tokens follow in their order.
var FirstAddedID = int32(256 + len(merges))

// Write puts tokenizer.json and tokenizer_config.json into an existing folder: a byte-level BPE
// with 256 byte tokens, a few merges, StartOfTurn, EndOfTurn, and the given special tokens.
func Write(dir string, specials ...string) error {
	files := map[string]any{
		"tokenizer.json": tokenizerFile(append([]string{StartOfTurn, EndOfTurn}, specials...)),
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast",
			"eos_token":       EndOfTurn,
			"pad_token":       EndOfTurn,
			"chat_template":   Template,
		},
	}
	for name, content := range files {
		data, err := json.MarshalIndent(content, "", " ")
		if err != nil {
			return fmt.Errorf("%s cannot be written as JSON: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("the test tokenizer cannot be written: %w", err)
		}
	}
	return nil
}

func tokenizerFile(added []string) map[string]any {
	vocab := map[string]int32{}
	for b := range 256 {
		vocab[bytealphabet.Spell(string([]byte{byte(b)}))] = int32(b)
	}
	pairs := make([][2]string, len(merges))
	for i, m := range merges {
		pairs[i] = [2]string{bytealphabet.Spell(m[0]), bytealphabet.Spell(m[1])}
		vocab[pairs[i][0]+pairs[i][1]] = int32(256 + i)
	}
	tokens := make([]map[string]any, len(added))
	for i, content := range added {
		tokens[i] = map[string]any{
			"id": FirstAddedID + int32(i), "content": content, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		}
	}
	byteLevel := map[string]any{
		"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true,
	}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": tokens,
		"normalizer": nil, "pre_tokenizer": byteLevel, "post_processor": nil, "decoder": byteLevel,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false,
			"ignore_merges": false, "vocab": vocab, "merges": pairs,
		},
	}
}
