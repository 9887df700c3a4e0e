package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The classes that BERT's normalizer and pre-tokenizer go by.
const (
	bertDrop class = 1 << iota // what clean_text takes away
	bertSpace
	bertMark // what strip_accents takes away, once characters are decomposed
	bertPunct
)

// bertClasses is built once, at its first use.
var bertClasses = sync.OnceValue(func() *classTable {
	return newClassTable(classRanges{bertDropped, bertDrop}, classRanges{bertSpaces, bertSpace},
		classRanges{bertMarks, bertMark}, classRanges{bertPunctuation, bertPunct})
})

// bertNormalizer is the BertNormalizer of tokenizer.json.
type bertNormalizer struct {
	clean, ideographs, strip, lower bool
	classes                         *classTable
}

// newBertNormalizer reads the normalizer of tokenizer.json, with the defaults of tokenizers.
func newBertNormalizer(c *wordPieceNormalizer) (*bertNormalizer, error) {
	if c == nil || c.Type != "BertNormalizer" {
		return nil, fmt.Errorf("normalizer is %s, but a WordPiece model is supported with \"BertNormalizer\" only", c.describe())
	}
	set := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	lower := set(c.Lowercase, true)
	return &bertNormalizer{
		clean: set(c.CleanText, true), ideographs: set(c.HandleChineseChars, true),
		strip: set(c.StripAccents, lower), lower: lower, classes: bertClasses(),
	}, nil
}

// normalize applies the settings in the order of tokenizers: each stage to what the one before gave. Bytes that are not
// UTF-8 count as U+FFFD.
func (n *bertNormalizer) normalize(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if n.clean || n.ideographs {
		text = n.cleaned(text)
	}
	if n.strip {
		text = n.stripped(text)
	}
	if n.lower {
		text = lowered(text)
	}
	return text
}

// cleaned drops control characters, makes every white space a space, and puts spaces around ideographs.
func (n *bertNormalizer) cleaned(text string) string {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		switch class := n.classes.of(r); {
		case n.clean && class&bertDrop != 0:
		case n.clean && class&bertSpace != 0:
			out = append(out, ' ')
		case n.ideographs && ideograph(r):
			out = append(utf8.AppendRune(append(out, ' '), r), ' ')
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}

// ideograph tells the characters that BERT makes words of their own (the CJK blocks of its original tokenization.py, as
// tokenizers has them).
func ideograph(r rune) bool {
	if r < 0x3400 {
		return false
	}
	for _, block := range [][2]rune{
		{0x4E00, 0x9FFF}, {0x3400, 0x4DBF}, {0xF900, 0xFAFF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
	} {
		if block[0] <= r && r <= block[1] {
			return true
		}
	}
	return false
}

// stripped decomposes characters (normal form D) and drops the accents among what comes out.
func (n *bertNormalizer) stripped(text string) string {
	out := make([]byte, 0, len(text))
	for pos := 0; pos < len(text); {
		if text[pos] < utf8.RuneSelf {
			out = append(out, text[pos])
			pos++
			continue
		}
		end := pos
		for end < len(text) && text[end] >= utf8.RuneSelf {
			end++
		}
		marks := decompose(text[pos:end])
		orderMarks(marks)
		for _, m := range marks {
			if n.classes.of(m.r)&bertMark == 0 {
				out = utf8.AppendRune(out, m.r)
			}
		}
		pos = end
	}
	return string(out)
}

// lowered gives each character its lower-case form by itself, with no regard to where in a word it stands.
func lowered(text string) string {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if r == 0x130 { // capital I with dot above
			out = append(out, "i\u0307"...)
			continue
		}
		lower, listed := rune(0), false
		if r >= utf8.RuneSelf {
			lower, listed = bertLower[r]
		}
		if !listed {
			lower = unicode.ToLower(r)
		}
		out = utf8.AppendRune(out, lower)
	}
	return string(out)
}

// words cuts normalized text into words until `yield` says to stop: white space separates them, and each mark of
// punctuation is one.
func (n *bertNormalizer) words(text string, yield func(word string) bool) {
	start := 0
	for pos := 0; pos < len(text); {
		r, size := utf8.DecodeRuneInString(text[pos:])
		class := n.classes.of(r)
		if class&(bertSpace|bertPunct) != 0 {
			if start < pos && !yield(text[start:pos]) {
				return
			}
			if class&bertPunct != 0 && !yield(text[pos:pos+size]) {
				return
			}
			start = pos + size
		}
		pos += size
	}
	if start < len(text) {
		yield(text[start:])
	}
}
