package chat

import "strings"

// Scanner finds the end of a turn while it is being written. The zero value is ready, for the tags that
// every run has; others say NewScanner. It must
// see everything the model wrote since its turn began, prefill included, in any pieces; its
// answers depend on the text alone, never on where it was split.
type Scanner struct {
	machine machine
	carry   string // what may be the beginning of a tag, shorter than the longest
	offset  int    // of carry in the text
}

// NewScanner makes a scanner that knows the tags of a run.
func NewScanner(tags Tags) Scanner { return Scanner{machine: machine{tags: tags}} }

// Write appends text and reports whether an action outside <mem> and <think> has been closed
// somewhere in the text so far; then ParseTurn on that text finds the same action. The work is
// linear in the length of text.
func (s *Scanner) Write(text string) bool {
	if s.machine.done || text == "" {
		return s.machine.done
	}
	text = s.carry + text
	rest := text
	for !s.machine.done {
		at := strings.IndexByte(rest, '<')
		if at < 0 {
			rest = ""
			break
		}
		rest = rest[at:]
		found, partial := s.machine.tags.at(rest)
		if partial {
			break
		}
		if found == noTag {
			rest = rest[1:]
			continue
		}
		start := s.offset + len(text) - len(rest)
		length := len(s.machine.tags.text(found))
		rest = rest[length:]
		s.machine.step(found, Span{start, start + length})
	}
	s.offset += len(text) - len(rest)
	s.carry = strings.Clone(rest)
	return s.machine.done
}

// machine follows the tags of one turn in order. Its rules:
//
//   - <mem> and <think> are blocks: between the opening tag and the first closing tag of the same
//     name every other tag is text. A block may open anywhere outside a block, even between the
//     tags of an action.
//   - An action is an opening and a closing tag of one name, both outside the blocks; the first
//     pair to be completed is the turn's action and ends the turn. Of several opening tags of
//     one name the first counts. A closing tag without an opening one is ignored.
type machine struct {
	tags       Tags
	block      tag // openMemory or openThink while inside, else noTag
	blockStart int // offset of the block's opening tag
	hasMemory  bool
	memory     Span // the first closed <mem> block

	opened [mostActions]bool
	open   [mostActions]Span // the first opening tag of each kind

	done   bool
	action tag  // opening tag of the completed action
	body   Span // between its tags
	end    int  // behind its closing tag

	format formatCheck
}

// step takes the next tag of the text.
func (m *machine) step(t tag, at Span) {
	m.format.step(m, t)
	switch {
	case m.block != noTag:
		if t.closing() && t.opener() == m.block {
			m.closeBlock(at)
		}
	case !t.isAction():
		if !t.closing() {
			m.block, m.blockStart = t, at.Start
		}
	case !t.closing():
		if k := t.kind(); !m.opened[k] {
			m.opened[k], m.open[k] = true, at
		}
	case m.opened[t.kind()]:
		m.done, m.action, m.end = true, t.opener(), at.End
		m.body = Span{m.open[t.kind()].End, at.Start}
	}
}

func (m *machine) closeBlock(at Span) {
	if m.block == openMemory && !m.hasMemory {
		m.hasMemory, m.memory = true, Span{m.blockStart, at.End}
	}
	m.block = noTag
}

// inBlock reports whether the text read so far ends inside <mem> or <think>.
func (m *machine) inBlock() bool { return m.block != noTag }

// inAction reports whether an action has been opened and none completed.
func (m *machine) inAction() bool { return !m.done && m.opened != [mostActions]bool{} }

// unclosed is the first opening tag of an action that was not completed, or noTag.
func (m *machine) unclosed() tag {
	first, at := noTag, 0
	for k := range m.opened {
		t := openSearch + tag(k)
		if m.opened[k] && !(m.done && t == m.action) && (first == noTag || m.open[k].Start < at) {
			first, at = t, m.open[k].Start
		}
	}
	return first
}
