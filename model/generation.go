package model

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Generation is what a model folder says about how the model is to be sampled from.
type Generation struct {
	EOS []int32 // ids that end the model's turn, in the file's order; none if the folder names none
}

// LoadGenerationConfig reads the end-of-sequence ids of a model folder: eos_token_id, one id or a
// list, of generation_config.json; without that, of config.json; without that, the id of
// eos_token of tokenizer_config.json among the added tokens. All three files may be missing.
func LoadGenerationConfig(dir string) (Generation, error) {
	for _, name := range []string{"generation_config.json", "config.json"} {
		file, err := readOptional(filepath.Join(dir, name))
		if err != nil {
			return Generation{}, err
		}
		ids := file.tokenIDs("eos_token_id")
		if file.err != nil || len(ids) > 0 {
			return Generation{EOS: ids}, file.err
		}
	}
	ids, err := tokenizerEOS(dir)
	return Generation{EOS: ids}, err
}

// readOptional reads a JSON file; one that does not exist is an empty object.
func readOptional(path string) (*jsonFile, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return &jsonFile{path: path}, nil
	}
	return readJSONFile(path)
}

// tokenizerEOS looks up eos_token among the added tokens of tokenizer_config.json and
// tokenizer.json.
func tokenizerEOS(dir string) ([]int32, error) {
	settings, err := readOptional(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil || !settings.has("eos_token") {
		return nil, err
	}
	token := addedToken{Content: settings.tokenText("eos_token")}
	var decoder map[int32]addedToken
	if settings.has("added_tokens_decoder") && json.Unmarshal(settings.keys["added_tokens_decoder"], &decoder) != nil {
		settings.refuse("added_tokens_decoder", "an object of token ids")
	}
	if settings.err != nil {
		return nil, settings.err
	}
	for id, added := range decoder {
		if added.Content == token.Content {
			return []int32{id}, nil
		}
	}
	tokenizer, err := readOptional(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, err
	}
	var list []addedToken
	if tokenizer.has("added_tokens") && json.Unmarshal(tokenizer.keys["added_tokens"], &list) != nil {
		tokenizer.refuse("added_tokens", "a list of tokens")
	}
	for _, added := range list {
		if added.Content == token.Content {
			return []int32{added.ID}, nil
		}
	}
	return nil, tokenizer.err
}

// addedToken is an entry of the added tokens of a tokenizer.
type addedToken struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
}

// tokenText is a token given as text or as an object with a content.
func (f *jsonFile) tokenText(key string) string {
	var text string
	if json.Unmarshal(f.keys[key], &text) == nil {
		return text
	}
	var token addedToken
	if json.Unmarshal(f.keys[key], &token) != nil {
		f.refuse(key, "a token")
	}
	return token.Content
}
