//go:build shared

package tokenizer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"
)

// goldenFolders are the tokenizers there are HuggingFace encodings of.
var goldenFolders = []string{"gpt2", "llama3", "qwen2_5", "qwen3", "smollm2"}

// goldenCase is a text with its ids, and, where decoding does not give the text back, what it gives.
type goldenCase struct {
	Category    string  `json:"cat"`
	Text        string  `json:"text"`
	IDs         []int32 `json:"ids"`
	Decoded     *string `json:"decoded"`
	DecodedSkip *string `json:"decoded_skip"`
}

// decoded is what HuggingFace decodes the ids to, with and without special tokens.
func (c goldenCase) decoded() (all, skipped string) {
	all = c.Text
	if c.Decoded != nil {
		all = *c.Decoded
	}
	skipped = all
	if c.DecodedSkip != nil {
		skipped = *c.DecodedSkip
	}
	return all, skipped
}

func goldenDir(t testing.TB) string {
	t.Helper()
	root := os.Getenv("MEMPO_SHARED")
	if root == "" {
		t.Fatal("MEMPO_SHARED is not set")
	}
	return filepath.Join(root, "golden", "tokenizers")
}

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func loadGolden(t testing.TB, name string) (*Tokenizer, []goldenCase) {
	t.Helper()
	from, dir := filepath.Join(goldenDir(t), name), t.TempDir()
	config, err := os.ReadFile(filepath.Join(from, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"tokenizer.json":        unzip(t, filepath.Join(from, "tokenizer.json.gz")),
		"tokenizer_config.json": config,
	}
	for file, data := range files {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	lines := bufio.NewScanner(bytes.NewReader(unzip(t, filepath.Join(from, "cases.jsonl.gz"))))
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var c goldenCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 4000 {
		t.Fatalf("%s has %d cases only", name, len(cases))
	}
	return tok, cases
}

func TestEqualsHuggingFace(t *testing.T) {
	for _, name := range goldenFolders {
		t.Run(name, func(t *testing.T) {
			tok, cases := loadGolden(t, name)
			wrong := map[string]int{}
			check := func(ok bool, what string, c goldenCase, got, want any) {
				if ok {
					return
				}
				if wrong[what]++; wrong[what] <= 5 {
					t.Errorf("%s of %.200q (%s): got %v, want %v", what, c.Text, c.Category, got, want)
				}
			}
			for _, c := range cases {
				got := tok.EncodeTrusted(c.Text)
				check(slices.Equal(got, c.IDs), "ids", c, got, c.IDs)
				all, skipped := c.decoded()
				text := tok.Decode(c.IDs)
				check(text == all, "decoded text", c, text, all)
				text = tok.DecodeSkippingSpecial(c.IDs)
				check(text == skipped, "text without special tokens", c, text, skipped)
				text = streamed(tok, c.IDs)
				check(text == all, "streamed text", c, text, all)
			}
			t.Logf("%d cases, mismatches: %v", len(cases), wrong)
		})
	}
}

// Whole chats as transformers renders and encodes them.
func TestRenderedChatsEqualTransformers(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(goldenDir(t), "..", "chat", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	tokenizers := map[string]*Tokenizer{}
	n := 0
	for line := range bytes.Lines(file) {
		var c struct {
			Tokenizer, Text string
			IDs             []int32
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if tokenizers[c.Tokenizer] == nil {
			tokenizers[c.Tokenizer], _ = loadGolden(t, c.Tokenizer)
		}
		if got := tokenizers[c.Tokenizer].EncodeTrusted(c.Text); !slices.Equal(got, c.IDs) {
			t.Errorf("%s: %.200q becomes %v, want %v", c.Tokenizer, c.Text, got, c.IDs)
		}
		n++
	}
	if n < 10 {
		t.Errorf("only %d cases", n)
	}
}

// Plain encoding brings no added token in, and where nothing is dropped or normalised it decodes
// to the text; cutting the text into untrusted segments changes nothing.
func TestPlainEncodingOfHardStrings(t *testing.T) {
	for _, name := range goldenFolders {
		t.Run(name, func(t *testing.T) {
			tok, cases := loadGolden(t, name)
			for _, c := range cases {
				ids := tok.EncodePlain(c.Text)
				for _, id := range ids {
					if tok.IsSpecial(id) {
						t.Fatalf("plain %.100q holds the special token %d", c.Text, id)
					}
				}
				if c.Decoded == nil && tok.Decode(ids) != c.Text {
					t.Errorf("plain %.100q decodes to %.100q", c.Text, tok.Decode(ids))
				}
				for cut := 0; cut <= len(c.Text); cut += 1 + len(c.Text)/5 {
					parts := []Segment{{Text: c.Text[:cut]}, {Text: c.Text[cut:]}}
					if got := tok.Encode(parts...); !slices.Equal(got, ids) {
						t.Errorf("%.100q cut at %d: %v, whole: %v", c.Text, cut, got, ids)
					}
				}
			}
		})
	}
}

func streamed(tok *Tokenizer, ids []int32) string {
	stream := tok.NewStream()
	var text []byte
	for _, id := range ids {
		text = append(text, stream.Push(id)...)
		if !utf8.Valid(text) {
			return "not UTF-8: " + string(text)
		}
	}
	return string(append(text, stream.Flush()...))
}

// BenchmarkGolden encodes English articles, 2 kB at a time.
func BenchmarkGolden(b *testing.B) {
	data, err := os.ReadFile(filepath.Join(os.Getenv("MEMPO_SHARED"), "data", "hotpotqa_sample", "corpus.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	text := string(data[:min(len(data), 2<<20)])
	for _, name := range goldenFolders {
		b.Run(name, func(b *testing.B) {
			tok, _ := loadGolden(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for pos := 0; pos < len(text); pos += 2048 {
					tok.EncodePlain(text[pos:min(pos+2048, len(text))])
				}
			}
		})
		b.Run(name+"/uncached", func(b *testing.B) {
			tok, _ := loadGolden(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.cache = newWordCache()
				for pos := 0; pos < len(text); pos += 2048 {
					tok.EncodePlain(text[pos:min(pos+2048, len(text))])
				}
			}
		})
		b.Run(name+"/load", func(b *testing.B) {
			data := unzip(b, filepath.Join(goldenDir(b), name, "tokenizer.json.gz"))
			for b.Loop() {
				if _, err := parse(data, configFile{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
