package chat

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tag is one of the tags of a turn: an opening tag is positive, its closing tag the negative of it. The
// zero value is no tag. Behind the five that every run has are those of its custom tools.
type tag int

const (
	noTag tag = iota
	openMemory
	openThink
	openSearch
	openAccess
	openAnswer
	openCustom // the first one
)

// MostCustomTags is the number of custom tools that a run may have.
const MostCustomTags = 16

// mostActions is the number of kinds of action.
const mostActions = int(openCustom-openSearch) + MostCustomTags

// Tags are the tags that a run reads in what the model writes. The zero value has <mem>, <think>, and
// the actions <search>, <access> and <answer>.
type Tags struct{ custom []spelling }

// spelling is the exact text of a tag; another case or inner white space is plain text.
type spelling struct{ name, open, close string }

func spell(name string) spelling { return spelling{name, "<" + name + ">", "</" + name + ">"} }

var builtIn = [...]spelling{
	openMemory: spell("mem"), openThink: spell("think"),
	openSearch: spell(string(ActionSearch)), openAccess: spell(string(ActionAccess)), openAnswer: spell(string(ActionAnswer)),
}

var (
	tagName  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	reserved = []string{"mem", "think", "answer", "information", "search", "access"}
)

// CheckTagName refuses what cannot be the tag of a custom tool.
func CheckTagName(name string) error {
	switch {
	case !tagName.MatchString(name):
		return fmt.Errorf("the tag is %q, allowed: a small letter, then up to 31 small letters, digits and underscores", name)
	case slices.Contains(reserved, name):
		return fmt.Errorf("the tag is %q, which has a meaning of its own; others than %s are allowed", name, strings.Join(reserved, ", "))
	}
	return nil
}

// NewTags adds the tags of custom tools, each once, to those of the zero value.
func NewTags(custom ...string) (Tags, error) {
	var t Tags
	for k, name := range custom {
		if err := CheckTagName(name); err != nil {
			return Tags{}, err
		}
		if slices.Contains(custom[:k], name) {
			return Tags{}, fmt.Errorf("the tag %q is given twice", name)
		}
		t.custom = append(t.custom, spell(name))
	}
	if len(custom) > MostCustomTags {
		return Tags{}, errors.New("there are too many custom tools, at most 16 are allowed")
	}
	return t, nil
}

// Texts lists every tag, opening ones before their closing ones.
func (t Tags) Texts() []string {
	var texts []string
	for open := openMemory; open <= t.last(); open++ {
		texts = append(texts, t.spelling(open).open, t.spelling(open).close)
	}
	return texts
}

// HoldsActionTag reports whether text holds the beginning of an action's opening tag anywhere.
func (t Tags) HoldsActionTag(text string) bool {
	for open := openSearch; open <= t.last(); open++ {
		if strings.Contains(text, "<"+t.spelling(open).name) {
			return true
		}
	}
	return false
}

// last is the last opening tag.
func (t Tags) last() tag { return openAnswer + tag(len(t.custom)) }

// spelling is that of a tag and its counterpart.
func (t Tags) spelling(of tag) spelling {
	if of = of.opener(); of < openCustom {
		return builtIn[of]
	}
	return t.custom[of-openCustom]
}

// text is the text of one tag.
func (t Tags) text(of tag) string {
	if of.closing() {
		return t.spelling(of).close
	}
	return t.spelling(of).open
}

// action is what an action's tag asks for.
func (t Tags) action(of tag) Action { return Action(t.spelling(of).name) }

func (t tag) closing() bool { return t < noTag }

// opener is the opening tag of a closing one; an opening tag is its own.
func (t tag) opener() tag { return max(t, -t) }

// isAction tells the tags of actions from those of <mem> and <think>.
func (t tag) isAction() bool { return t.opener() >= openSearch }

// kind numbers the actions from 0.
func (t tag) kind() int { return int(t.opener() - openSearch) }

// at returns the tag that text, which begins with '<', begins with. partial reports that text is too
// short to tell: it is the beginning of some tag.
func (t Tags) at(text string) (found tag, partial bool) {
	for open := openMemory; open <= t.last(); open++ {
		s := t.spelling(open)
		switch {
		case strings.HasPrefix(text, s.open):
			return open, false
		case strings.HasPrefix(text, s.close):
			return -open, false
		}
		partial = partial || strings.HasPrefix(s.open, text) || strings.HasPrefix(s.close, text)
	}
	return noTag, partial
}

// brokenActionAt reports the opening tag of an action that text begins with but for the '>' right
// behind its name, as in "<search query" or a text that ends in "<search".
func (t Tags) brokenActionAt(text string) tag {
	for open := openSearch; open <= t.last(); open++ {
		name := strings.TrimSuffix(t.spelling(open).open, ">")
		rest, ok := strings.CutPrefix(text, name)
		if ok && (rest == "" || !isNameByte(rest[0])) {
			return open
		}
	}
	return noTag
}

func isNameByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}
