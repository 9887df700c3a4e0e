package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// at gives the object under the keys, to change it.
func at(file object, keys ...string) object {
	for _, key := range keys {
		file = file[key].(object)
	}
	return file
}

// split is a pre_tokenizer of the Split type.
func split(pattern object, behavior string, invert bool) object {
	return object{"type": "Sequence", "pretokenizers": []any{
		object{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert},
		object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
	}}
}

func TestUnsupportedTokenizersAreRefusedByName(t *testing.T) {
	llama := object{"Regex": patternLlama}
	next := tokenizertest.FirstAddedID + 2
	add := func(tokens ...object) func(object) {
		return func(f object) {
			for _, a := range tokens {
				f["added_tokens"] = append(f["added_tokens"].([]any), a)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(file object)
		want   []string // in the error
	}{
		"model":              {func(f object) { delete(f, "model") }, []string{`has no "model"`}},
		"model type":         {func(f object) { at(f, "model")["type"] = "Unigram" }, []string{`"Unigram"`, `"BPE"`}},
		"model of lists":     {func(f object) { f["model"] = object{"type": "Unigram", "vocab": []any{[]any{"a", 0.5}}} }, []string{`"Unigram"`}},
		"no type, no merges": {func(f object) { f["model"] = object{"vocab": object{"a": 0}} }, []string{`model.type is ""`}},
		"dropout":            {func(f object) { at(f, "model")["dropout"] = 0.1 }, []string{"model.dropout is 0.1"}},
		"prefix":             {func(f object) { at(f, "model")["continuing_subword_prefix"] = "##" }, []string{"continuing_subword_prefix", `"##"`}},
		"suffix":             {func(f object) { at(f, "model")["end_of_word_suffix"] = "</w>" }, []string{"end_of_word_suffix", `"</w>"`}},
		"byte fallback":      {func(f object) { at(f, "model")["byte_fallback"] = true }, []string{"byte_fallback"}},
		"unknown token": {func(f object) {
			at(f, "model")["unk_token"], f["added_tokens"] = "?", nil
			delete(at(f, "model", "vocab"), "Z")
		}, []string{"unk_token", `"?"`}},
		"no vocabulary":      {func(f object) { delete(at(f, "model"), "vocab") }, []string{"model.vocab"}},
		"empty vocabulary":   {func(f object) { at(f, "model")["vocab"] = object{} }, []string{"model.vocab is empty"}},
		"vocabulary of text": {func(f object) { at(f, "model", "vocab")["a"] = "b" }, []string{"model.vocab"}},
		"two of one id":      {func(f object) { at(f, "model", "vocab")["zz"] = 97 }, []string{"id 97"}},
		"negative id":        {func(f object) { at(f, "model", "vocab")["zz"] = -1 }, []string{`"zz"`, "-1"}},
		"huge id":            {func(f object) { at(f, "model", "vocab")["zz"] = 1 << 30 }, []string{`"zz"`, "1073741824"}},
		"no merges":          {func(f object) { delete(at(f, "model"), "merges") }, []string{"model.merges"}},
		"merges as text":     {func(f object) { at(f, "model")["merges"] = "a b" }, []string{"model.merges"}},
		"merge of one":       {func(f object) { at(f, "model")["merges"] = []any{"a b", "ab"} }, []string{"model.merges number 1", "1 parts"}},
		"merge of three":     {func(f object) { at(f, "model")["merges"] = []any{[]any{"a", "b", "c"}} }, []string{"model.merges number 0", "3 parts"}},
		"merge of unknown":   {func(f object) { at(f, "model")["merges"] = []any{"h e", "a bc"} }, []string{"model.merges number 1", `"bc"`}},
		"merge into unknown": {func(f object) { at(f, "model")["merges"] = []any{"z z"} }, []string{`"zz"`}},
		"normalizer":         {func(f object) { f["normalizer"] = object{"type": "Lowercase"} }, []string{"normalizer", `"Lowercase"`}},
		"one of normalizers": {func(f object) {
			f["normalizer"] = object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}, object{"type": "NFKC"}}}
		}, []string{`"NFKC"`}},
		"no pre-tokenizer":    {func(f object) { f["pre_tokenizer"] = nil }, []string{"pre_tokenizer"}},
		"empty pre-tokenizer": {func(f object) { f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{}} }, []string{"pre_tokenizer"}},
		"pre-tokenizer":       {func(f object) { f["pre_tokenizer"] = object{"type": "Metaspace", "replacement": "▁"} }, []string{`"Metaspace"`}},
		"no byte level":       {func(f object) { f["pre_tokenizer"] = object{"type": "Digits"} }, []string{`"Digits"`, `"ByteLevel"`}},
		"byte level first": {func(f object) {
			f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{object{"type": "ByteLevel"}, object{"type": "ByteLevel"}}}
		}, []string{"number 1 of 2"}},
		"split pattern":     {func(f object) { f["pre_tokenizer"] = split(object{"Regex": `\d+`}, "Isolated", false) }, []string{`\d+`}},
		"split string":      {func(f object) { f["pre_tokenizer"] = split(object{"String": " "}, "Isolated", false) }, []string{`"Regex"`}},
		"split behaviour":   {func(f object) { f["pre_tokenizer"] = split(llama, "Removed", false) }, []string{`"Removed"`}},
		"split inverted":    {func(f object) { f["pre_tokenizer"] = split(llama, "Isolated", true) }, []string{"invert true"}},
		"no decoder":        {func(f object) { f["decoder"] = nil }, []string{"decoder"}},
		"decoder":           {func(f object) { f["decoder"] = object{"type": "Replace", "pattern": object{"String": "▁"}} }, []string{`"Replace"`}},
		"two of one token":  {add(added(next, "<m>"), added(next+1, "<m>")), []string{`"<m>"`, "279", "278"}},
		"token of an id":    {add(added(97, "<m>")), []string{`"<m>"`, "id 97", `"a"`}},
		"token elsewhere":   {add(added(next, "a")), []string{`"a"`, "id 278", "id 97"}},
		"a hole":            {add(added(next+5, "<m>")), []string{`"<m>"`, "283", "278"}},
		"negative added id": {add(added(-5, "<m>")), []string{`"<m>"`, "-5"}},
	} {
		file := smallFile(t)
		c.change(file)
		expectError(t, name, encodeJSON(t, file), nil, c.want...)
	}
}

// expectError loads a folder with the given files; nil stands for none.
func expectError(t *testing.T, name string, file, config []byte, want ...string) {
	t.Helper()
	dir := t.TempDir()
	for base, data := range map[string][]byte{"tokenizer.json": file, "tokenizer_config.json": config} {
		if data != nil {
			write(t, dir, base, data)
		}
	}
	_, err := Load(dir)
	if err == nil {
		t.Errorf("%s: no error", name)
		return
	}
	for _, part := range append(want, dir) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error does not say %s: %v", name, part, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: the error has several lines: %v", name, err)
	}
}

func TestBrokenFiles(t *testing.T) {
	good := encodeJSON(t, smallFile(t, "<mem>", "</mem>"))
	swapped := `{"added_tokens_decoder": {"278": {"content": "</mem>"}, "279": {"content": "<mem>"}}}`
	for name, c := range map[string]struct {
		file, config []byte
		want         []string
	}{
		"no file":              {nil, nil, []string{"tokenizer.json", "no such file"}},
		"empty file":           {[]byte{}, nil, []string{"tokenizer.json", "line 1"}},
		"cut file":             {good[:len(good)/2], nil, []string{"tokenizer.json", "line 1"}},
		"broken line":          {[]byte("{\n\n\"model\": }"), nil, []string{"line 3"}},
		"a list":               {[]byte("[]"), nil, []string{"line 1", "the file", "array"}},
		"a number for a token": {[]byte(`{"added_tokens": [{"id": 1, "content": 5}]}`), nil, []string{"added_tokens.content", "line 1", "number"}},
		"broken settings":      {good, []byte("{"), []string{"tokenizer_config.json", "line 1"}},
		"settings of text":     {good, []byte(`{"added_tokens_decoder": {"x": {}}}`), []string{"tokenizer_config.json"}},
		"two ids swapped":      {good, []byte(swapped), []string{"</mem>", "278", "279", "tokenizer_config.json"}},
		"another id": {
			good, []byte(`{"added_tokens_decoder": {"300": {"content": "<new>"}}}`), []string{"<new>", "300", "280"},
		},
	} {
		expectError(t, name, c.file, c.config, c.want...)
	}
}

func TestAddedTokensOfTheSettings(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "tokenizer.json", encodeJSON(t, smallFile(t)))
	write(t, dir, "tokenizer_config.json", []byte(`{"added_tokens_decoder": {
		"276": {"content": "<|im_start|>", "special": true},
		"279": {"content": "<think>"},
		"278": {"content": "<pad>", "special": true}}}`))
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := show(tok, tok.EncodeTrusted("a<think><pad>")), "a|[<think>]|[<pad>]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !tok.IsSpecial(278) || tok.IsSpecial(279) {
		t.Error("<pad> is special and <think> is not, but they came out otherwise")
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		dir := t.TempDir()
		if err := tokenizertest.Write(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a folder in place of %s: %v", name, err)
		}
	}
}

func TestOldFilesWithoutModelType(t *testing.T) {
	file := smallFile(t)
	delete(at(file, "model"), "type")
	tok := build(t, file)
	if got := show(tok, tok.EncodePlain(" the")); got != " the" {
		t.Errorf("got %q", got)
	}
}
