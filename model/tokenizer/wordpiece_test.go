package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const wordPieceGolden = "testdata/wordpiece"

// wordPieceJSON is the golden tokenizer.json.
func wordPieceJSON(t testing.TB) object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(wordPieceGolden, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file object
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func buildWordPiece(t testing.TB, file object) *WordPiece {
	t.Helper()
	w, err := parseWordPiece(encodeJSON(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// goldenWordPiece is what HuggingFace tokenizers gives, as tools/golden_wordpiece.py wrote it.
type goldenWordPiece struct {
	Texts []string `json:"texts"`
	Cases []struct {
		Settings object    `json:"settings"`
		IDs      [][]int32 `json:"ids"`
		AtMost9  [][]int32 `json:"at most 9"`
	} `json:"cases"`
	Blocks [][]string `json:"blocks"` // hashes of the normalized form of 0x1000 characters each
}

func readWordPieceGolden(t testing.TB) (golden goldenWordPiece) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(wordPieceGolden, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Texts) < 600 || len(golden.Cases) != 4 || len(golden.Blocks) != 4 {
		t.Fatalf("%d texts, %d cases", len(golden.Texts), len(golden.Cases))
	}
	return golden
}

// withSettings is the golden tokenizer with other settings of its normalizer.
func withSettings(t testing.TB, settings object) *WordPiece {
	t.Helper()
	file := wordPieceJSON(t)
	normalizer := object{"type": "BertNormalizer"}
	maps.Copy(normalizer, settings)
	file["normalizer"] = normalizer
	return buildWordPiece(t, file)
}

func TestWordPieceEqualsHuggingFace(t *testing.T) {
	golden := readWordPieceGolden(t)
	for _, c := range golden.Cases {
		w := withSettings(t, c.Settings)
		wrong, pieces := 0, 0
		for k, text := range golden.Texts {
			if got := w.Encode(text, 1<<20); !slices.Equal(got, c.IDs[k]) {
				if wrong++; wrong < 6 {
					t.Errorf("%v: %+q becomes %v, want %v", c.Settings, text, got, c.IDs[k])
				}
			}
			if got := w.Encode(text, 9); !slices.Equal(got, c.AtMost9[k]) {
				t.Errorf("%v: %+q in 9 tokens becomes %v, want %v", c.Settings, text, got, c.AtMost9[k])
			}
			pieces += len(c.IDs[k])
		}
		t.Logf("%v: %d texts of %d ids, %d differ", c.Settings, len(golden.Texts), pieces, wrong)
	}
}

func TestEveryCharacterIsNormalizedAsByHuggingFace(t *testing.T) {
	golden := readWordPieceGolden(t)
	for k, c := range golden.Cases {
		w := withSettings(t, c.Settings)
		for block, want := range golden.Blocks[k] {
			var text strings.Builder
			for r := rune(block * 0x1000); r < rune(block+1)*0x1000; r++ {
				if r < 0xD800 || r > 0xDFFF {
					text.WriteString("a" + string(r) + "b" + string(r) + "\u0323")
				}
			}
			sum := sha256.Sum256([]byte(w.normalizer.normalize(text.String())))
			if got := hex.EncodeToString(sum[:8]); got != want {
				t.Errorf("%v: characters from U+%04X on differ", c.Settings, block*0x1000)
			}
		}
	}
}

// The spelling of a special token in a text is text.
func TestWordPieceTextBringsNoSpecialTokenIn(t *testing.T) {
	w := withSettings(t, nil)
	cls, sep := w.before[0], w.behind[0]
	got := w.Encode("[CLS] a [SEP] b [MASK]", 100)
	inside := got[1 : len(got)-1]
	if got[0] != cls || got[len(got)-1] != sep || slices.Contains(inside, cls) || slices.Contains(inside, sep) || slices.Contains(inside, w.vocab["[MASK]"]) {
		t.Errorf("ids %v", got)
	}
	var words []string
	w.normalizer.words(w.normalizer.normalize("[SEP]"), func(word string) bool { words = append(words, word); return true })
	if !slices.Equal(words, []string{"[", "sep", "]"}) {
		t.Errorf("words %q", words)
	}
}

func TestWordPieceLengths(t *testing.T) {
	w := withSettings(t, nil)
	long := strings.Repeat("the water of \u0301", 1<<18)
	for _, most := range []int{0, 1, 2, 3, 9, 512} {
		got := w.Encode(long, most)
		if len(got) != max(most, 2) || got[0] != w.before[0] || got[len(got)-1] != w.behind[0] {
			t.Errorf("at most %d: %d ids from %d to %d", most, len(got), got[0], got[len(got)-1])
		}
	}
	// One word, marks without a letter, and broken text, of megabytes each.
	for _, text := range []string{strings.Repeat("a", 4<<20), strings.Repeat("\u0301\u0323", 1<<19), strings.Repeat("\xff\xfe", 1<<20), strings.Repeat("\u302e\u302a", 1<<18)} {
		if got := w.Encode(text, 512); len(got) > 3 {
			t.Errorf("%+.20q… becomes %d ids", text, len(got))
		}
	}
	if got := w.Encode("a\xffb \xf0\x9f\x98", 9); !slices.Equal(got, w.Encode("a\ufffdb \ufffd", 9)) {
		t.Errorf("broken text becomes %v", got)
	}
}

func TestWordPieceRefuses(t *testing.T) {
	special := object{"SpecialToken": object{"id": "[CLS]", "type_id": 0}}
	text := object{"Sequence": object{"id": "A", "type_id": 0}}
	for name, c := range map[string]struct {
		change func(object)
		want   string
	}{
		"another model":          {func(f object) { at(f, "model")["type"] = "Unigram" }, `model.type is "Unigram"`},
		"no model":               {func(f object) { delete(f, "model") }, `no "model"`},
		"no vocabulary":          {func(f object) { at(f, "model")["vocab"] = object{} }, "model.vocab"},
		"a negative id":          {func(f object) { at(f, "model", "vocab")["the"] = -1 }, `"the"`},
		"a huge id":              {func(f object) { at(f, "model", "vocab")["the"] = 1 << 30 }, `"the"`},
		"an id of another kind":  {func(f object) { at(f, "model", "vocab")["the"] = "x" }, "string"},
		"no unknown token":       {func(f object) { at(f, "model")["unk_token"] = "<none>" }, "<none>"},
		"no characters":          {func(f object) { at(f, "model")["max_input_chars_per_word"] = 0 }, "max_input_chars_per_word is 0"},
		"no normalizer":          {func(f object) { delete(f, "normalizer") }, "normalizer is missing"},
		"another normalizer":     {func(f object) { at(f, "normalizer")["type"] = "NFKC" }, `"NFKC"`},
		"another pre-tokenizer":  {func(f object) { at(f, "pre_tokenizer")["type"] = "Whitespace" }, "pre_tokenizer"},
		"no post-processor":      {func(f object) { delete(f, "post_processor") }, "post_processor"},
		"another post-processor": {func(f object) { at(f, "post_processor")["type"] = "ByteLevel" }, "TemplateProcessing"},
		"no text":                {func(f object) { at(f, "post_processor")["single"] = []any{special} }, "0 times"},
		"the text twice":         {func(f object) { at(f, "post_processor")["single"] = []any{text, text} }, "2 times"},
		"text of type 1": {func(f object) {
			at(f, "post_processor")["single"] = []any{object{"Sequence": object{"id": "A", "type_id": 1}}}
		}, "type_id"},
		"an unknown special":       {func(f object) { at(f, "post_processor")["special_tokens"] = object{} }, "special_tokens"},
		"a special with an odd id": {func(f object) { at(f, "post_processor", "special_tokens", "[SEP]")["ids"] = []int{-3} }, "[SEP]"},
		"cut on the left":          {func(f object) { f["truncation"] = object{"direction": "Left"} }, "Left"},
		"an added word":            {func(f object) { f["added_tokens"] = []any{added(7, "hello")} }, "hello"},
	} {
		file := wordPieceJSON(t)
		c.change(file)
		if _, err := parseWordPiece(encodeJSON(t, file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLoadWordPiece(t *testing.T) {
	dir := t.TempDir()
	if _, err := LoadWordPiece(dir); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("an empty folder: %v", err)
	}
	write(t, dir, "vocab.txt", []byte("[UNK]\nthe\n"))
	if _, err := LoadWordPiece(dir); err == nil || !strings.Contains(err.Error(), "save_pretrained") || !strings.Contains(err.Error(), "tokenizer.json") {
		t.Errorf("a folder with vocab.txt: %v", err)
	}
	w, err := LoadWordPiece(wordPieceGolden)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(w.vocab); w.Size() != got || w.Hash() == "" {
		t.Errorf("size %d of %d tokens, hash %q", w.Size(), got, w.Hash())
	}
}

// FuzzWordPiece reads broken files and encodes any text: an error or ids that the vocabulary has, never a panic.
func FuzzWordPiece(f *testing.F) {
	good, err := os.ReadFile(filepath.Join(wordPieceGolden, "tokenizer.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, "The café [SEP]\u0301", 5)
	f.Add([]byte(`{"model":{"type":"WordPiece","vocab":{"[UNK]":0,"":1},"continuing_subword_prefix":""},"normalizer":{"type":"BertNormalizer"},
		"pre_tokenizer":{"type":"BertPreTokenizer"},"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}]}}`), "\xff \x00 京", -1)
	f.Add([]byte(`{"model":{"type":"WordPiece"},"post_processor":{"single":[null,{}]}}`), "", 0)
	fixed, err := parseWordPiece(good)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, text string, most int) {
		for _, w := range []*WordPiece{fixed, parsed(data)} {
			if w == nil {
				continue
			}
			ids := w.Encode(text, most)
			if len(ids) > max(most, len(w.before)+len(w.behind)) {
				t.Errorf("%d ids, allowed are %d", len(ids), most)
			}
			for _, id := range ids {
				if id < 0 || int(id) >= w.Size() {
					t.Errorf("id %d of %d", id, w.Size())
				}
			}
		}
	})
}

// parsed is nil for a broken file.
func parsed(data []byte) *WordPiece {
	w, err := parseWordPiece(data)
	if err != nil {
		return nil
	}
	return w
}
