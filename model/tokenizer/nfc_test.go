package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func TestNFC(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                         {"", ""},
		"plain":                           {"abc \n", "abc \n"},
		"a mark joins":                    {"e\u0301", "é"},
		"at the end of a plain run":       {"abce\u0301f", "abcéf"},
		"two marks join":                  {"A\u030a\u0301", "Ǻ"},
		"a mark in between blocks not":    {"a\u0323\u0302", "ậ"},
		"marks come into order":           {"a\u0302\u0323", "ậ"},
		"a mark of the same class blocks": {"a\u0315\u0300\u0301", "à\u0301\u0315"},
		"Hangul":                          {"\u1112\u1161\u11ab", "한"},
		"Hangul without a start":          {"\u1161\u11ab", "\u1161\u11ab"},
		"singletons":                      {"K\u212b\u2126", "K\u00c5\u03a9"},
		"compatibility forms stay":        {"ﬁ①Ａ", "ﬁ①Ａ"},
		"excluded from composition":       {"\u0958", "\u0915\u093c"},
		"a leading mark":                  {"\u0301a", "\u0301a"},
		"broken bytes stay":               {"\xffe\u0301\xe6\x9d", "\xffé\xe6\x9d"},
		"a mark after a broken byte":      {"\xff\u0301\u0323", "\xff\u0323\u0301"},
		"31 marks and more":               {"e" + strings.Repeat("\u0301", 40), "é" + strings.Repeat("\u0301", 39)},
		"order over 31 marks and more":    {"a" + strings.Repeat("\u0301", 33) + "\u0323", "ạ" + strings.Repeat("\u0301", 33)},
		"order within a class stays": {
			"a" + strings.Repeat("\u0308\u0323\u0301\u0327\u030c", 20),
			"\u1ea1" + strings.Repeat("\u0327", 20) + strings.Repeat("\u0323", 19) + strings.Repeat("\u0308\u0301\u030c", 20),
		},
		"a character of Unicode 13 stays":    {"\U00011938\u0323", "\U00011938\u0323"},
		"a mark that Unicode 9 did not have": {"a\u1ac1\u0323", "a\u1ac1\u0323"}, // it is a mark since Unicode 14
		"a pair that joins since Unicode 13": {"\U00011935\U00011930", "\U00011935\U00011930"},
		"a pair that joins since Unicode 16": {"\U00016d63\U00016d67", "\U00016d63\U00016d67"},
	} {
		if got, _ := nfc(c.text, nil); got != c.want {
			t.Errorf("%s: NFC of %+q is %+q, want %+q", name, c.text, got, c.want)
		}
	}
}

func TestNormalizerSettings(t *testing.T) {
	nfc := object{"type": "NFC"}
	for want, normalizers := range map[string][]any{
		"e\u0301": {nil, object{"type": "Sequence", "normalizers": []any{}}},
		"é":       {nfc, object{"type": "Sequence", "normalizers": []any{nfc}}},
	} {
		for _, n := range normalizers {
			file := smallFile(t)
			file["normalizer"] = n
			tok := build(t, file)
			if got := tok.Decode(tok.EncodePlain("e\u0301")); got != want {
				t.Errorf("with normalizer %v an e with an acute becomes %+q, want %+q", n, got, want)
			}
		}
	}
}

// Where all characters are older than Unicode 9 and runs of marks are short, x/text is right.
func TestNFCEqualsTextPackage(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	atoms := []rune("aeoAE <>1が한글ＡΩᾴ\u0300\u0301\u0302\u0308\u030a\u0323\u0327\u0328\u0338\u0345\u3099\u1100\u1112\u1161\u1175\u11a8\u11ab\u0958\u093c\u0f71\u0f72\u212b\u2126ḍậǺ")
	for range 20000 {
		var text []rune
		for range random.IntN(10) {
			text = append(text, atoms[random.IntN(len(atoms))])
		}
		want := norm.NFC.String(string(text))
		if got, _ := nfc(string(text), nil); got != want {
			t.Fatalf("NFC of %+q is %+q, want %+q", string(text), got, want)
		}
	}
}

// The list in addedAfterUnicode9 is complete for the Unicode version of x/text: Unicode 9 has 2060
// characters with a canonical decomposition, Hangul syllables aside.
func TestDecompositionsOfUnicode9(t *testing.T) {
	found := 0
	for r := rune(0); r <= utf8.MaxRune; r++ {
		hangul := 0xAC00 <= r && r <= 0xD7A3
		if utf8.ValidRune(r) && !hangul && !addedAfterUnicode9(r) && norm.NFD.String(string(r)) != string(r) {
			found++
		}
	}
	if found != 2060 {
		t.Errorf("%d characters decompose, want 2060", found)
	}
}

func TestTrustedRangesThroughNFC(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		trusted []span
		want    []span
	}{
		"nothing changes":             {"abc", []span{{0, 1}, {2, 3}}, []span{{0, 1}, {2, 3}}},
		"before and after a change":   {"<a>e\u0301<b>", []span{{0, 3}, {6, 9}}, []span{{0, 3}, {5, 8}}},
		"the change is trusted":       {"<a>e\u0301<b>", []span{{0, 9}}, []span{{0, 8}}},
		"the mark is not":             {"<a>e\u0301<b>", []span{{0, 4}, {6, 9}}, []span{{0, 3}, {5, 8}}},
		"the letter is not":           {"<a>e\u0301<b>", []span{{4, 9}}, []span{{5, 8}}},
		"two changes":                 {"e\u0301e\u0301", []span{{0, 6}}, []span{{0, 4}}},
		"one of two changes":          {"e\u0301e\u0301", []span{{3, 6}}, []span{{2, 4}}},
		"a mark that changes nothing": {"<b>\u0301", []span{{0, 3}}, []span{{0, 3}}},
	} {
		if _, got := nfc(c.text, c.trusted); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v of %+q become %v, want %v", name, c.trusted, c.text, got, c.want)
		}
	}
}
