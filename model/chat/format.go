package chat

// The closed list of format errors of a turn and of a trajectory. A turn has at most one: the
// first in the order of the text.
const (
	FormatMissingMemory  = "missing_mem"        // no <mem> was opened
	FormatMissingThink   = "missing_think"      // no <think> was opened
	FormatMissingAction  = "missing_action"     // no action was opened
	FormatUnclosedMemory = "unclosed_mem"       // <mem> without </mem>
	FormatUnclosedThink  = "unclosed_think"     // <think> without </think>
	FormatUnclosedAction = "unclosed_action"    // an action without its closing tag
	FormatRepeatedTag    = "repeated_tag"       // a second <mem> or <think>
	FormatStrayTag       = "stray_tag"          // a closing tag of something that is not open
	FormatNestedTag      = "nested_tag"         // <mem> or <think> inside the other or itself, or any tag inside an action
	FormatWrongOrder     = "wrong_order"        // not <mem>, then <think>, then the action
	FormatTextOutside    = "text_outside"       // more than white space before, between or behind the parts
	FormatEmptyQuery     = "empty_query"        // a call of a tool with nothing in it
	FormatNoAnswer       = "no_answer"          // the trajectory's last action is not an answer
	FormatAfterAnswer    = "turns_after_answer" // the trajectory goes on behind an answer
)

// FormatErrors lists every format error in a fixed order.
func FormatErrors() []string {
	return []string{
		FormatMissingMemory, FormatMissingThink, FormatMissingAction,
		FormatUnclosedMemory, FormatUnclosedThink, FormatUnclosedAction,
		FormatRepeatedTag, FormatStrayTag, FormatNestedTag, FormatWrongOrder,
		FormatTextOutside, FormatEmptyQuery, FormatNoAnswer, FormatAfterAnswer,
	}
}

// formatCheck keeps the first error and which blocks were opened outside everything else.
type formatCheck struct {
	err    string
	memory bool
	think  bool
}

func (f *formatCheck) fail(err string) {
	if f.err == "" {
		f.err = err
	}
}

// step judges tag t before the machine takes it.
func (f *formatCheck) step(m *machine, t tag) {
	switch {
	case m.block != noTag:
		if !t.isAction() && !(t.closing() && t.opener() == m.block) {
			f.fail(FormatNestedTag)
		}
	case t.closing():
		if !t.isAction() || !m.opened[t.kind()] {
			f.fail(FormatStrayTag)
		}
	case m.inAction():
		f.fail(FormatNestedTag)
	case t == openMemory:
		f.open(&f.memory, !f.think)
	case t == openThink:
		f.open(&f.think, f.memory)
	case !f.memory || !f.think:
		f.fail(FormatWrongOrder)
	}
}

// open notes the opening of a block.
func (f *formatCheck) open(seen *bool, inOrder bool) {
	switch {
	case *seen:
		f.fail(FormatRepeatedTag)
	case !inOrder:
		f.fail(FormatWrongOrder)
	}
	*seen = true
}

// finish returns the turn's error when the text has ended.
func (f *formatCheck) finish(m *machine) string {
	switch {
	case f.err == "" && m.inBlock():
		if m.block == openMemory {
			return FormatUnclosedMemory
		}
		return FormatUnclosedThink
	case f.err == "" && m.inAction():
		return FormatUnclosedAction
	case f.err != "" && f.err != FormatWrongOrder:
		return f.err
	case !f.memory:
		return FormatMissingMemory
	case !f.think:
		return FormatMissingThink
	case f.err == "" && !m.done:
		return FormatMissingAction
	}
	return f.err
}
