package tokenizer

import (
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzLoad reads broken files: an error or a tokenizer that works, never a panic.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}}`,
		`{"model":{"vocab":{"a":0,"aa":300},"merges":[["a","a"]],"ignore_merges":true},"decoder":{"type":"ByteLevel"},
		 "pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel","add_prefix_space":true}]},
		 "normalizer":{"type":"NFC"},"added_tokens":[{"id":0,"content":"a","lstrip":true,"rstrip":true,"single_word":true,"normalized":true}]}`,
		`{"model":{"type":"BPE","vocab":{"Ġ":0},"merges":[],"unk_token":"Ġ"},"added_tokens":[{"id":1,"content":"<mem>"},{"id":2,"content":""}]}`,
		`{"model":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := parse(data, configFile{})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		ids := tok.EncodeTrusted("aa bb<mem> 12\n")
		for _, id := range ids {
			if _, ok := tok.TokenBytes(id); !ok {
				t.Errorf("id %d has no token", id)
			}
		}
		tok.Decode(ids)
	})
}

// FuzzEncode encodes a text whole and cut in two: plain text comes back as it was and holds no
// special token, and where it is cut does not matter.
func FuzzEncode(f *testing.F) {
	for _, text := range slices.Concat(hostile, harmless) {
		f.Add(text, len(text)/2)
	}
	f.Add("e\xff\u0301\xe6", 2)
	plain := small(f, "<mem>", "</mem>")
	file := withPattern(smallFile(f, "<mem>", "</mem>"), patternQwen)
	file["normalizer"] = object{"type": "NFC"}
	normalizing := build(f, file)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		cut = max(0, min(cut, len(text)))
		for _, tok := range []*Tokenizer{plain, normalizing} {
			want, _ := tok.normalize(text, nil)
			ids := tok.EncodePlain(text)
			if slices.ContainsFunc(ids, tok.IsSpecial) {
				t.Errorf("plain %q holds a special token: %v", text, ids)
			}
			got := tok.Decode(ids)
			if utf8.ValidString(text) && got != want || !utf8.ValidString(got) {
				t.Errorf("plain %q comes back as %q", text, got)
			}
			if parts := tok.Encode(Segment{Text: text[:cut]}, Segment{Text: text[cut:]}); !slices.Equal(parts, ids) {
				t.Errorf("%q cut at %d: %v, whole: %v", text, cut, parts, ids)
			}
			trusted := tok.EncodeTrusted(text)
			if got := tok.Decode(trusted); utf8.ValidString(text) && got != want {
				t.Errorf("trusted %q comes back as %q", text, got)
			}
			mixed := tok.Encode(Segment{text[:cut], true}, Segment{text[cut:], false})
			if got := tok.Decode(mixed); utf8.ValidString(text) && got != want {
				t.Errorf("%q, trusted up to %d, comes back as %q", text, cut, got)
			}
		}
	})
}

// FuzzDecode decodes any bytes as tokens: streamed text is whole characters at each step and adds
// up to the text decoded at once.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("abc é 東"))
	f.Add([]byte{0xE6, ' ', 'x', 0xF0, 0x9F, 0x98})
	f.Add([]byte{0xE6, 0x9D, 0xB1, 0xED, 0xA0, 0x80})
	tok := small(f, "<mem>")
	f.Fuzz(func(t *testing.T, raw []byte) {
		ids := make([]int32, len(raw))
		for i, b := range raw {
			ids[i] = int32(b)
		}
		stream, text := tok.NewStream(), ""
		for _, id := range ids {
			part := stream.Push(id)
			if !utf8.ValidString(part) {
				t.Fatalf("% x streams the broken text %q", raw, part)
			}
			text += part
		}
		text += stream.Flush()
		if whole := tok.Decode(ids); text != whole {
			t.Errorf("% x streams to %+q, at once it is %+q", raw, text, whole)
		}
		if utf8.Valid(raw) && text != string(raw) {
			t.Errorf("%q decodes to %q", raw, text)
		}
	})
}
