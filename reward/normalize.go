package reward

import (
	"strings"
	"unicode"
)

// Normalize brings an answer into the form in which answers are compared, that of SQuAD's and
// Search-R1's exact match: lower case, no ASCII punctuation, no articles (a, an, the), single
// spaces. Where nothing would be left the articles stay, so that the answer "A" is not the same
// as "the"; what is empty then holds nothing to compare.
func Normalize(text string) string {
	plain := dropPunctuation(lower(text))
	if words := spaced(dropArticles(plain)); words != "" {
		return words
	}
	return spaced(plain)
}

func dropPunctuation(text string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
			return -1
		}
		return r
	}, text)
}

// dropArticles puts a space in the place of each article that stands between word boundaries.
func dropArticles(text string) string {
	var out strings.Builder
	for text != "" {
		word := len(text)
		if end := strings.IndexFunc(text, func(r rune) bool { return !isWord(r) }); end >= 0 {
			word = end
		}
		switch text[:word] {
		case "a", "an", "the":
			out.WriteByte(' ')
		default:
			out.WriteString(text[:word])
		}
		text = text[word:]
		next := len(text)
		if start := strings.IndexFunc(text, isWord); start >= 0 {
			next = start
		}
		out.WriteString(text[:next])
		text = text[next:]
	}
	return out.String()
}

// isWord is \w of Python's regular expressions, for text without underscores.
func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

func spaced(text string) string { return strings.Join(strings.FieldsFunc(text, isSpace), " ") }

// isSpace is Python's str.isspace: Unicode white space and the four ASCII separators.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// lower is Python's str.lower: Unicode's full lower-case mapping, with İ as two characters and Σ
// as ς at the end of a word. Broken UTF-8 becomes U+FFFD.
func lower(text string) string {
	if !strings.ContainsAny(text, "İΣ") {
		return strings.Map(unicode.ToLower, text)
	}
	runes := []rune(text)
	var out strings.Builder
	for k, r := range runes {
		switch {
		case r == 'İ':
			out.WriteString("i\u0307")
		case r == 'Σ' && endsWord(runes, k):
			out.WriteRune('ς')
		default:
			out.WriteRune(unicode.ToLower(r))
		}
	}
	return out.String()
}

// endsWord is Unicode's Final_Sigma: a cased letter before position k and none behind it, looking
// past case-ignorable characters.
func endsWord(runes []rune, k int) bool {
	before := k - 1
	for before >= 0 && isCaseIgnorable(runes[before]) {
		before--
	}
	if before < 0 || !isCased(runes[before]) {
		return false
	}
	after := k + 1
	for after < len(runes) && isCaseIgnorable(runes[after]) {
		after++
	}
	return after == len(runes) || !isCased(runes[after])
}

// isCased is Unicode's derived property Cased.
func isCased(r rune) bool {
	return unicode.In(r, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// isCaseIgnorable is Unicode's derived property Case_Ignorable: marks, formats, modifiers, and the
// punctuation that may stand inside a word.
func isCaseIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}
