package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// Demonstration is a conversation to learn from, in the parts that a rollout has.
type Demonstration struct {
	System string // system prompt; "" is none
	Turns  []DemonstratedTurn
}

// DemonstratedTurn is a turn of the model and the message that it answers.
type DemonstratedTurn struct {
	Message string // the question, or what came back to the turn before
	Prefix  string // what the turn begins with and is context only, as a rollout's prefill
	Text    string // the rest of the turn
	Trained bool   // Text is learned from
}

// Lesson is a demonstration in tokens.
type Lesson struct {
	IDs       []int32
	Positions []int32 // in IDs, of the tokens to learn; ascending
}

// Teacher turns demonstrations into tokens, with the pieces and by the rules of a rollout: a
// trajectory written down as a demonstration gives back its ids, if the model wrote each turn in
// the tokens that its text encodes to, and its response mask. Not safe for concurrent use.
type Teacher struct {
	tok     *tokenizer.Tokenizer
	eos     []int32
	format  func(system string) (Format, error)
	formats map[string]Format // by system prompt
}

// NewTeacher makes a Teacher for conversations in the format that is made for a system prompt. eos
// are the ids that end a turn in a format without an end-of-turn token; the first is taught.
func NewTeacher(tok *tokenizer.Tokenizer, eos []int32, format func(system string) (Format, error)) *Teacher {
	return &Teacher{tok: tok, eos: eos, format: format, formats: map[string]Format{}}
}

// Lesson encodes a demonstration. What a turn is taught:
//
//   - The tokens of Text, up to the one that closes the turn's action, where sampling stops; behind
//     it only white space may follow, which is left out.
//   - The end-of-turn token if the turn closes no action: nothing else ends it. Behind an action it
//     is the template's, as in a rollout, where nobody samples it.
//
// Control tokens are recognised in the template's own text and the system prompt; in turns, and in
// the message behind a turn without an action (which tells the model how to act), our own tags
// are; in results their <information> tags; in other text none. Text that is not Trained is encoded
// the same and learned nowhere.
func (t *Teacher) Lesson(d Demonstration) (Lesson, error) {
	format, err := t.formatOf(d.System)
	if err != nil {
		return Lesson{}, err
	}
	var l Lesson
	acted := true
	for k, turn := range d.Turns {
		if k == 0 {
			if l.IDs, err = format.Prompt(turn.Message); err != nil {
				return Lesson{}, err
			}
		} else {
			l.IDs = append(l.IDs, format.Observation(observed(turn.Message, acted), endsIn(l.IDs, format.EndOfTurn()))...)
		}
		if acted, err = t.addTurn(&l, turn, format); err != nil {
			return Lesson{}, fmt.Errorf("turn %d of the assistant: %w", k+1, err)
		}
	}
	return l, nil
}

func (t *Teacher) formatOf(system string) (Format, error) {
	if format, known := t.formats[system]; known {
		return format, nil
	}
	format, err := t.format(system)
	if err == nil {
		t.formats[system] = format
	}
	return format, err
}

// observed is the message behind a turn. One behind a turn without an action is the trainer's own
// text, which names the tags.
func observed(message string, acted bool) []tokenizer.Segment {
	if inner, ok := informationIn(message); ok {
		return Information(inner)
	}
	if !acted {
		return tagged(message)
	}
	return []tokenizer.Segment{{Text: message}}
}

func endsIn(ids, ends []int32) bool { return len(ids) > 0 && slices.Contains(ends, ids[len(ids)-1]) }

// addTurn appends a turn and tells whether it closes an action.
func (t *Teacher) addTurn(l *Lesson, turn DemonstratedTurn, format Format) (acted bool, err error) {
	var scanner Scanner
	if turn.Prefix != "" {
		if scanner.Write(turn.Prefix) {
			return false, fmt.Errorf("its prefix is %q, which holds a whole action; allowed is a text that opens a turn", turn.Prefix)
		}
		l.IDs = append(l.IDs, t.tok.Encode(tagged(turn.Prefix)...)...)
	}
	ids := t.tok.Encode(tagged(turn.Text)...)
	var behind []int32
	for k, id := range ids {
		token, _ := t.tok.TokenBytes(id)
		if scanner.Write(string(token)) {
			acted, ids, behind = true, ids[:k+1], ids[k+1:]
			break
		}
	}
	if rest := t.tok.Decode(behind); strings.TrimSpace(rest) != "" {
		return false, fmt.Errorf("%q stands behind its action, where a turn ends; allowed is white space", rest)
	}
	if end := slices.Concat(format.EndOfTurn(), t.eos); !acted && len(end) > 0 {
		ids = append(ids, end[0])
	}
	for _, id := range ids {
		if turn.Trained {
			l.Positions = append(l.Positions, int32(len(l.IDs)))
		}
		l.IDs = append(l.IDs, id)
	}
	return acted, nil
}

// tagged trusts the tags of turns in a text and nothing else.
func tagged(text string) []tokenizer.Segment {
	var tags Tags
	var segments []tokenizer.Segment
	from := 0
	for at := 0; at < len(text); {
		found := noTag
		if text[at] == '<' {
			found, _ = tags.at(text[at:])
		}
		if found == noTag {
			at++
			continue
		}
		segments = append(segments, tokenizer.Segment{Text: text[from:at]}, tokenizer.Segment{Text: tags.text(found), Trusted: true})
		at += len(tags.text(found))
		from = at
	}
	return append(segments, tokenizer.Segment{Text: text[from:]})
}
