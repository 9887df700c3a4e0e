package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// ids of the small tokenizer for raw bytes: one token per byte.
func byteTokens(raw string) []int32 {
	var ids []int32
	for i := range len(raw) {
		ids = append(ids, int32(raw[i]))
	}
	return ids
}

func TestBrokenUTF8(t *testing.T) {
	tok := small(t)
	for raw, want := range map[string]string{
		"":                     "",
		"abc é 東 😀":            "abc é 東 😀",
		"\x00":                 "\x00",
		"\xe6":                 "\ufffd",
		"\xe6\x9d":             "\ufffd",
		"\xe6 x":               "\ufffd x",
		"\xe6\x9dx":            "\ufffdx",
		"\xe6\xe6\x9d\xb1":     "\ufffd東",
		"\x80\x80":             "\ufffd\ufffd",
		"\xc0\xaf":             "\ufffd\ufffd",
		"\xc3":                 "\ufffd",
		"\xe0\x80\x80":         "\ufffd\ufffd\ufffd", // too long a form
		"\xe0\xa0":             "\ufffd",
		"\xed\xa0\x80":         "\ufffd\ufffd\ufffd", // a surrogate
		"\xf0\x9f\x98":         "\ufffd",
		"\xf0\x9f\x98x":        "\ufffdx",
		"\xf0\x80\x80\x80":     "\ufffd\ufffd\ufffd\ufffd",
		"\xf4\x90\x80\x80":     "\ufffd\ufffd\ufffd\ufffd", // beyond the last character
		"\xf4\x8f\xbf\xbf":     "\U0010ffff",
		"\xf5\xff":             "\ufffd\ufffd",
		"\xf1\x80\x80\xe2\x80": "\ufffd\ufffd",
	} {
		ids := byteTokens(raw)
		if got := tok.Decode(ids); got != want {
			t.Errorf("% x decodes to %+q, want %+q", raw, got, want)
		}
		stream, got := tok.NewStream(), ""
		for _, id := range ids {
			got += stream.Push(id)
		}
		if got += stream.Flush(); got != want {
			t.Errorf("% x streams to %+q, want %+q", raw, got, want)
		}
	}
}

func TestStreamWaitsForWholeCharacters(t *testing.T) {
	tok := small(t)
	rest := tok.EncodePlain("\x9d\xb1")
	if len(rest) != 1 {
		t.Fatalf("the bytes 9d b1 are %d tokens, want one", len(rest))
	}
	for name, c := range map[string]struct {
		ids   []int32
		texts []string // what has come out after each token, and after the end
	}{
		"a character in two tokens": {
			slices.Concat([]int32{0xE6}, rest, []int32{' ', 'x'}), []string{"", "東", "東 ", "東 x", "東 x"},
		},
		"a character that breaks off": {[]int32{0xE6, ' ', 'x'}, []string{"", "\ufffd ", "\ufffd x", "\ufffd x"}},
		"the end within a character":  {[]int32{'a', 0xE6, 0x9D}, []string{"a", "a", "a", "a\ufffd"}},
		"an id without a token":       {[]int32{0xE6, 9999, rest[0]}, []string{"", "", "東", "東"}},
		"a special token in between": {
			[]int32{0xE6, tokenizertest.FirstAddedID, 'x'},
			[]string{"", "\ufffd<|im_start|>", "\ufffd<|im_start|>x", "\ufffd<|im_start|>x"},
		},
	} {
		ids := slices.Clone(c.ids)
		stream, text := tok.NewStream(), ""
		for i, id := range ids {
			if text += stream.Push(id); text != c.texts[i] {
				t.Errorf("%s: %+q after token %d, want %+q", name, text, i, c.texts[i])
			}
		}
		text += stream.Flush()
		if want := c.texts[len(ids)]; text != want || text != tok.Decode(ids) {
			t.Errorf("%s: %+q at the end, want %+q; at once it is %+q", name, text, want, tok.Decode(ids))
		}
		if !slices.Equal(ids, c.ids) {
			t.Errorf("%s: decoding changed the ids", name)
		}
		if again := stream.Flush(); again != "" {
			t.Errorf("%s: a second Flush gives %+q", name, again)
		}
	}
}

func TestStreamedAndWholeTextAreEqual(t *testing.T) {
	tok := small(t, "<mem>")
	random := rand.New(rand.NewPCG(7, 8))
	for range 5000 {
		ids := make([]int32, random.IntN(12))
		for i := range ids {
			ids[i] = int32(random.IntN(tok.Size() + 3))
			if random.IntN(2) == 0 {
				ids[i] = 0x80 + int32(random.IntN(0x80))
			}
		}
		stream, text := tok.NewStream(), ""
		for _, id := range ids {
			part := stream.Push(id)
			if !utf8.ValidString(part) {
				t.Fatalf("%v streams the broken text %q", ids, part)
			}
			text += part
		}
		if text += stream.Flush(); text != tok.Decode(ids) {
			t.Fatalf("%v streams to %+q, at once it is %+q", ids, text, tok.Decode(ids))
		}
	}
}

func TestSkippingSpecialTokens(t *testing.T) {
	file := smallFile(t, "<mem>")
	file["added_tokens"] = append(file["added_tokens"].([]any), added(tokenizertest.FirstAddedID+3, "<think>"))
	tok := build(t, file)
	ids := tok.EncodeTrusted("a<mem>b<think>c<|im_end|>")
	if got, want := tok.Decode(ids), "a<mem>b<think>c<|im_end|>"; got != want {
		t.Errorf("decoded: %q, want %q", got, want)
	}
	if got, want := tok.DecodeSkippingSpecial(ids), "ab<think>c"; got != want {
		t.Errorf("without special tokens: %q, want %q", got, want)
	}
}
