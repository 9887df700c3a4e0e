package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A splitter tells where the piece of s that starts at pos ends; pos < len(s), and the end is
// greater than pos. s is looked at as a whole text: nothing stands before or after it.
type splitter func(s string, pos int) int

// The regular expressions the splitters below stand for. Go's regexp has neither their look-ahead
// nor their character classes.
const (
	patternGPT2  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternQwen  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLlama = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// splitterFor gives the splitter of a pattern; nil for an unknown one.
func splitterFor(pattern string) splitter {
	switch pattern {
	case patternGPT2:
		return gpt2Splitter(classes())
	case patternQwen:
		return qwenSplitter(classes(), 1)
	case patternLlama:
		return qwenSplitter(classes(), 3)
	}
	return nil
}

// gpt2Splitter is patternGPT2.
func gpt2Splitter(t *classTable) splitter {
	return func(s string, pos int) int {
		if n := contraction(s[pos:], false); n > 0 {
			return pos + n
		}
		word := pos
		cl, n := t.at(s, pos)
		if s[pos] == ' ' && pos+1 < len(s) {
			if next, m := t.at(s, pos+1); next&space == 0 {
				word, cl, n = pos+1, next, m
			}
		}
		if cl&space != 0 {
			return t.spaceEnd(s, pos, t.runEnd(s, pos, space))
		}
		return t.runEnd(s, word+n, cl&(letter|number))
	}
}

// qwenSplitter is patternQwen for maxDigits = 1 and patternLlama for maxDigits = 3.
func qwenSplitter(t *classTable, maxDigits int) splitter {
	return func(s string, pos int) int {
		if n := contraction(s[pos:], true); n > 0 {
			return pos + n
		}
		cl, n := t.at(s, pos)
		if cl&letter != 0 {
			return t.runEnd(s, pos+n, letter)
		}
		if cl&number != 0 {
			return t.numberEnd(s, pos, maxDigits)
		}
		if pos+n < len(s) && s[pos] != '\r' && s[pos] != '\n' {
			next, m := t.at(s, pos+n)
			if next&letter != 0 {
				return t.runEnd(s, pos+n+m, letter)
			}
			if s[pos] == ' ' && next&(number|space) == 0 {
				cl = next // a space goes with the signs after it
			}
		}
		if cl&space == 0 {
			end := t.runEnd(s, pos+n, 0)
			for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
				end++
			}
			return end
		}
		end := t.runEnd(s, pos, space)
		if newline := strings.LastIndexAny(s[pos:end], "\r\n"); newline >= 0 {
			return pos + newline + 1
		}
		return t.spaceEnd(s, pos, end)
	}
}

// numberEnd is where at most limit number characters from pos on end.
func (t *classTable) numberEnd(s string, pos, limit int) int {
	for ; limit > 0 && pos < len(s); limit-- {
		cl, n := t.at(s, pos)
		if cl&number == 0 {
			break
		}
		pos += n
	}
	return pos
}

// spaceEnd is \s+(?!\S)|\s+ for the white space from pos to end: the last space before a word is
// left to that word unless it is the only one.
func (t *classTable) spaceEnd(s string, pos, end int) int {
	if end == len(s) {
		return end
	}
	_, n := utf8.DecodeLastRuneInString(s[pos:end])
	if end-n > pos {
		return end - n
	}
	return end
}

// contraction is the length of an English contraction ('s, 't, 're, 've, 'm, 'll, 'd) that s
// starts with, 0 if there is none. With fold the case of letters does not matter, and, as in every
// case-insensitive match by Unicode's rules, ſ (U+017F) is an s.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if fold && 'A' <= s[i] && s[i] <= 'Z' {
			return s[i] + 'a' - 'A'
		}
		return s[i]
	}
	switch lower(1) {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if lower(2) == 'e' {
			return 3
		}
	case 'l':
		if lower(2) == 'l' {
			return 3
		}
	}
	if fold && strings.HasPrefix(s[1:], "ſ") {
		return 1 + len("ſ")
	}
	return 0
}

// digitsSplitter cuts out number characters: one by one, or whole runs of them.
func digitsSplitter(t *classTable, individual bool) splitter {
	return func(s string, pos int) int {
		cl, n := t.at(s, pos)
		end := pos + n
		if cl&digit != 0 && individual {
			return end
		}
		for end < len(s) {
			next, m := t.at(s, end)
			if next&digit != cl&digit {
				break
			}
			end += m
		}
		return end
	}
}
