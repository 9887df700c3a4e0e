package tokenizer

import (
	"unicode/utf8"
)

// Decode gives the text of token ids, special tokens included. An id without a token adds nothing.
// Bytes that are no UTF-8 become U+FFFD by Rust's rule: one for each longest start of a character
// that is broken off, one for each byte that starts none.
func (t *Tokenizer) Decode(ids []int32) string { return t.decode(ids, false) }

// DecodeSkippingSpecial is Decode without the tokens that are marked as special.
func (t *Tokenizer) DecodeSkippingSpecial(ids []int32) string { return t.decode(ids, true) }

func (t *Tokenizer) decode(ids []int32, skipSpecial bool) string {
	var raw []byte
	for _, id := range ids {
		if token, ok := t.vocab.token(id); ok && !(skipSpecial && t.vocab.special[id]) {
			raw = append(raw, token...)
		}
	}
	if utf8.Valid(raw) {
		return string(raw)
	}
	text, rest := decodeWhole(make([]byte, 0, len(raw)), raw)
	if len(rest) > 0 {
		text = utf8.AppendRune(text, utf8.RuneError)
	}
	return string(text)
}

// Stream decodes tokens one at a time. The texts that Push and Flush return add up to what Decode
// gives for all ids at once. A Stream is not safe for use by several goroutines.
type Stream struct {
	t       *Tokenizer
	pending []byte // the start of a character that is not whole yet
}

// NewStream starts a streaming decode.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push takes the next token and returns the text that is certain now: it ends with a whole
// character, and is empty while the token's bytes are only part of one.
func (s *Stream) Push(id int32) string {
	token, ok := s.t.vocab.token(id)
	if !ok {
		return ""
	}
	raw := append(s.pending, token...)
	text, rest := decodeWhole(nil, raw)
	s.pending = append(s.pending[:0], rest...)
	return string(text)
}

// Flush ends the stream: U+FFFD if it broke off within a character, else nothing.
func (s *Stream) Flush() string {
	if len(s.pending) == 0 {
		return ""
	}
	s.pending = s.pending[:0]
	return string(utf8.RuneError)
}

// decodeWhole appends the text of raw to dst, broken bytes as U+FFFD. rest is the end of raw that
// the next bytes may make a whole character.
func decodeWhole(dst, raw []byte) (text, rest []byte) {
	for len(raw) > 0 {
		n, state := firstCharacter(raw)
		switch state {
		case cutOff:
			return dst, raw
		case whole:
			dst = append(dst, raw[:n]...)
		case broken:
			dst = utf8.AppendRune(dst, utf8.RuneError)
		}
		raw = raw[n:]
	}
	return dst, nil
}

type characterState uint8

const (
	whole  characterState = iota
	broken                // can never become a character
	cutOff                // the start of a character, as far as it goes
)

// firstCharacter tells how many bytes at the start of raw belong together, and what they are.
func firstCharacter(raw []byte) (int, characterState) {
	length, low, high := leadByte(raw[0])
	if length == 0 {
		return 1, broken
	}
	for i := 1; i < length; i++ {
		if i == len(raw) {
			return i, cutOff
		}
		if raw[i] < low || high < raw[i] {
			return i, broken
		}
		low, high = 0x80, 0xBF
	}
	return length, whole
}

// leadByte gives the length of a character from its first byte (0: none starts so) and the range
// of its second byte, as in table 3-7 of the Unicode standard; further bytes are 80 to BF.
func leadByte(b byte) (length int, low, high byte) {
	switch {
	case b < 0x80:
		return 1, 0, 0
	case b < 0xC2:
		return 0, 0, 0
	case b < 0xE0:
		return 2, 0x80, 0xBF
	case b == 0xE0:
		return 3, 0xA0, 0xBF
	case b == 0xED:
		return 3, 0x80, 0x9F
	case b < 0xF0:
		return 3, 0x80, 0xBF
	case b == 0xF0:
		return 4, 0x90, 0xBF
	case b < 0xF4:
		return 4, 0x80, 0xBF
	case b == 0xF4:
		return 4, 0x80, 0x8F
	}
	return 0, 0, 0
}
