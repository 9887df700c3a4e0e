package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
)

// state is where a trajectory stands.
type state int

const (
	pending    state = iota // the prompt is encoded
	generating              // the model writes a turn
	processing              // a tool works on the turn's call
	terminated
)

// call is a tool call to be run.
type call struct {
	action chat.Action // search, access or a custom tool's tag
	text   string      // query or address
}

// outcome is how a call went.
type outcome struct {
	info    information // of a call that went well
	err     error
	elapsed time.Duration
}

// effect is what a machine wants done next. With none of these the trajectory has ended.
type effect struct {
	feed  []int32 // to be appended to the row's cache; then one token is to be sampled
	fresh bool    // the same, but sequence takes the place of all that is in the row
	call  *call   // to be run; its outcome goes to observe
}

// machine is the state machine of one trajectory: sampled tokens and tool outcomes go in, tokens
// to feed and calls to run come out. It does nothing else: no clock, no device, no goroutine.
//
// A limit never touches a finished action: an answer that closes with the last token there was
// room for ends the trajectory as Answered. The sequence never outgrows the context or
// MaxResponseTokens: a message that would leave no room for a further token is not appended, and
// the trajectory ends with the limit's stop reason before another forward pass. For the same
// reason a tool is not called when no turn could follow.
//
// Under Limited each turn behind the first has a sequence of its own, see limitedContext, in which
// MaxTurnTokens are kept free; MaxResponseTokens still bounds the response as a whole.
type machine struct {
	rules        *rules
	t            *Trajectory
	state        state
	contextLimit int  // tokens of what the model sees and writes together
	offset       int  // of the response in the sequence of the turn
	reserved     bool // the context has room for the whole turn
	fed          int  // tokens of the response handed out so far
	sampledIDs   int
	writing      writing       // the turn being written
	carried      carriedMemory // under Limited: what goes on to the next turn
}

func newMachine(rules *rules, prompt []int32, contextLimit, member int) *machine {
	return &machine{
		rules: rules, contextLimit: contextLimit, offset: len(prompt),
		t: &Trajectory{Member: member, PromptIDs: prompt},
	}
}

// begin opens the first turn.
func (m *machine) begin() effect { return m.nextTurn(nil) }

// sampled takes the token that followed what was fed.
func (m *machine) sampled(id int32, logProb float32, redraws int) effect {
	m.append([]int32{id}, true, logProb)
	m.sampledIDs++
	m.t.Redraws += redraws
	w := &m.writing
	w.sampled++
	if slices.Contains(m.rules.EOS, id) {
		w.add(id, nil)
		return m.endTurn(EndOfSequence)
	}
	bytes, _ := m.rules.Vocabulary.TokenBytes(id)
	if w.add(id, bytes) {
		return m.endTurn(StopWord)
	}
	if w.sampled < w.budget {
		return effect{feed: m.unfed()}
	}
	if room, full := m.room(); room == 0 && full == ContextFull {
		return m.endTurn(TurnContextFull)
	}
	return m.endTurn(TurnCut)
}

// observe takes the outcome of the call.
func (m *machine) observe(o outcome) effect {
	turn := m.lastTurn()
	turn.ToolTime = o.elapsed
	if o.err == nil {
		return m.tell(o.info)
	}
	turn.ToolError = o.err.Error()
	var refused *retrieval.RefusedError
	switch {
	case errors.As(o.err, &refused):
		return m.reply(m.rules.Texts.Refused, refused.Reason)
	case m.rules.TellToolFailure:
		return m.reply(m.rules.Texts.ToolFailed, "")
	}
	m.fail(FailedTool, turn.ToolError)
	return effect{}
}

// fail ends the trajectory for a reason outside the model: nothing of it is trained on. What was
// being written becomes a turn of its own, to be read by people.
func (m *machine) fail(reason StopReason, detail string) {
	if m.state == generating && m.writing.sampled > 0 {
		m.t.Turns = append(m.t.Turns, m.writing.turn(TurnCut, m.rules))
	}
	if m.sampledIDs == 0 {
		detail = "no_tokens: " + detail
	}
	m.state = terminated
	m.t.Fail(reason, detail)
}

// end ends the trajectory by the model's doing. One without a token of the model's is a failure.
func (m *machine) end(reason StopReason) effect {
	if m.sampledIDs == 0 {
		m.fail(FailedEngine, fmt.Sprintf("the prompt of %d tokens leaves no room to write (%s)", len(m.t.PromptIDs), reason))
		return effect{}
	}
	m.state, m.t.Stop = terminated, reason
	return effect{}
}

// endTurn files the written turn and follows its action.
func (m *machine) endTurn(stop TurnStop) effect {
	turn := m.writing.turn(stop, m.rules)
	m.t.Turns = append(m.t.Turns, turn)
	room, full := m.room()
	action := chat.Action(turn.Action)
	switch {
	case action == chat.ActionAnswer:
		m.t.Answer = &turn.ActionText
		return m.end(Answered)
	case action == chat.ActionNone && room <= 0 && stop != EndOfSequence:
		return m.end(full)
	case action == chat.ActionNone && !m.rules.CorrectNoAction:
		return m.end(NoAction)
	case len(m.t.Turns) >= m.rules.MaxTurns:
		return m.end(MaxTurns)
	}
	if m.rules.limited {
		m.carry(&turn)
	}
	if room, full := m.roomBetween(); room <= len(m.rules.prefillIDs) {
		return m.end(full)
	}
	if action == chat.ActionNone {
		return m.nextTurn([]tokenizer.Segment{{Text: m.rules.Texts.Correct, Trusted: true}})
	}
	return m.act(action, turn.ActionText)
}

// act calls the tool, or tells the model why not.
func (m *machine) act(action chat.Action, text string) effect {
	turn := m.lastTurn()
	switch {
	case !m.rules.tools.offers(action):
		turn.ToolError = fmt.Sprintf("%s is not offered", action)
		return m.reply(m.rules.Texts.Unavailable, "")
	case text == "":
		turn.ToolError = fmt.Sprintf("empty %s", action)
		return m.reply(m.rules.Texts.Empty, "")
	}
	turn.ToolCalled = true
	m.state = processing
	return effect{call: &call{action: action, text: text}}
}

// reply tells the model a short text in place of a result.
func (m *machine) reply(text, reason string) effect {
	turn := m.lastTurn()
	fill := strings.NewReplacer("{tool}", turn.Action, "{url}", turn.ActionText, "{reason}", reason)
	return m.tell(m.rules.inform([]string{fill.Replace(text)}))
}

// tell opens the next turn with a result, and files the result if the model gets to see it.
func (m *machine) tell(info information) effect {
	turn := m.lastTurn()
	if m.rules.limited {
		info, turn.ResultTokensCut = m.fitted(info)
	}
	turn.ResultCut = info.cut
	next := m.nextTurn(info.segments())
	if m.state == generating {
		turn.Result = info.text()
	}
	return next
}

// nextTurn appends a message and the prefill and lets the model write. The first turn has no message.
func (m *machine) nextTurn(message []tokenizer.Segment) effect {
	first, limited := message == nil, m.rules.limited
	var observation []int32
	if !first {
		observation = m.rules.Format.Observation(message, m.closed())
	}
	context := m.t.PromptIDs
	if limited && !first {
		if context = m.limitedContext(message); len(context) > m.limitedRoom() {
			return m.end(ContextFull)
		}
		m.offset, m.reserved = len(context)-len(m.t.ResponseIDs)-len(observation), true
	}
	if room, full := m.room(); len(observation)+len(m.rules.prefillIDs) >= room {
		return m.end(full)
	}
	m.append(observation, false, 0)
	m.open()
	if limited {
		m.writing.context = context
	}
	if limited && !first {
		m.lastTurn().MemoryCut = m.carried.cut
	}
	feed := m.unfed()
	if limited || first { // sequence has the feed
		return effect{fresh: true}
	}
	return effect{feed: feed}
}

// open begins a turn with the prefill.
func (m *machine) open() {
	m.state = generating
	m.writing = writing{start: len(m.t.ResponseIDs), scanner: chat.NewScanner(m.rules.tags)}
	for _, id := range m.rules.prefillIDs {
		bytes, _ := m.rules.Vocabulary.TokenBytes(id)
		m.writing.add(id, bytes)
	}
	m.writing.prefill = len(m.writing.text)
	m.append(m.rules.prefillIDs, false, 0)
	room, _ := m.room()
	m.writing.budget = min(m.rules.MaxTurnTokens, room)
}

// room is the number of tokens the turn's sequence may still grow by, and what is full then.
func (m *machine) room() (int, StopReason) {
	response := len(m.t.ResponseIDs)
	context := m.contextLimit - m.offset - response
	if left := m.rules.MaxResponseTokens - response; m.reserved || left < context {
		return left, MaxResponse
	}
	return context, ContextFull
}

// roomBetween is the room for a message and the turn that would follow it, and what is full then.
func (m *machine) roomBetween() (int, StopReason) {
	if !m.rules.limited {
		return m.room()
	}
	left := m.rules.MaxResponseTokens - len(m.t.ResponseIDs)
	context := m.contextLimit - m.rules.MaxTurnTokens - len(m.limitedContext(nil))
	if left < context {
		return left, MaxResponse
	}
	return context, ContextFull
}

// sequence is what the turn being written is conditioned on and holds so far: the tokens that a row
// must have before the next one is sampled.
func (m *machine) sequence() []int32 {
	if m.rules.limited {
		return slices.Concat(m.writing.context, m.t.ResponseIDs[m.writing.start:])
	}
	return m.t.FullIDs()
}

// length is the number of tokens of sequence.
func (m *machine) length() int { return m.offset + len(m.t.ResponseIDs) }

// unfed are the tokens of the response that no feed has held yet.
func (m *machine) unfed() []int32 {
	from := m.fed
	m.fed = len(m.t.ResponseIDs)
	return slices.Clip(m.t.ResponseIDs[from:])
}

func (m *machine) append(ids []int32, sampled bool, logProb float32) {
	for _, id := range ids {
		m.t.ResponseIDs = append(m.t.ResponseIDs, id)
		m.t.ResponseMask = append(m.t.ResponseMask, sampled)
		m.t.LogProbs = append(m.t.LogProbs, logProb)
	}
}

func (m *machine) lastTurn() *Turn { return &m.t.Turns[len(m.t.Turns)-1] }

// closed reports whether the sequence ends with a token that closes a turn in this format.
func (m *machine) closed() bool {
	ids := m.t.ResponseIDs
	return len(ids) > 0 && slices.Contains(m.rules.endOfTurn, ids[len(ids)-1])
}
