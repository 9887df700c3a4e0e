package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is looked for in the text before it is split into words.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // only where no word character stands beside it
	LStrip     bool   `json:"lstrip"`      // takes the white space before it
	RStrip     bool   `json:"rstrip"`      // takes the white space after it
	Normalized bool   `json:"normalized"`  // is looked for in normalised text
	Special    bool   `json:"special"`
}

// matcher finds added tokens in text: at each place the longest, from left to right.
type matcher struct {
	nodes []trieNode // 0 is the root
	first [256]bool  // the bytes that tokens start with
}

type trieNode struct {
	children map[byte]int32
	token    *addedToken // whose content ends here
}

func newMatcher(tokens []addedToken, normalize func(string) string) *matcher {
	m := &matcher{nodes: make([]trieNode, 1)}
	for i := range tokens {
		m.insert(normalize(tokens[i].Content), &tokens[i])
	}
	return m
}

func (m *matcher) insert(content string, token *addedToken) {
	if content == "" {
		return
	}
	m.first[content[0]] = true
	at := int32(0)
	for i := range len(content) {
		next, ok := m.nodes[at].children[content[i]]
		if !ok {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, trieNode{})
			if m.nodes[at].children == nil {
				m.nodes[at].children = map[byte]int32{}
			}
			m.nodes[at].children[content[i]] = next
		}
		at = next
	}
	m.nodes[at].token = token
}

// longest is the longest token that text starts with, and its length there.
func (m *matcher) longest(text string) (token *addedToken, length int) {
	at := int32(0)
	for i := range len(text) {
		next, ok := m.nodes[at].children[text[i]]
		if !ok {
			break
		}
		at = next
		if t := m.nodes[at].token; t != nil {
			token, length = t, i+1
		}
	}
	return token, length
}

// split cuts text at the added tokens that lie, with the white space they take, inside one of the
// trusted ranges, and yields the stretches in order: token is nil for text between tokens.
func (m *matcher) split(text string, trusted []span, yield func(stretch span, token *addedToken)) {
	done := 0 // end of what has been yielded
	for _, t := range trusted {
		for pos := t.start; pos < t.end; {
			if !m.first[text[pos]] {
				pos++
				continue
			}
			token, n := m.longest(text[pos:t.end])
			if token == nil {
				pos++
				continue
			}
			found := span{pos, pos + n}
			pos += n
			if token.SingleWord && insideWord(text, found) {
				continue
			}
			if token.LStrip {
				from := max(t.start, done)
				before := text[min(from, found.start):found.start]
				found.start = from + len(strings.TrimRightFunc(before, isSpace))
			}
			if token.RStrip {
				after := text[found.end:t.end]
				found.end += len(after) - len(strings.TrimLeftFunc(after, isSpace))
			}
			if found.start >= found.end {
				continue // it was white space only, and a token before has taken that
			}
			if done < found.start {
				yield(span{done, found.start}, nil)
			}
			yield(found, token)
			done = found.end
		}
	}
	if done < len(text) {
		yield(span{done, len(text)}, nil)
	}
}

// insideWord tells whether a word character stands right before or after the stretch of text.
func insideWord(text string, s span) bool {
	before, n := utf8.DecodeLastRuneInString(text[:s.start])
	if n > 0 && isWord(before) {
		return true
	}
	after, n := utf8.DecodeRuneInString(text[s.end:])
	return n > 0 && isWord(after)
}

// isWord is \w of Rust's regular expressions, which has Unicode 16.
func isWord(r rune) bool {
	return classes().of(r)&letter != 0 || unicode.In(r, unicode.M, unicode.Nd, unicode.Nl,
		unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control, laterWord)
}

// laterWord are the marks and decimal digits that Unicode 16 added to those Go knows, Unicode 15.
var laterWord = &unicode.RangeTable{
	R16: []unicode.Range16{{0x897, 0x897, 1}},
	R32: []unicode.Range32{
		{0x10d40, 0x10d49, 1},
		{0x10d69, 0x10d6d, 1},
		{0x10efc, 0x10efc, 1},
		{0x113b8, 0x113c0, 1},
		{0x113c2, 0x113c2, 1},
		{0x113c5, 0x113c5, 1},
		{0x113c7, 0x113ca, 1},
		{0x113cc, 0x113d0, 1},
		{0x113d2, 0x113d2, 1},
		{0x113e1, 0x113e2, 1},
		{0x116d0, 0x116e3, 1},
		{0x11bf0, 0x11bf9, 1},
		{0x11f5a, 0x11f5a, 1},
		{0x1611e, 0x16139, 1},
		{0x16d70, 0x16d79, 1},
		{0x1ccf0, 0x1ccf9, 1},
		{0x1e5ee, 0x1e5ef, 1},
		{0x1e5f1, 0x1e5fa, 1},
	},
}

// isSpace is \s, the same set in Rust's regular expressions as in Oniguruma's.
func isSpace(r rune) bool { return classes().of(r)&space != 0 }
