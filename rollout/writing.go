package rollout

import (
	"sort"
	"strings"

	"github.com/mempo-train/mempo-train/model/chat"
)

// writing is a turn while the model writes it: its text, and which bytes came from which token.
type writing struct {
	start   int     // of the turn in ResponseIDs
	context []int32 // Turn.ContextIDs
	ids     []int32 // prefill, then sampled
	text    []byte  // their raw bytes; an end-of-sequence token adds none
	ends    []int   // offset in text behind each token
	prefill int     // bytes of text that the prefill wrote
	sampled int     // tokens the model sampled
	budget  int     // tokens it may sample
	scanner chat.Scanner
}

// add appends a token and reports whether an action is closed now.
func (w *writing) add(id int32, bytes []byte) bool {
	w.ids = append(w.ids, id)
	w.text = append(w.text, bytes...)
	w.ends = append(w.ends, len(w.text))
	return w.scanner.Write(string(bytes))
}

// tokens are the positions, from the turn's start, of the tokens with a byte in span.
func (w *writing) tokens(span chat.Span) Span {
	first := sort.Search(len(w.ends), func(k int) bool { return w.ends[k] > span.Start })
	last := sort.Search(len(w.ends), func(k int) bool { return w.ends[k] >= span.End })
	return Span{first, last + 1}
}

// idsWithin are the ids of the tokens with a byte in span, of which a first or last that reaches
// beyond it is replaced by the plain encoding of its part inside.
func (w *writing) idsWithin(span chat.Span, vocabulary Vocabulary) []int32 {
	at := w.tokens(span)
	begin := 0
	if at.Start > 0 {
		begin = w.ends[at.Start-1]
	}
	cutFirst, cutLast := begin < span.Start, w.ends[at.End-1] > span.End
	if at.Len() == 1 && (cutFirst || cutLast) {
		return vocabulary.EncodePlain(string(w.text[span.Start:span.End]))
	}
	var ids []int32
	if cutFirst {
		ids = append(ids, vocabulary.EncodePlain(string(w.text[span.Start:w.ends[at.Start]]))...)
		at.Start++
	}
	if !cutLast {
		return append(ids, w.ids[at.Start:at.End]...)
	}
	ids = append(ids, w.ids[at.Start:at.End-1]...)
	return append(ids, vocabulary.EncodePlain(string(w.text[w.ends[at.End-2]:span.End]))...)
}

// answer is the content of an <answer> at span, without what the prefill wrote of it, trimmed.
func (w *writing) answer(span chat.Span) string {
	start := max(span.Start+len("<answer>"), w.prefill)
	end := max(span.End-len("</answer>"), start)
	return strings.TrimSpace(string(w.text[start:end]))
}

// turn sums up what was written.
func (w *writing) turn(stop TurnStop, r *rules) Turn {
	text := string(w.text)
	parsed := r.tags.ParseTurn(text)
	turn := Turn{
		Tokens: Span{w.start, w.start + len(w.ids)}, Text: text, Stop: stop, ContextIDs: w.context,
		Action: string(parsed.Action), ActionText: parsed.ActionText, FormatError: parsed.FormatError,
	}
	if parsed.HasMemory {
		at := w.tokens(parsed.Memory)
		turn.HasMemory, turn.Memory = true, Span{w.start + at.Start, w.start + at.End}
		turn.MemoryIDs = w.idsWithin(parsed.Memory, r.Vocabulary)
	}
	if parsed.Action != chat.ActionNone {
		turn.ActionIDs = w.idsWithin(parsed.ActionSpan, r.Vocabulary)
	}
	switch parsed.Action {
	case chat.ActionAnswer:
		turn.ActionText = w.answer(parsed.ActionSpan)
	case chat.ActionNone:
		turn.Malformed = r.tags.HoldsActionTag(text)
	default:
		turn.Malformed = parsed.ActionText == ""
	}
	return turn
}
