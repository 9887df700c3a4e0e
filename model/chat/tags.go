package chat

import "strings"

// tag is one of the ten tags of a turn; closing tags follow the opening ones. The zero value is
// no tag.
type tag int

const (
	noTag tag = iota
	openMemory
	openThink
	openSearch
	openAccess
	openAnswer
	closeMemory
	closeThink
	closeSearch
	closeAccess
	closeAnswer
)

// tagTexts are the exact spellings; another case or inner white space is plain text.
var tagTexts = [...]string{
	noTag:      "",
	openMemory: "<mem>", openThink: "<think>", openSearch: "<search>", openAccess: "<access>", openAnswer: "<answer>",
	closeMemory: "</mem>", closeThink: "</think>", closeSearch: "</search>", closeAccess: "</access>", closeAnswer: "</answer>",
}

const actionKinds = int(openAnswer-openSearch) + 1

// actions are the kinds of action in the order of their tags.
var actions = [actionKinds]Action{ActionSearch, ActionAccess, ActionAnswer}

func (t tag) closing() bool { return t >= closeMemory }

// opener is the opening tag of a closing one; an opening tag is its own.
func (t tag) opener() tag {
	if t.closing() {
		return t - closeMemory + openMemory
	}
	return t
}

// isAction tells the tags of actions from those of <mem> and <think>.
func (t tag) isAction() bool { return t.opener() >= openSearch }

// kind numbers the actions from 0.
func (t tag) kind() int { return int(t.opener() - openSearch) }

// tagAt returns the tag that text, which begins with '<', begins with. partial reports that text
// is too short to tell: it is the beginning of some tag.
func tagAt(text string) (found tag, partial bool) {
	for t := openMemory; t <= closeAnswer; t++ {
		if strings.HasPrefix(text, tagTexts[t]) {
			return t, false
		}
		partial = partial || strings.HasPrefix(tagTexts[t], text)
	}
	return noTag, partial
}

// brokenActionAt reports the opening tag of an action that text begins with but for the '>' right
// behind its name, as in "<search query" or a text that ends in "<search".
func brokenActionAt(text string) tag {
	for t := openSearch; t <= openAnswer; t++ {
		name := strings.TrimSuffix(tagTexts[t], ">")
		rest, ok := strings.CutPrefix(text, name)
		if ok && (rest == "" || !isNameByte(rest[0])) {
			return t
		}
	}
	return noTag
}

func isNameByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}
