package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
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
	Merges       mergeList        `json:"merges"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	tokens       map[string]int32 // Vocab, once the type is known to be BPE
}

// mergeList is a list of pairs of tokens: "a b" or ["a", "b"] in the file.
type mergeList [][]string

// UnmarshalJSON reads either form.
func (m *mergeList) UnmarshalJSON(data []byte) error {
	var pairs [][]string
	if err := json.Unmarshal(data, &pairs); err != nil {
		var lines []string
		if json.Unmarshal(data, &lines) != nil {
			return fmt.Errorf("model.merges must be a list of strings or of pairs of strings; found in it: %s", foundValue(err))
		}
		pairs = make([][]string, len(lines))
		for i, line := range lines {
			pairs[i] = strings.Split(line, " ")
		}
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return fmt.Errorf("model.merges number %d is %q: it has %d parts, but takes two", i, p, len(p))
		}
	}
	*m = pairs
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
	if m.Vocab == nil {
		return nil, errors.New("has no \"model.vocab\"")
	}
	if m.Merges == nil {
		return nil, errors.New("has no \"model.merges\"")
	}
	if err := json.Unmarshal(m.Vocab, &m.tokens); err != nil {
		return nil, fmt.Errorf("model.vocab must be an object of tokens with ids; found in it: %s", foundValue(err))
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

// jsonError says in which line a file breaks off or has the wrong kind of value.
func jsonError(data []byte, err error) error {
	line := func(offset int64) int {
		return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte{'\n'})
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("is not valid JSON at line %d: %w", line(syntax.Offset), err)
	}
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		part := "the file"
		if kind.Field != "" {
			part = strconv.Quote(kind.Field)
		}
		return fmt.Errorf("at line %d, %s cannot be of the kind %s", line(kind.Offset), part, kind.Value)
	}
	return err
}

// foundValue names the kind of value that err says was found in the place of another.
func foundValue(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return kind.Value
	}
	return err.Error()
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
