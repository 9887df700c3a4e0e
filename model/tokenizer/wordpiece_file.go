package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// wordPieceFile is what is read of a tokenizer.json with a WordPiece model. Its padding, and the length of its truncation,
// are not: the caller says how long a text may become. The decoder is not used.
type wordPieceFile struct {
	AddedTokens   []addedToken         `json:"added_tokens"`
	Normalizer    *wordPieceNormalizer `json:"normalizer"`
	PreTokenizer  *component           `json:"pre_tokenizer"`
	PostProcessor *templateProcessing  `json:"post_processor"`
	Truncation    *struct {
		Direction *string `json:"direction"`
	} `json:"truncation"`
	Model *wordPieceModel `json:"model"`
}

type wordPieceNormalizer struct {
	Type               string `json:"type"`
	CleanText          *bool  `json:"clean_text"`
	HandleChineseChars *bool  `json:"handle_chinese_chars"`
	StripAccents       *bool  `json:"strip_accents"`
	Lowercase          *bool  `json:"lowercase"`
}

// describe names a component in an error.
func (c *wordPieceNormalizer) describe() string {
	if c == nil {
		return "missing"
	}
	return "of type " + strconv.Quote(c.Type)
}

type wordPieceModel struct {
	Type         string           `json:"type"`
	Vocab        map[string]int32 `json:"vocab"`
	UnkToken     *string          `json:"unk_token"`
	SubwordStart *string          `json:"continuing_subword_prefix"`
	MaxChars     *int             `json:"max_input_chars_per_word"`
}

// The defaults are those of tokenizers.
func (m *wordPieceModel) prefix() string {
	if m.SubwordStart == nil {
		return "##"
	}
	return *m.SubwordStart
}

func (m *wordPieceModel) maxWord() int {
	if m.MaxChars == nil {
		return 100
	}
	return *m.MaxChars
}

// templateProcessing is the post-processor that puts special tokens around a text.
type templateProcessing struct {
	Type   string `json:"type"`
	Single []struct {
		SpecialToken *templatePiece `json:"SpecialToken"`
		Sequence     *templatePiece `json:"Sequence"`
	} `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
}

type templatePiece struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"`
}

// mostWordCharacters bounds model.max_input_chars_per_word, so that a broken file makes no text slow.
const mostWordCharacters = 1 << 16

// parseWordPieceFile reads tokenizer.json and refuses what is not run here.
func parseWordPieceFile(data []byte) (*wordPieceFile, error) {
	var kind struct {
		Model *struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, jsonError(data, err)
	}
	if kind.Model == nil {
		return nil, errors.New("has no \"model\"")
	}
	if kind.Model.Type != "WordPiece" {
		return nil, fmt.Errorf("model.type is %q, but an encoder needs \"WordPiece\"", kind.Model.Type)
	}
	var f wordPieceFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, jsonError(data, err)
	}
	return &f, f.refuseUnsupported()
}

// refuseUnsupported names the first setting that changes how text is encoded and is not run here.
func (f *wordPieceFile) refuseUnsupported() error {
	switch {
	case len(f.Model.Vocab) == 0:
		return errors.New("has no \"model.vocab\", or an empty one")
	case f.Model.maxWord() < 1 || f.Model.maxWord() > mostWordCharacters:
		return fmt.Errorf("model.max_input_chars_per_word is %d, allowed are 1 to %d", f.Model.maxWord(), mostWordCharacters)
	case f.PreTokenizer == nil || f.PreTokenizer.Type != "BertPreTokenizer":
		return errors.New("pre_tokenizer is another than \"BertPreTokenizer\", the only one that is supported with a WordPiece model")
	case f.Truncation != nil && f.Truncation.Direction != nil && *f.Truncation.Direction != "Right":
		return fmt.Errorf("truncation.direction is %q, but only \"Right\" is supported", *f.Truncation.Direction)
	}
	for _, a := range f.AddedTokens {
		if !a.Special {
			return fmt.Errorf("added_tokens has %q, which is not special, but only special ones are supported with a WordPiece model", a.Content)
		}
	}
	return nil
}

// unknown is the id of the token for words that the vocabulary cannot spell.
func (f *wordPieceFile) unknown() (int32, error) {
	name := "[UNK]"
	if f.Model.UnkToken != nil {
		name = *f.Model.UnkToken
	}
	id, ok := f.Model.Vocab[name]
	if !ok {
		return 0, fmt.Errorf("model.unk_token is %q, which model.vocab lacks", name)
	}
	return id, nil
}

// specialTokens are the ids that go before and behind every text; all tokens must be of type 0.
func (f *wordPieceFile) specialTokens() (before, behind []int32, err error) {
	p := f.PostProcessor
	if p == nil || p.Type != "TemplateProcessing" {
		return nil, nil, errors.New("post_processor is another than \"TemplateProcessing\", the only one that is supported with a WordPiece model")
	}
	texts := 0
	for _, piece := range p.Single {
		switch {
		case piece.Sequence != nil && piece.Sequence.ID == "A" && piece.Sequence.TypeID == 0:
			texts++
		case piece.SpecialToken != nil && piece.SpecialToken.TypeID == 0 && len(p.SpecialTokens[piece.SpecialToken.ID].IDs) > 0:
			ids := p.SpecialTokens[piece.SpecialToken.ID].IDs
			if texts == 0 {
				before = append(before, ids...)
			} else {
				behind = append(behind, ids...)
			}
		default:
			return nil, nil, errors.New("post_processor.single has a piece that is neither the text A nor one of special_tokens, each of type_id 0")
		}
	}
	if texts != 1 {
		return nil, nil, fmt.Errorf("post_processor.single holds the text %d times, allowed is once", texts)
	}
	return before, behind, nil
}

// size is the largest id plus one.
func (f *wordPieceFile) size() (int, error) {
	largest := int32(0)
	check := func(id int32, what string) error {
		if id < 0 || id > maxID {
			return fmt.Errorf("%s has the id %d, allowed are 0 to %d", what, id, maxID)
		}
		largest = max(largest, id)
		return nil
	}
	for token, id := range f.Model.Vocab {
		if err := check(id, fmt.Sprintf("token %q of model.vocab", token)); err != nil {
			return 0, err
		}
	}
	for name, special := range f.PostProcessor.SpecialTokens {
		for _, id := range special.IDs {
			if err := check(id, fmt.Sprintf("token %q of post_processor.special_tokens", name)); err != nil {
				return 0, err
			}
		}
	}
	return int(largest) + 1, nil
}
