package chat

import "strings"

// Action is what a turn asks for.
type Action string

// The actions of a turn that every run knows. That of a custom tool is its tag's name.
const (
	ActionNone   Action = ""
	ActionSearch Action = "search"
	ActionAccess Action = "access"
	ActionAnswer Action = "answer"
)

// Span is a half-open range of byte offsets.
type Span struct{ Start, End int }

// Turn is what one turn of the model's text holds. Which tags count is said at Scanner's machine:
// action tags count only outside <mem> and <think>, which swallow everything up to their own
// closing tag.
type Turn struct {
	// HasMemory reports a closed <mem> block; Memory is the first one, tags included. A <mem>
	// inside <think> is text.
	HasMemory bool
	Memory    Span
	// Action is the first action to be closed outside <mem> and <think>; ActionSpan holds it with
	// its tags, ActionText is what stands between them without white space around it.
	Action     Action
	ActionSpan Span
	ActionText string
	// OpenTag is the first opening tag of an action outside <mem> and <think> that was never
	// closed, or that lacks its '>' ("<search query"); else "".
	OpenTag string
	// FormatError is one of FormatErrors, or "" when the turn is, in order, one <mem>, one
	// <think> and one action, with only white space between and around them.
	FormatError string
}

// endOfTurnTexts are the spellings of end-of-turn and end-of-text tokens that may stand behind a
// turn's action without breaking its format, for texts that were decoded with them.
var endOfTurnTexts = []string{
	"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>",
}

// ParseTurn reads what the model wrote in one turn, prefill included. The text may be cut
// anywhere and need not be valid UTF-8. Behind the action only white space and end-of-turn tokens
// keep the format; they are otherwise ignored. The work is linear in the length of text.
func (t Tags) ParseTurn(text string) Turn {
	m := machine{tags: t}
	broken := noTag
	outside := 0 // where the text since the last tag begins
	for at := 0; !m.done; {
		next := strings.IndexByte(text[at:], '<')
		if next < 0 {
			break
		}
		at += next
		found, _ := t.at(text[at:])
		if found == noTag {
			if broken == noTag && !m.inBlock() && !m.inAction() {
				broken = t.brokenActionAt(text[at:])
			}
			at++
			continue
		}
		m.checkOutside(text[outside:at])
		outside = at + len(t.text(found))
		m.step(found, Span{at, outside})
		at = outside
	}
	m.checkOutside(withoutEndOfTurn(text[outside:]))
	return m.turn(text, broken)
}

// checkOutside judges the text between two tags, or behind the last.
func (m *machine) checkOutside(text string) {
	if !m.inBlock() && !m.inAction() && strings.TrimSpace(text) != "" {
		m.format.fail(FormatTextOutside)
	}
}

// withoutEndOfTurn drops white space and end-of-turn tokens from the end of text.
func withoutEndOfTurn(text string) string {
	for {
		text = strings.TrimSpace(text)
		cut := text
		for _, end := range endOfTurnTexts {
			cut = strings.TrimSuffix(cut, end)
		}
		if cut == text {
			return text
		}
		text = cut
	}
}

// turn sums up the machine's state at the end of text.
func (m *machine) turn(text string, broken tag) Turn {
	turn := Turn{HasMemory: m.hasMemory, Memory: m.memory}
	if m.done {
		turn.Action = m.tags.action(m.action)
		turn.ActionSpan = Span{m.open[m.action.kind()].Start, m.end}
		turn.ActionText = strings.TrimSpace(text[m.body.Start:m.body.End])
		if turn.ActionText == "" && turn.Action != ActionAnswer {
			m.format.fail(FormatEmptyQuery)
		}
	}
	if t := m.unclosed(); t != noTag {
		turn.OpenTag = m.tags.text(t)
	} else if broken != noTag {
		turn.OpenTag = m.tags.text(broken)
	}
	turn.FormatError = m.format.finish(m)
	return turn
}

// ParseTrajectory judges the format of a whole trajectory from the texts of its turns: every turn
// keeps the format, the last one answers and no other does. It returns the first turn's error
// found, or "" when the format holds. A turn that a limit cut is judged like any other here; the
// caller knows of the limit.
func (t Tags) ParseTrajectory(turns []string) (formatError string) {
	answered := false
	for _, text := range turns {
		if answered {
			return FormatAfterAnswer
		}
		turn := t.ParseTurn(text)
		if turn.FormatError != "" {
			return turn.FormatError
		}
		answered = turn.Action == ActionAnswer
	}
	if !answered {
		return FormatNoAnswer
	}
	return ""
}

// ParseTurn is that of the tags that every run has.
func ParseTurn(text string) Turn { return Tags{}.ParseTurn(text) }

// ParseTrajectory is that of the tags that every run has.
func ParseTrajectory(turns []string) string { return Tags{}.ParseTrajectory(turns) }
