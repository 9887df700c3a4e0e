package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// withAdded adds tokens to the small tokenizer, after its own.
func withAdded(t *testing.T, tokens ...object) object {
	t.Helper()
	file := smallFile(t)
	list := file["added_tokens"].([]any)
	for i, token := range tokens {
		token["id"] = tokenizertest.FirstAddedID + 2 + int32(i)
		list = append(list, token)
	}
	file["added_tokens"] = list
	return file
}

// show joins the tokens of a text with |; an added token stands in [] with its content.
func show(tok *Tokenizer, ids []int32) string {
	var out []string
	for i, piece := range pieces(tok, ids) {
		if ids[i] >= tokenizertest.FirstAddedID {
			piece = "[" + piece + "]"
		}
		out = append(out, piece)
	}
	return strings.Join(out, "|")
}

func TestAddedTokens(t *testing.T) {
	nfc := func(file object) object {
		file["normalizer"] = object{"type": "NFC"}
		return file
	}
	for name, c := range map[string]struct {
		file       object
		text, want string
	}{
		"special":                          {withAdded(t, added(0, "<m>", "special")), "a<m>b", "a|[<m>]|b"},
		"not special":                      {withAdded(t, added(0, "<m>")), "a<m>b", "a|[<m>]|b"},
		"the longest":                      {withAdded(t, added(0, "<m"), added(0, "<m>>"), added(0, "<m>")), "<m>><m>", "[<m>>]|[<m>]"},
		"the longest that is all there":    {withAdded(t, added(0, "<m"), added(0, "<m>>")), "<m>x", "[<m]|>|x"},
		"the first of two that overlap":    {withAdded(t, added(0, "abc"), added(0, "bcde")), "abcde", "[abc]|d|e"},
		"at both ends":                     {withAdded(t, added(0, "<m>")), "<m><m>", "[<m>]|[<m>]"},
		"white space stays":                {withAdded(t, added(0, "<m>")), "a <m> b", "a| |[<m>]| |b"},
		"lstrip":                           {withAdded(t, added(0, "<m>", "lstrip")), "a \n<m> b", "a|[<m>]| |b"},
		"rstrip":                           {withAdded(t, added(0, "<m>", "rstrip")), "a <m>\u3000 b", "a| |[<m>]|b"},
		"both, one after the other":        {withAdded(t, added(0, "<m>", "lstrip", "rstrip")), " <m> <m> ", "[<m>]|[<m>]"},
		"white space that is taken":        {withAdded(t, added(0, "\n", "lstrip"), added(0, "<m>", "rstrip")), "<m>\nx", "[<m>]|x"},
		"single_word alone":                {withAdded(t, added(0, "<m>", "single_word")), "<m> .<m>!", "[<m>]| |.|[<m>]|!"},
		"single_word after a letter":       {withAdded(t, added(0, "<m>", "single_word")), "é<m>", "\xc3|\xa9|<|m|>"},
		"single_word before a digit":       {withAdded(t, added(0, "<m>", "single_word")), "<m>٣", "<|m|>|\xd9|\xa3"},
		"single_word beside a mark":        {withAdded(t, added(0, "<m>", "single_word")), "\u0897<m>", "\xe0|\xa2|\x97|<|m|>"},
		"found before normalising":         {nfc(withAdded(t, added(0, "e\u0301"))), "e\u0301é", "[e\u0301]|\xc3|\xa9"},
		"found after normalising":          {nfc(withAdded(t, added(0, "e\u0301", "normalized"))), "e\u0301é", "[e\u0301]|[e\u0301]"},
		"pieces are normalised one by one": {nfc(withAdded(t, added(0, "be"))), "be\u0301", "[be]|\xcc|\x81"},
		"empty ones do not count":          {withAdded(t, added(0, "<m>"), added(0, "")), "a<m>", "a|[<m>]"},
		"words end at a token":             {withAdded(t, added(0, "<m>")), "x  <m>the", "x|  |[<m>]|t|he"},
	} {
		tok := build(t, c.file)
		if got := show(tok, tok.EncodeTrusted(c.text)); got != c.want {
			t.Errorf("%s: %q becomes %q, want %q", name, c.text, got, c.want)
		}
		if got := tok.EncodePlain(c.text); slices.ContainsFunc(got, func(id int32) bool { return id >= tokenizertest.FirstAddedID }) {
			t.Errorf("%s: plain %q becomes %q, with an added token", name, c.text, show(tok, got))
		}
	}
}

func TestAddedTokensAcrossSegments(t *testing.T) {
	trusted := func(text string) Segment { return Segment{text, true} }
	plain := func(text string) Segment { return Segment{text, false} }
	file := withAdded(t, added(0, "<m>"), added(0, "<m>x"), added(0, "<l>", "lstrip"), added(0, "<r>", "rstrip"),
		added(0, "<w>", "single_word"), added(0, "<é>", "normalized"))
	file["normalizer"] = object{"type": "NFC"}
	tok := build(t, file)
	for name, c := range map[string]struct {
		segments []Segment
		want     string
	}{
		"no segment":                            {nil, ""},
		"empty segments":                        {[]Segment{trusted(""), plain("")}, ""},
		"a token in trusted text":               {[]Segment{plain("a"), trusted("<m>"), plain("b")}, "a|[<m>]|b"},
		"its spelling in other text":            {[]Segment{trusted("a"), plain("<m>"), trusted("b")}, "a|<|m|>|b"},
		"over two trusted segments":             {[]Segment{trusted("<"), trusted(""), trusted("m>")}, "[<m>]"},
		"begun outside":                         {[]Segment{plain("<m"), trusted(">")}, "<|m|>"},
		"ended outside":                         {[]Segment{trusted("<m"), plain(">")}, "<|m|>"},
		"a longer one that ends outside":        {[]Segment{trusted("<m>"), plain("x")}, "[<m>]|x"},
		"a longer one, trusted":                 {[]Segment{trusted("<m>x")}, "[<m>x]"},
		"white space outside is not taken left": {[]Segment{plain("a "), trusted(" <l>")}, "a| |[<l>]"},
		"nor right":                             {[]Segment{trusted("<r> "), plain(" a")}, "[<r>]| a"},
		"words outside are seen":                {[]Segment{plain("a"), trusted("<w>")}, "a|<|w|>"},
		"signs outside too":                     {[]Segment{plain("."), trusted("<w>")}, ".|[<w>]"},
		"normalised, trusted":                   {[]Segment{plain("e\u0301"), trusted("<e\u0301>"), plain("e\u0301")}, "\xc3|\xa9|[<é>]|\xc3|\xa9"},
		"normalised, a mark from outside":       {[]Segment{trusted("<e"), plain("\u0301"), trusted(">")}, "<|\xc3|\xa9|>"},
		"words go over borders":                 {[]Segment{trusted(" t"), plain("h"), trusted("e")}, " the"},
		"and so do spaces before them":          {[]Segment{trusted("x "), plain("the")}, "x| the"},
		"and characters":                        {[]Segment{plain("e"), trusted("\u0301")}, "\xc3|\xa9"},
	} {
		if got := show(tok, tok.Encode(c.segments...)); got != c.want {
			t.Errorf("%s: %+v becomes %q, want %q", name, c.segments, got, c.want)
		}
	}
}
