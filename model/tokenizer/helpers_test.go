package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer/internal/bytealphabet"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// object is a JSON object that a test changes before it is loaded.
type object = map[string]any

// smallFile is the tokenizer.json of tokenizertest with the given special tokens.
func smallFile(t testing.TB, specials ...string) object {
	t.Helper()
	dir := t.TempDir()
	if err := tokenizertest.Write(dir, specials...); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file object
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func encodeJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// build makes a tokenizer of a changed file.
func build(t testing.TB, file object) *Tokenizer {
	t.Helper()
	tok, err := parse(encodeJSON(t, file), configFile{})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// small is the tokenizer of tokenizertest.
func small(t testing.TB, specials ...string) *Tokenizer {
	t.Helper()
	return build(t, smallFile(t, specials...))
}

// added is an added token of tokenizer.json; flags name those that are true.
func added(id int32, content string, flags ...string) object {
	a := object{"id": id, "content": content}
	for _, flag := range []string{"special", "single_word", "lstrip", "rstrip", "normalized"} {
		a[flag] = slices.Contains(flags, flag)
	}
	return a
}

// withMerges replaces vocabulary and merges: 256 bytes without those in missing, in order, then one
// token for each merge, whose parts are written "a b" with raw bytes, "␣" for a space.
func withMerges(file object, missing string, merges ...string) object {
	vocab := map[string]any{}
	for b := range 256 {
		if raw := string([]byte{byte(b)}); !strings.Contains(missing, raw) {
			vocab[bytealphabet.Spell(raw)] = len(vocab)
		}
	}
	var lines []any
	for _, m := range merges {
		spelled := bytealphabet.Spell(strings.ReplaceAll(strings.ReplaceAll(m, " ", "\x00"), "␣", " "))
		spelled = strings.ReplaceAll(spelled, bytealphabet.Spell("\x00"), " ")
		lines = append(lines, spelled)
		token := strings.ReplaceAll(spelled, " ", "")
		if _, ok := vocab[token]; !ok {
			vocab[token] = len(vocab)
		}
	}
	model := maps.Clone(file["model"].(object))
	model["vocab"], model["merges"] = vocab, append([]any{}, lines...)
	file = maps.Clone(file)
	file["model"], file["added_tokens"] = model, []any{}
	return file
}

// pieces shows ids as the quoted bytes of their tokens.
func pieces(tok *Tokenizer, ids []int32) []string {
	var out []string
	for _, id := range ids {
		raw, ok := tok.TokenBytes(id)
		if !ok {
			raw = []byte("no token")
		}
		out = append(out, string(raw))
	}
	return out
}
