// Package bytealphabet is the alphabet in which byte-level BPE vocabularies spell bytes: GPT-2's
// choice of one printable character for each of the 256 byte values.
package bytealphabet

import "unicode/utf8"

// firstStandIn is the character of the first byte that has no printable character of its own.
const firstStandIn = 0x100

// runes maps a byte to its character, bytes maps the character back (−1: none).
var runes, bytes = build()

func build() (r [256]rune, b [firstStandIn + 256]int16) {
	for i := range b {
		b[i] = -1
	}
	standIn := rune(firstStandIn)
	for i := range r {
		r[i] = rune(i)
		if !printable(i) {
			r[i] = standIn
			standIn++
		}
		b[r[i]] = int16(i)
	}
	return r, b
}

// printable tells whether GPT-2 lets a byte stand for the Latin-1 character of the same number.
func printable(b int) bool {
	return '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || 0xAE <= b && b <= 0xFF
}

// Spell writes raw bytes in the alphabet.
func Spell(raw string) string {
	out := make([]byte, 0, 2*len(raw))
	for i := range len(raw) {
		out = utf8.AppendRune(out, runes[raw[i]])
	}
	return string(out)
}

// Read gives the raw bytes of a word spelled in the alphabet; ok is false when it holds a character
// that is not of the alphabet.
func Read(spelled string) (raw string, ok bool) {
	out := make([]byte, 0, len(spelled))
	for _, r := range spelled {
		if int(r) >= len(bytes) || bytes[r] < 0 {
			return "", false
		}
		out = append(out, byte(bytes[r]))
	}
	return string(out), true
}
