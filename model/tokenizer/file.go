package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// tokenizerFile is what is read of tokenizer.json. Its post_processor, truncation and padding are
// not: nothing is ever added to a text or cut off.
type tokenizerFile struct {
	AddedTokens  []addedToken `json:"added_tokens"`
	Normalizer   *component   `json:"normalizer"`
	PreTokenizer *component   `json:"pre_tokenizer"`
	Decoder      *component   `json:"decoder"`
	Model        *modelPart   `json:"model"`
}

// component is a normalizer, pre-tokenizer or decoder with the settings of all their types.
type component struct {
	Type             string      `json:"type"`
	Normalizers      []component `json:"normalizers"`
	PreTokenizers    []component `json:"pretokenizers"`
	Pattern          pattern     `json:"pattern"`
	Behavior         string      `json:"behavior"`
	Invert           bool        `json:"invert"`
	IndividualDigits bool        `json:"individual_digits"`
	AddPrefixSpace   bool        `json:"add_prefix_space"`
	UseRegex         *bool       `json:"use_regex"` // nil stands for true
}

// pattern is {"Regex": …} or {"String": …}.
type pattern map[string]string

// UnmarshalJSON takes an object with string values. A pattern of any other form, as some component
// types that are refused anyway have, is empty.
func (p *pattern) UnmarshalJSON(data []byte) error {
	var m map[string]string
	if json.Unmarshal(data, &m) == nil {
		*p = m
	}
	return nil
}

// modelPart is the model of tokenizer.json.
type modelPart struct {
	Type         string           `json:"type"` // missing in old files
	Vocab        json.RawMessage  `json:"vocab"`
	Merges       []mergePair      `json:"merges"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	tokens       map[string]int32 // Vocab, once the type is known to be BPE
}

// mergePair is written "a b" or ["a", "b"].
type mergePair [2]string

// UnmarshalJSON reads either form.
func (p *mergePair) UnmarshalJSON(data []byte) error {
	parts := []string{}
	if bytes.HasPrefix(data, []byte{'"'}) {
		var line string
		if err := json.Unmarshal(data, &line); err != nil {
			return err
		}
		parts = strings.Split(line, " ")
	} else if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("the merge %s has %d parts, but takes two", data, len(parts))
	}
	*p = mergePair{parts[0], parts[1]}
	return nil
}

// parseTokenizerFile reads tokenizer.json and refuses a model this package does not run.
func parseTokenizerFile(data []byte) (*tokenizerFile, error) {
	var f tokenizerFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, jsonError(data, err)
	}
	m := f.Model
	if m == nil {
		return nil, errors.New("has no \"model\"")
	}
	if m.Type != "BPE" && (m.Type != "" || m.Merges == nil) {
		return nil, fmt.Errorf("model.type is %q, but only \"BPE\" is supported", m.Type)
	}
	if err := json.Unmarshal(m.Vocab, &m.tokens); err != nil {
		return nil, fmt.Errorf("model.vocab is not an object of tokens with ids: %w", err)
	}
	if len(m.tokens) == 0 {
		return nil, errors.New("model.vocab is empty")
	}
	m.Vocab = nil
	return &f, m.refuseUnsupported()
}

// refuseUnsupported names the first setting that changes how text is encoded and is not run here.
func (m *modelPart) refuseUnsupported() error {
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model.dropout is %g, but only null or 0 is supported", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return fmt.Errorf("model.continuing_subword_prefix is %q, but only null or \"\" is supported", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return fmt.Errorf("model.end_of_word_suffix is %q, but only null or \"\" is supported", *m.Suffix)
	case m.ByteFallback:
		return errors.New("model.byte_fallback is true, but only false is supported")
	}
	return nil
}

// jsonError says where a file breaks off or has the wrong kind of value.
func jsonError(data []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte{'\n'})
		return fmt.Errorf("is not valid JSON at line %d: %w", line, err)
	}
	return fmt.Errorf("has an unexpected value: %w", err)
}

// configFile is what is read of tokenizer_config.json.
type configFile struct {
	AddedTokens map[int32]addedToken `json:"added_tokens_decoder"`
}

// readConfigFile reads tokenizer_config.json; a folder may be without one.
func readConfigFile(path string) (configFile, error) {
	var c configFile
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("the tokenizer settings cannot be read: %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s %w", path, jsonError(data, err))
	}
	return c, nil
}
