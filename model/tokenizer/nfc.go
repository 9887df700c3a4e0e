package tokenizer

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// firstUnstable is the first character that NFC may change or move.
const firstUnstable = 0x300

// span is a half-open range of byte offsets.
type span struct{ start, end int }

// nfc brings text into normal form C as HuggingFace tokenizers does, which knows Unicode 9. trusted
// are ascending ranges of text, no two of them touching; the same ranges of the result are
// returned. A stretch that normalising changes is trusted only if all of it came from trusted text.
//
// x/text gives the decompositions and compositions; combining classes and the rest of the algorithm
// are done here, since x/text has a later Unicode and breaks runs of more than 30 marks.
func nfc(text string, trusted []span) (string, []span) {
	var out []byte // the result for text[:done]
	var outTrusted []span
	done := 0
	for pos := 0; pos < len(text); {
		end, stable := segment(text, pos)
		if !stable {
			if composed := compose(text[pos:end]); composed != text[pos:end] {
				outTrusted = shiftSpans(outTrusted, trusted, done, pos, len(out))
				out = append(out, text[done:pos]...)
				if covered(trusted, pos, end) {
					outTrusted = addSpan(outTrusted, span{len(out), len(out) + len(composed)})
				}
				out = append(out, composed...)
				done = end
			}
		}
		pos = end
	}
	if done == 0 {
		return text, trusted
	}
	outTrusted = shiftSpans(outTrusted, trusted, done, len(text), len(out))
	return string(append(out, text[done:]...)), outTrusted
}

// segment finds the end of the stretch from pos on that NFC looks at as a unit; stable tells that
// it is in normal form already.
func segment(text string, pos int) (end int, stable bool) {
	if end = plainEnd(text, pos); end > pos {
		if end == len(text) || norm.NFC.PropertiesString(text[end:]).BoundaryBefore() {
			return end, true
		}
		// What follows combines with the last character of the plain run.
		_, n := utf8.DecodeLastRuneInString(text[pos:end])
		if end-n > pos {
			return end - n, true
		}
		return marksEnd(text, end), false
	}
	r, n := utf8.DecodeRuneInString(text[pos:])
	if r == utf8.RuneError && n == 1 {
		return pos + 1, true // a byte of broken UTF-8 stays as it is
	}
	end = marksEnd(text, pos+n)
	return end, end == pos+n && norm.NFC.IsNormalString(text[pos:end])
}

// plainEnd is where the characters from pos on end that come before firstUnstable.
func plainEnd(text string, pos int) int {
	for pos < len(text) {
		if text[pos] < utf8.RuneSelf {
			pos++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[pos:])
		if r >= firstUnstable {
			break
		}
		pos += n
	}
	return pos
}

// marksEnd is where the characters from pos on end that may combine with one before.
func marksEnd(text string, pos int) int {
	for pos < len(text) {
		p := norm.NFC.PropertiesString(text[pos:])
		if p.BoundaryBefore() {
			break
		}
		pos += max(p.Size(), 1)
	}
	return pos
}

// mark is a character with its canonical combining class.
type mark struct {
	r     rune
	class uint8
}

// compose is NFC of a segment: decompose, bring marks into canonical order, compose.
func compose(segment string) string {
	marks := decompose(segment)
	orderMarks(marks)
	starter := -1     // place in kept of the character that marks are composed with
	last := uint8(0)  // class of the last mark kept after the starter
	kept := marks[:0] // what is left after composition
	for _, m := range marks {
		adjacent := starter == len(kept)-1
		if starter >= 0 && (adjacent || last < m.class) {
			if c, ok := composePair(kept[starter].r, m.r); ok {
				kept[starter].r = c
				continue
			}
		}
		if m.class == 0 {
			starter = len(kept)
		}
		last = m.class
		kept = append(kept, m)
	}
	var out []byte
	for _, m := range kept {
		out = utf8.AppendRune(out, m.r)
	}
	return string(out)
}

// orderMarks brings runs of marks into canonical order.
func orderMarks(marks []mark) {
	for start := 0; start < len(marks); {
		end := start + 1
		if marks[start].class != 0 {
			for end < len(marks) && marks[end].class != 0 {
				end++
			}
			slices.SortStableFunc(marks[start:end], func(a, b mark) int { return cmp.Compare(a.class, b.class) })
		}
		start = end
	}
}

// decompose gives the full canonical decomposition of a segment.
func decompose(segment string) []mark {
	var marks []mark
	for _, r := range segment {
		if addedAfterUnicode9(r) {
			marks = append(marks, mark{r, 0})
			continue
		}
		for _, d := range norm.NFD.String(string(r)) {
			marks = append(marks, mark{d, combiningClass(d)})
		}
	}
	return marks
}

// composePair is the character that a followed by b composes to.
func composePair(a, b rune) (rune, bool) {
	if norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	composed := norm.NFC.String(string([]rune{a, b}))
	c, n := utf8.DecodeRuneInString(composed)
	if n != len(composed) || addedAfterUnicode9(c) {
		return 0, false
	}
	return c, true
}

// addedAfterUnicode9 tells the characters with a canonical decomposition that came with Unicode 13
// (U+11938) and 16.
func addedAfterUnicode9(r rune) bool {
	switch r {
	case 0x11938, 0x105C9, 0x105E4, 0x11383, 0x11385, 0x1138E, 0x11391, 0x113C5, 0x113C7, 0x113C8,
		0x16121, 0x16122, 0x16123, 0x16124, 0x16125, 0x16126, 0x16127, 0x16128,
		0x16D68, 0x16D69, 0x16D6A:
		return true
	}
	return false
}

// covered tells whether one of the spans holds all of start to end.
func covered(spans []span, start, end int) bool {
	for _, s := range spans {
		if s.start <= start && end <= s.end {
			return true
		}
	}
	return false
}

// shiftSpans appends the parts of spans between start and end, moved so that start becomes at.
func shiftSpans(to, spans []span, start, end, at int) []span {
	for _, s := range spans {
		s.start, s.end = max(s.start, start), min(s.end, end)
		if s.start < s.end {
			to = addSpan(to, span{s.start - start + at, s.end - start + at})
		}
	}
	return to
}

// addSpan appends a span, or lengthens the last one that it touches.
func addSpan(to []span, s span) []span {
	if n := len(to) - 1; n >= 0 && to[n].end == s.start {
		to[n].end = s.end
		return to
	}
	return append(to, s)
}
