package tokenizer

import (
	"slices"
	"sync"
	"unicode/utf8"
)

//go:generate go run ./internal/gentables -classes $CLASSES -combining $COMBINING -out unicode_tables.go

// class is a set of character classes. Letter, number and space exclude one another.
type class uint8

const (
	letter class = 1 << iota
	number
	space
	digit // what the Digits splitter cuts out; nearly the same set as number
)

// combiningRange gives all code points from first to last one canonical combining class.
type combiningRange struct {
	first, last rune
	class       uint8
}

const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// classTable looks classes up in two steps: the page of a code point, then its place in the page.
type classTable struct {
	page  [(utf8.MaxRune + 1) >> pageBits]uint16
	pages [][pageSize]class
	ascii [utf8.RuneSelf]class
}

// classRanges are the characters of one class.
type classRanges struct {
	ranges [][2]rune
	class  class
}

// classes is built once, at its first use.
var classes = sync.OnceValue(func() *classTable {
	return newClassTable(classRanges{letterRanges, letter}, classRanges{numberRanges, number},
		classRanges{spaceRanges, space}, classRanges{digitRanges, digit})
})

func newClassTable(tables ...classRanges) *classTable {
	t := &classTable{pages: make([][pageSize]class, 1)} // page 0 has no classes
	for _, table := range tables {
		for _, r := range table.ranges {
			for c := r[0]; c <= r[1]; c++ {
				t.add(c, table.class)
			}
		}
	}
	t.sharePages()
	for c := range t.ascii {
		t.ascii[c] = t.of(rune(c))
	}
	return t
}

func (t *classTable) add(c rune, cl class) {
	page := &t.page[c>>pageBits]
	if *page == 0 {
		*page = uint16(len(t.pages))
		t.pages = append(t.pages, [pageSize]class{})
	}
	t.pages[*page][c%pageSize] |= cl
}

// sharePages keeps one copy of equal pages: most of those in use hold letters only.
func (t *classTable) sharePages() {
	var kept [][pageSize]class
	place := map[[pageSize]class]uint16{}
	for i, p := range t.page {
		content := t.pages[p]
		if _, ok := place[content]; !ok {
			place[content] = uint16(len(kept))
			kept = append(kept, content)
		}
		t.page[i] = place[content]
	}
	t.pages = kept
}

func (t *classTable) of(c rune) class {
	return t.pages[t.page[c>>pageBits]][c%pageSize]
}

// at gives class and byte length of the character of s that starts at pos. A byte that starts no
// character is a character of no class.
func (t *classTable) at(s string, pos int) (class, int) {
	if b := s[pos]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[pos:])
	return t.of(r), n
}

// runEnd is where the stretch of characters from pos on ends of which each is in want, or, for
// want = 0, in none of letter, number and space.
func (t *classTable) runEnd(s string, pos int, want class) int {
	for pos < len(s) {
		cl, n := t.at(s, pos)
		if want == 0 && cl&(letter|number|space) != 0 || want != 0 && cl&want == 0 {
			break
		}
		pos += n
	}
	return pos
}

// combiningClass is the canonical combining class of a character in Unicode 9.
func combiningClass(r rune) uint8 {
	i, found := slices.BinarySearchFunc(combiningRanges, r, func(c combiningRange, r rune) int {
		if c.last < r {
			return -1
		}
		if c.first > r {
			return 1
		}
		return 0
	})
	if !found {
		return 0
	}
	return combiningRanges[i].class
}
