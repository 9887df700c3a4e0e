// Package bytelevel writes tokenizers of the byte-level BPE kind for models that are made on the
// spot.
package bytelevel

import (
	"encoding/json"
	"io"
	"path/filepath"
	"slices"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/model/tokenizer/internal/bytealphabet"
)

// ChatML is a chat template: each message between <|im_start|> and <|im_end|>.
const ChatML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// Tokenizer is what makes one tokenizer differ from another. Ids below 256 are the byte values,
// then come the merges in their order, then the special tokens in theirs.
type Tokenizer struct {
	Merges   [][2]string // pairs of raw byte strings by rank, each made of bytes or earlier merges
	Special  []string
	EOS      string // one of Special; it also stands for padding
	Template string // chat template
}

// FirstSpecial is the id of the first special token.
func (t Tokenizer) FirstSpecial() int32 { return int32(256 + len(t.Merges)) }

// Write puts tokenizer.json and tokenizer_config.json into an existing folder.
func (t Tokenizer) Write(dir string) error {
	files := map[string]any{
		"tokenizer.json": t.file(),
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast",
			"eos_token":       t.EOS,
			"pad_token":       t.EOS,
			"chat_template":   t.Template,
		},
	}
	for name, content := range files {
		err := durable.WriteFile(filepath.Join(dir, name), func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", " ")
			return encoder.Encode(content)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// file is the content of tokenizer.json.
func (t Tokenizer) file() map[string]any {
	vocab := map[string]int32{}
	for b := range 256 {
		vocab[bytealphabet.Spell(string([]byte{byte(b)}))] = int32(b)
	}
	pairs := make([][2]string, len(t.Merges))
	for i, m := range t.Merges {
		pairs[i] = [2]string{bytealphabet.Spell(m[0]), bytealphabet.Spell(m[1])}
		vocab[pairs[i][0]+pairs[i][1]] = int32(256 + i)
	}
	added := make([]map[string]any, len(t.Special))
	for i, content := range t.Special {
		added[i] = map[string]any{
			"id": t.FirstSpecial() + int32(i), "content": content, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		}
	}
	byteLevel := map[string]any{
		"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true,
	}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": nil, "pre_tokenizer": byteLevel, "post_processor": nil, "decoder": byteLevel,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false,
			"ignore_merges": false, "vocab": vocab, "merges": pairs,
		},
	}
}

// Words lists merges that make one token of each word, given with the space in front of it or
// without. A word is cut by the merges of the words before it, and what that leaves is joined from
// left to right: pieces that many words have in common save merges when they come first. Later
// merges rank below earlier ones, so they never change how an earlier word is cut.
func Words(words ...string) [][2]string {
	var merges [][2]string
	ranks := map[[2]string]int{}
	for _, word := range words {
		parts := cut(word, ranks)
		for len(parts) > 1 {
			pair := [2]string{parts[0], parts[1]}
			ranks[pair] = len(merges)
			merges = append(merges, pair)
			parts = slices.Replace(parts, 0, 2, pair[0]+pair[1])
		}
	}
	return merges
}

// cut cuts a word by merges: again and again the pair of lowest rank becomes one part, of equal
// ranks the leftmost.
func cut(word string, ranks map[[2]string]int) []string {
	parts := make([]string, len(word))
	for k := range len(word) {
		parts[k] = word[k : k+1]
	}
	for {
		best, lowest := -1, len(ranks)
		for k := range len(parts) - 1 {
			if rank, known := ranks[[2]string{parts[k], parts[k+1]}]; known && rank < lowest {
				best, lowest = k, rank
			}
		}
		if best < 0 {
			return parts
		}
		parts = slices.Replace(parts, best, best+2, parts[best]+parts[best+1])
	}
}
