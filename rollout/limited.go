package rollout

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

const openMemory, closeMemory = "<mem>", "</mem>"

// carriedMemory is the memory that a limited context begins with, behind the prompt.
type carriedMemory struct {
	ids  []int32 // both tags in any case
	says bool    // more than white space between the tags
	cut  bool    // by MemoryTokens
}

// carry takes over a turn's memory. One that was not closed or says nothing leaves the last good
// one; as long as there is none, the latest closed one goes on, or else empty tags.
func (m *machine) carry(turn *Turn) {
	if m.carried.ids == nil {
		m.carried.ids = trusted(m.rules.Vocabulary, openMemory+closeMemory)
	}
	if !turn.HasMemory {
		return
	}
	text, _ := m.rules.text(turn.MemoryIDs)
	says := strings.TrimSpace(text[len(openMemory):len(text)-len(closeMemory)]) != ""
	if says || !m.carried.says {
		ids, cut := m.rules.capMemory(turn.MemoryIDs)
		m.carried = carriedMemory{ids, says, cut}
	}
}

// capMemory returns a memory that keeps MemoryTokens, tags included: its own tokens up to a whole
// character, and the closing tag. The tags stay in any case.
func (r *rules) capMemory(ids []int32) (kept []int32, cut bool) {
	if r.MemoryTokens == 0 || len(ids) <= r.MemoryTokens {
		return ids, false
	}
	closing := trusted(r.Vocabulary, closeMemory)
	text, ends := r.text(ids)
	for k := r.MemoryTokens - len(closing); k > 0; k-- {
		begin := text[:ends[k-1]]
		if len(begin) < len(openMemory) {
			break
		}
		if len(begin) <= len(text)-len(closeMemory) && endsWithCharacter(begin) {
			return slices.Concat(ids[:k], closing), len(begin) < len(text)-len(closeMemory)
		}
	}
	return trusted(r.Vocabulary, openMemory+closeMemory), true
}

// text decodes ids, and tells where in the text each of them ends.
func (r *rules) text(ids []int32) (text string, ends []int) {
	var bytes []byte
	for _, id := range ids {
		token, _ := r.Vocabulary.TokenBytes(id)
		bytes = append(bytes, token...)
		ends = append(ends, len(bytes))
	}
	return string(bytes), ends
}

// endsWithCharacter reports whether text does not end inside a character.
func endsWithCharacter(text string) bool {
	last := len(text) - 1
	for back := 1; back < utf8.UTFMax && last > 0 && !utf8.RuneStart(text[last]); back++ {
		last--
	}
	return last < 0 || utf8.FullRuneInString(text[last:])
}

// limitedContext is what a turn behind the first is conditioned on under Limited, and the only
// place where it is put together: the prompt, then as the model's own words the memory carried on
// and the action of the turn before, if it had one, then message, which answers that turn and
// always closes it. Nothing that the model wrote is encoded anew but tokens that reach beyond
// their tags, see Turn.MemoryIDs.
func (m *machine) limitedContext(message []tokenizer.Segment) []int32 {
	return slices.Concat(m.t.PromptIDs, m.carried.ids, m.lastTurn().ActionIDs, m.rules.Format.Observation(message, false))
}

// limitedRoom is the number of tokens that a limited context may have: room for a whole turn is
// kept behind it.
func (m *machine) limitedRoom() int {
	return m.contextLimit - m.rules.MaxTurnTokens - len(m.rules.prefillIDs)
}

// fitted cuts a result until the context with it keeps its limit, and tells how many tokens that
// took. The memory is never cut for it: what does not fit beside an empty result does not fit.
func (m *machine) fitted(info information) (information, int) {
	whole := m.rules.tokens(info)
	limit, cut := whole, info.cut
	for info.inner != "" {
		over := len(m.limitedContext(info.segments())) - m.limitedRoom()
		if over <= 0 {
			break
		}
		limit -= over
		info, cut = m.rules.informWithin(info.parts, limit), true
	}
	info.cut = cut
	return info, whole - m.rules.tokens(info)
}
