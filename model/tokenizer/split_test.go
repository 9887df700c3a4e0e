package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func splitAll(s splitter, text string) []string {
	var out []string
	preTokenize([]stage{{next: s}}, text, func(word string) { out = append(out, word) })
	return out
}

func TestSplitPatterns(t *testing.T) {
	const gpt2, qwen, llama, digits, runs = "GPT-2", "Qwen2", "Llama-3", "Digits one by one", "Digits"
	splitters := map[string]splitter{
		gpt2: splitterFor(patternGPT2), qwen: splitterFor(patternQwen), llama: splitterFor(patternLlama),
		digits: digitsSplitter(classes(), true), runs: digitsSplitter(classes(), false),
	}
	for _, c := range []struct {
		text string
		want map[string]string // pieces joined by |
	}{
		{"", map[string]string{gpt2: "", qwen: "", llama: "", digits: "", runs: ""}},
		{"x  ", map[string]string{gpt2: "x|  ", qwen: "x|  ", llama: "x|  "}},
		{"x   y", map[string]string{gpt2: "x|  | y", qwen: "x|  | y", llama: "x|  | y"}},
		{"x \ty", map[string]string{gpt2: "x| |\t|y", qwen: "x| |\ty"}},
		{"x\u3000y", map[string]string{gpt2: "x|\u3000|y", qwen: "x|\u3000y"}},
		{"x\u3000\u3000!", map[string]string{gpt2: "x|\u3000|\u3000|!", qwen: "x|\u3000|\u3000|!"}},
		{"a\n\nb", map[string]string{gpt2: "a|\n|\n|b", qwen: "a|\n\n|b"}},
		{"a \n \n  b", map[string]string{gpt2: "a| \n \n | b", qwen: "a| \n \n| | b"}},
		{"\rx\ny", map[string]string{gpt2: "\r|x|\n|y", qwen: "\r|x|\n|y"}},
		{"!\r\n\r\nb", map[string]string{gpt2: "!|\r\n\r|\n|b", qwen: "!\r\n\r\n|b"}},
		{" !?\n x", map[string]string{gpt2: " !?|\n| x", qwen: " !?\n| x"}},
		{"I'm we'll THEY'LL", map[string]string{gpt2: "I|'m| we|'ll| THEY|'|LL", qwen: "I|'m| we|'ll| THEY|'LL"}},
		{"'S 'ſa 'ſ", map[string]string{gpt2: "'|S| '|ſa| '|ſ", qwen: "'S| '|ſa| '|ſ"}},
		{"a'ſa", map[string]string{gpt2: "a|'|ſa", qwen: "a|'ſ|a"}},
		{"'re're'r'v", map[string]string{gpt2: "'re|'re|'|r|'|v", qwen: "'re|'re|'r|'v"}},
		{"12345 67", map[string]string{gpt2: "12345| 67", qwen: "1|2|3|4|5| |6|7", llama: "123|45| |67", digits: "1|2|3|4|5| |6|7", runs: "12345| |67"}},
		{"a1²b", map[string]string{gpt2: "a|1²|b", qwen: "a|1|²|b", llama: "a|1²|b", digits: "a|1|²|b", runs: "a|1²|b"}},
		{"(foo) _bar", map[string]string{gpt2: "(|foo|)| _|bar", qwen: "(foo|)| _|bar"}},
		{"é\u0301x", map[string]string{gpt2: "é|\u0301|x", qwen: "é|\u0301x"}},
		{"\x00\x00a", map[string]string{gpt2: "\x00\x00|a", qwen: "\x00\x00|a"}},
		{"\xff\xfea \xe6", map[string]string{gpt2: "\xff\xfe|a| \xe6", qwen: "\xff\xfe|a| \xe6"}},
		{"x\u0085y\u00a0z", map[string]string{gpt2: "x|\u0085|y|\u00a0|z", qwen: "x|\u0085y|\u00a0z"}},
		{"x\u200by", map[string]string{gpt2: "x|\u200b|y", qwen: "x|\u200by"}},
		{"\U00010d4ax", map[string]string{gpt2: "\U00010d4ax", qwen: "\U00010d4ax"}},                                    // a letter since Unicode 16
		{"a\U00011de0\U00011de1", map[string]string{gpt2: "a|\U00011de0\U00011de1", digits: "a|\U00011de0|\U00011de1"}}, // digits since Unicode 17
	} {
		for name, want := range c.want {
			var list []string
			if want != "" {
				list = strings.Split(want, "|")
			}
			if got := splitAll(splitters[name], c.text); !slices.Equal(got, list) {
				t.Errorf("%s splits %q into %q, want %q", name, c.text, got, list)
			}
		}
	}
}

func TestPiecesAddUpToTheText(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	atoms := []string{" ", "  ", "\n", "\r", "\t", "\u3000", "a", "Bc", "1", "٣", "'s", "'LL", "'", "!", "é", "\u0301", "東", "\xff", "\xe6\x9d", "\x00"}
	for range 3000 {
		var text strings.Builder
		for range random.IntN(12) {
			text.WriteString(atoms[random.IntN(len(atoms))])
		}
		for _, s := range []splitter{
			splitterFor(patternGPT2), splitterFor(patternQwen), splitterFor(patternLlama),
			digitsSplitter(classes(), true), digitsSplitter(classes(), false),
		} {
			got := splitAll(s, text.String())
			if strings.Join(got, "") != text.String() || slices.Contains(got, "") {
				t.Fatalf("%q is split into %q", text.String(), got)
			}
		}
	}
}

func TestPreTokenizerSettings(t *testing.T) {
	byteLevel := func(prefix bool, regex any) object {
		b := object{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true}
		if regex != nil {
			b["use_regex"] = regex
		}
		return b
	}
	digits := object{"type": "Digits", "individual_digits": true}
	llama := object{"type": "Split", "pattern": object{"Regex": patternLlama}, "behavior": "Isolated", "invert": false}
	sequence := func(parts ...any) object { return object{"type": "Sequence", "pretokenizers": parts} }
	for name, c := range map[string]struct {
		pre        object
		text, want string
	}{
		"use_regex is true when it is missing": {byteLevel(false, nil), "ab 12", "ab| 12"},
		"without use_regex text stays whole":   {byteLevel(false, false), "ab 12", "ab 12"},
		"a space is put before":                {byteLevel(true, true), "ab 12", " ab| 12"},
		"but no second one":                    {byteLevel(true, true), " ab", " ab"},
		"digits come apart first":              {sequence(digits, byteLevel(false, true)), "ab 12", "ab| |1|2"},
		"then each part gets a space":          {sequence(digits, byteLevel(true, true)), "a12", " a| 1| 2"},
		"a split pattern":                      {sequence(llama, byteLevel(false, false)), "ab 1234", "ab| |123|4"},
		"patterns after each other":            {sequence(digits, llama, byteLevel(false, false)), "a 123", "a| |1|2|3"},
	} {
		file := smallFile(t)
		file["pre_tokenizer"] = c.pre
		var got []string
		preTokenize(build(t, file).stages, c.text, func(word string) { got = append(got, word) })
		if want := strings.Split(c.want, "|"); !slices.Equal(got, want) {
			t.Errorf("%s: %q is split into %q, want %q", name, c.text, got, want)
		}
	}
}
