package index

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// tokens calls yield with each word of a text: a run of letters, digits and combining marks, in
// compatibility form (NFKC) and case-folded, so that spellings of the same word meet. Han
// ideographs and kana stand alone, as nothing separates words there. No stemming, no stop words.
// The slice is only valid during the call.
func tokens(text string, yield func(word []byte)) {
	if !ascii(text) {
		text = cases.Fold().String(norm.NFKC.String(text))
	}
	word := make([]byte, 0, 32)
	end := func() {
		if len(word) > 0 {
			yield(word)
			word = word[:0]
		}
	}
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			if ('a' <= r && r <= 'z') || ('0' <= r && r <= '9') {
				word = append(word, byte(r))
			} else {
				end()
			}
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			end()
			word = utf8.AppendRune(word, r)
			end()
		case unicode.In(r, unicode.L, unicode.N, unicode.M):
			word = utf8.AppendRune(word, r)
		default:
			end()
		}
	}
	end()
}

func ascii(text string) bool {
	for k := range len(text) {
		if text[k] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
