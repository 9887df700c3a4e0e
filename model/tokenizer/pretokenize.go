package tokenizer

import (
	"errors"
	"fmt"
	"strings"
)

// stage is one pre-tokenizer: it cuts every piece of the stage before into smaller ones, each
// looked at as a text of its own.
type stage struct {
	next        splitter // nil leaves pieces whole
	prefixSpace bool     // puts a space before a piece that has none
}

// preTokenize cuts text into the words that merges work on.
func preTokenize(stages []stage, text string, yield func(word string)) {
	if len(stages) == 0 {
		yield(text)
		return
	}
	s := stages[0]
	if s.prefixSpace && !strings.HasPrefix(text, " ") {
		text = " " + text
	}
	if s.next == nil {
		preTokenize(stages[1:], text, yield)
		return
	}
	for pos := 0; pos < len(text); {
		end := s.next(text, pos)
		preTokenize(stages[1:], text[pos:end], yield)
		pos = end
	}
}

// newStages reads the pre_tokenizer of tokenizer.json; the last one must be ByteLevel.
func newStages(c *component) ([]stage, error) {
	if c == nil {
		return nil, errors.New("has no pre_tokenizer, but only a byte-level one is supported")
	}
	parts := []component{*c}
	if c.Type == "Sequence" {
		parts = c.PreTokenizers
	}
	var stages []stage
	for i := range parts {
		s, err := newStage(&parts[i])
		if err != nil {
			return nil, err
		}
		if last := i == len(parts)-1; last != (parts[i].Type == "ByteLevel") {
			return nil, fmt.Errorf("pre_tokenizer number %d of %d is %q, but \"ByteLevel\" must be the last and only the last",
				i+1, len(parts), parts[i].Type)
		}
		stages = append(stages, s)
	}
	if stages == nil {
		return nil, errors.New("has an empty pre_tokenizer, but only a byte-level one is supported")
	}
	return stages, nil
}

func newStage(c *component) (stage, error) {
	switch c.Type {
	case "ByteLevel":
		s := stage{prefixSpace: c.AddPrefixSpace}
		if c.UseRegex == nil || *c.UseRegex {
			s.next = gpt2Splitter(classes())
		}
		return s, nil
	case "Digits":
		return stage{next: digitsSplitter(classes(), c.IndividualDigits)}, nil
	case "Split":
		return newSplitStage(c)
	}
	return stage{}, fmt.Errorf("pre_tokenizer is of type %q; supported are \"ByteLevel\", \"Digits\", \"Split\" and a \"Sequence\" of them", c.Type)
}

func newSplitStage(c *component) (stage, error) {
	if c.Behavior != "Isolated" || c.Invert {
		return stage{}, fmt.Errorf("pre_tokenizer Split has behavior %q and invert %t, but only \"Isolated\" and false are supported",
			c.Behavior, c.Invert)
	}
	regex, ok := c.Pattern["Regex"]
	if !ok {
		return stage{}, errors.New("pre_tokenizer Split has no pattern of type \"Regex\", the only one that is supported")
	}
	next := splitterFor(regex)
	if next == nil {
		return stage{}, fmt.Errorf("pre_tokenizer Split has the pattern %s, but only those of GPT-2, Qwen2 and Llama-3 are supported", regex)
	}
	return stage{next: next}, nil
}

// usesNFC reads the normalizer of tokenizer.json.
func usesNFC(c *component) (bool, error) {
	if c == nil {
		return false, nil
	}
	switch c.Type {
	case "NFC":
		return true, nil
	case "Sequence":
		found := false
		for i := range c.Normalizers {
			nfc, err := usesNFC(&c.Normalizers[i])
			if err != nil {
				return false, err
			}
			found = found || nfc
		}
		return found, nil
	}
	return false, fmt.Errorf("normalizer is of type %q; supported are none, \"NFC\" and a \"Sequence\" of it", c.Type)
}

// checkDecoder refuses a decoder that does not simply join the bytes of the tokens.
func checkDecoder(c *component) error {
	if c == nil {
		return errors.New("has no decoder, but only \"ByteLevel\" is supported")
	}
	if c.Type != "ByteLevel" {
		return fmt.Errorf("decoder is of type %q, but only \"ByteLevel\" is supported", c.Type)
	}
	return nil
}
