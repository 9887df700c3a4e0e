// Package tokenizer turns text into the token ids of a model and back. It runs the byte-level BPE
// of a tokenizer.json file and gives the ids that HuggingFace tokenizers gives for the same text
// without automatic special tokens.
//
// Text comes as segments that are trusted or not: control tokens and other added tokens are
// recognised in trusted text only, so that text from outside can never bring one in.
package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer/internal/bytealphabet"
)

// Tokenizer encodes and decodes text. It is safe for use by several goroutines.
type Tokenizer struct {
	vocab        *vocabulary
	merger       *merger
	ignoreMerges bool // a word that is a token is that token, whatever the merges say
	stages       []stage
	nfc          bool
	verbatim     *matcher // added tokens that are looked for in the text as it is
	normalized   *matcher // and those that are looked for after normalising
	cache        *wordCache
	hash         string
}

// Segment is a part of a text to encode.
type Segment struct {
	Text string
	// Trusted text may hold added tokens. In other text their spelling is text like any other.
	Trusted bool
}

// Load reads the tokenizer.json of a model folder, and the added tokens of tokenizer_config.json
// where there is one. A kind of tokenizer, or a setting, that is not supported is an error that
// names it, never another encoding.
func Load(dir string) (*Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the tokenizer cannot be read: %w", err)
	}
	config, err := readConfigFile(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	t, err := parse(data, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func parse(data []byte, config configFile) (*Tokenizer, error) {
	file, err := parseTokenizerFile(data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	t := &Tokenizer{
		ignoreMerges: file.Model.IgnoreMerges,
		cache:        newWordCache(),
		hash:         hex.EncodeToString(sum[:]),
	}
	if t.nfc, err = usesNFC(file.Normalizer); err != nil {
		return nil, err
	}
	if t.stages, err = newStages(file.PreTokenizer); err != nil {
		return nil, err
	}
	if err = checkDecoder(file.Decoder); err != nil {
		return nil, err
	}
	added, err := addFromConfig(file.AddedTokens, config.AddedTokens)
	if err != nil {
		return nil, err
	}
	if t.vocab, err = newVocabulary(file.Model.tokens, added); err != nil {
		return nil, err
	}
	if t.merger, err = newMerger(file.Model.tokens, t.vocab.ids, file.Model.Merges); err != nil {
		return nil, err
	}
	if unk := file.Model.UnkToken; unk != nil && slices.Contains(t.merger.byteIDs[:], -1) {
		return nil, fmt.Errorf("model.unk_token is %q and model.vocab lacks some of the 256 bytes; supported is either alone", *unk)
	}
	t.setMatchers()
	return t, nil
}

func (t *Tokenizer) setMatchers() {
	var verbatim, normalized []addedToken
	for _, a := range t.vocab.added {
		if a.Normalized {
			normalized = append(normalized, a)
		} else {
			verbatim = append(verbatim, a)
		}
	}
	t.verbatim = newMatcher(verbatim, func(content string) string { return content })
	t.normalized = newMatcher(normalized, func(content string) string {
		content, _ = t.normalize(content, nil)
		return content
	})
}

// normalize returns the text that is split into words, and where in it the trusted ranges lie.
func (t *Tokenizer) normalize(text string, trusted []span) (string, []span) {
	if !t.nfc {
		return text, trusted
	}
	return nfc(text, trusted)
}

// Encode gives the token ids of the text that the segments make together: words and merges go
// across their borders. An added token, with the white space it takes, is recognised where all of
// it lies in trusted segments. No token is added at the start or the end.
func (t *Tokenizer) Encode(segments ...Segment) []int32 {
	text, trusted := join(segments)
	e := encoder{t: t, ids: make([]int32, 0, len(text)/3+1)}
	t.verbatim.split(text, trusted, func(s span, token *addedToken) {
		if token != nil {
			e.ids = append(e.ids, token.ID)
			return
		}
		stretch, inside := t.normalize(text[s.start:s.end], shiftSpans(nil, trusted, s.start, s.end, 0))
		t.normalized.split(stretch, inside, func(s span, token *addedToken) {
			if token != nil {
				e.ids = append(e.ids, token.ID)
				return
			}
			preTokenize(t.stages, stretch[s.start:s.end], e.word)
		})
	})
	return e.ids
}

// EncodePlain encodes text in which no added token is recognised.
func (t *Tokenizer) EncodePlain(text string) []int32 { return t.Encode(Segment{Text: text}) }

// EncodeTrusted encodes text in which every added token is recognised, as HuggingFace's
// encode(text, add_special_tokens=False) does.
func (t *Tokenizer) EncodeTrusted(text string) []int32 {
	return t.Encode(Segment{Text: text, Trusted: true})
}

// join gives the whole text and its trusted ranges, none of which touch.
func join(segments []Segment) (string, []span) {
	var trusted []span
	if len(segments) == 1 {
		if segments[0].Trusted {
			trusted = []span{{0, len(segments[0].Text)}}
		}
		return segments[0].Text, trusted
	}
	var text strings.Builder
	for _, s := range segments {
		if s.Trusted {
			trusted = addSpan(trusted, span{text.Len(), text.Len() + len(s.Text)})
		}
		text.WriteString(s.Text)
	}
	return text.String(), trusted
}

// encoder collects the ids of one text.
type encoder struct {
	t       *Tokenizer
	ids     []int32
	symbols []int32 // of the word at hand
}

// word appends the tokens of one word.
func (e *encoder) word(word string) {
	t := e.t
	if len(word) == 1 {
		e.ids = t.merger.symbols(e.ids, word)
		return
	}
	cached := len(word) <= longestCached
	if cached {
		if ids, ok := t.cache.get(word); ok {
			e.ids = append(e.ids, ids...)
			return
		}
	}
	if id, ok := t.vocab.ids[word]; ok && t.ignoreMerges {
		e.symbols = append(e.symbols[:0], id)
	} else {
		e.symbols = t.merger.merge(t.merger.symbols(e.symbols[:0], word))
	}
	if cached {
		t.cache.put(word, slices.Clone(e.symbols))
	}
	e.ids = append(e.ids, e.symbols...)
}

// TokenBytes gives the bytes of a token, for an added token those of its content, which are not
// always whole UTF-8. ok is false for an id without a token.
func (t *Tokenizer) TokenBytes(id int32) (raw []byte, ok bool) {
	token, ok := t.vocab.token(id)
	if !ok {
		return nil, false
	}
	return []byte(token), true
}

// Valid tells, for each id up to the largest, whether it has a token.
func (t *Tokenizer) Valid() []bool { return slices.Clone(t.vocab.valid) }

// Size is the largest id plus one: the rows that the model's embedding must have at least.
func (t *Tokenizer) Size() int { return len(t.vocab.valid) }

// ID gives the id of an added token by its content, or of a token of the vocabulary by its
// spelling in tokenizer.json.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	if id, ok := t.vocab.names[token]; ok {
		return id, true
	}
	raw, ok := bytealphabet.Read(token)
	if !ok {
		return 0, false
	}
	id, ok = t.vocab.ids[raw]
	return id, ok
}

// IsSpecial tells whether a token is marked as special.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.vocab.special) && t.vocab.special[id]
}

// SelfTest encodes each text, as trusted and as plain text, and decodes it again. The error names
// the first text that does not come back as it went in (or in normal form C, where the tokenizer
// normalises).
func (t *Tokenizer) SelfTest(texts ...string) error {
	for _, text := range texts {
		want, _ := t.normalize(text, nil)
		for _, ids := range [][]int32{t.EncodeTrusted(text), t.EncodePlain(text)} {
			if got := t.Decode(ids); got != want {
				return fmt.Errorf("the tokenizer turns %q into the ids %v, which decode to %q", text, ids, got)
			}
		}
	}
	return nil
}

// Hash is the SHA-256 of tokenizer.json in hexadecimal.
func (t *Tokenizer) Hash() string { return t.hash }
