package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// WordPiece turns text into the token ids of an encoder of the BERT family. It gives the ids that HuggingFace tokenizers
// gives with its special tokens at both ends, where what stands in the text is text and nothing else: "[SEP]" in it is
// three words. It is safe for use by several goroutines.
type WordPiece struct {
	normalizer     *bertNormalizer
	vocab          map[string]int32
	prefix         string // of a piece that is not the first of its word
	unknown        int32
	maxWord        int     // characters; longer words are unknown
	longest        int     // bytes of the longest token
	before, behind []int32 // special tokens around every text
	size           int
	hash           string
}

// LoadWordPiece reads the tokenizer.json of an encoder's folder. A kind of tokenizer, or a setting, that is not supported
// is an error that names it, never another encoding.
func LoadWordPiece(dir string) (*WordPiece, error) {
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, "vocab.txt")); err == nil {
			return nil, fmt.Errorf("%s is missing: vocab.txt alone does not say how text is normalized; transformers writes one with AutoTokenizer.from_pretrained(folder).save_pretrained(folder)", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the tokenizer cannot be read: %w", err)
	}
	w, err := parseWordPiece(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return w, nil
}

func parseWordPiece(data []byte) (*WordPiece, error) {
	file, err := parseWordPieceFile(data)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	w := &WordPiece{
		vocab: file.Model.Vocab, prefix: file.Model.prefix(), maxWord: file.Model.maxWord(), hash: hex.EncodeToString(sum[:]),
	}
	if w.normalizer, err = newBertNormalizer(file.Normalizer); err != nil {
		return nil, err
	}
	if w.unknown, err = file.unknown(); err != nil {
		return nil, err
	}
	if w.before, w.behind, err = file.specialTokens(); err != nil {
		return nil, err
	}
	if w.size, err = file.size(); err != nil {
		return nil, err
	}
	for token := range w.vocab {
		w.longest = max(w.longest, len(token))
	}
	return w, nil
}

// Encode gives the ids of a text with the special tokens around it, [CLS] and [SEP], in all at most maxTokens: of a
// longer text the beginning. The special tokens are there in any case.
func (w *WordPiece) Encode(text string, maxTokens int) []int32 {
	room := max(maxTokens-len(w.before)-len(w.behind), 0)
	ids := append(make([]int32, 0, min(room, len(text)/4+1)+len(w.before)+len(w.behind)), w.before...)
	most := len(ids) + room
	w.normalizer.words(w.normalizer.normalize(text), func(word string) bool {
		ids = w.word(ids, word)
		return len(ids) < most
	})
	return append(ids[:min(len(ids), most)], w.behind...)
}

// word appends the tokens of one word: again and again the longest that its rest begins with. A word that does not come
// out even is unknown as a whole.
func (w *WordPiece) word(ids []int32, word string) []int32 {
	if len(word) > w.maxWord && utf8.RuneCountInString(word) > w.maxWord {
		return append(ids, w.unknown)
	}
	begin := len(ids)
	spelled := make([]byte, 0, 64)
	for start := 0; start < len(word); {
		spelled = spelled[:0]
		if start > 0 {
			spelled = append(spelled, w.prefix...)
		}
		fixed := len(spelled)
		end := min(len(word), start+max(w.longest-fixed, 0))
		spelled = append(spelled, word[start:end]...)
		id, found := int32(0), false
		for ; len(spelled) > fixed; spelled = spelled[:len(spelled)-1] {
			if id, found = w.vocab[string(spelled)]; found {
				break
			}
		}
		if !found {
			return append(ids[:begin], w.unknown)
		}
		ids = append(ids, id)
		start += len(spelled) - fixed
	}
	return ids
}

// Size is the largest id plus one: the rows that the encoder's embedding must have at least.
func (w *WordPiece) Size() int { return w.size }

// Hash is the SHA-256 of tokenizer.json in hexadecimal.
func (w *WordPiece) Hash() string { return w.hash }
