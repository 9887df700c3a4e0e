// Package rollout lets the policy answer questions over several turns with tools, and keeps
// exactly what was sampled: token ids, masks, log-probabilities and stop reasons.
package rollout

import (
	"fmt"
	"time"

	"github.com/mempo-train/mempo-train/dataset"
)

// StopReason says why a trajectory ended.
type StopReason string

// The closed list of trajectory stop reasons.
const (
	Answered       StopReason = "answered"
	MaxTurns       StopReason = "max_turns"
	MaxResponse    StopReason = "max_response"
	ContextFull    StopReason = "context_full"
	NoAction       StopReason = "no_action"
	FailedTool     StopReason = "failed_tool"
	FailedDeadline StopReason = "failed_deadline"
	FailedEngine   StopReason = "failed_engine"
)

// StopReasons lists every trajectory stop reason in a fixed order.
func StopReasons() []StopReason {
	return []StopReason{Answered, MaxTurns, MaxResponse, ContextFull, NoAction, FailedTool, FailedDeadline, FailedEngine}
}

// Failed reports whether a trajectory ended through no doing of the model's.
func (r StopReason) Failed() bool {
	return r == FailedTool || r == FailedDeadline || r == FailedEngine
}

// Truncated reports whether a limit of the whole trajectory cut it; see Trajectory.Truncated.
func (r StopReason) Truncated() bool {
	return r == MaxTurns || r == MaxResponse || r == ContextFull
}

// TurnStop says why a turn ended.
type TurnStop string

// The closed list of turn stop reasons.
const (
	StopWord        TurnStop = "stop_word"
	EndOfSequence   TurnStop = "eos"
	TurnCut         TurnStop = "turn_cut"
	TurnContextFull TurnStop = "context_full"
)

// Span is a half-open range of positions in a trajectory's ResponseIDs.
type Span struct{ Start, End int }

// Len is the number of positions.
func (s Span) Len() int { return s.End - s.Start }

// Group is one question with the trajectories sampled for it.
type Group struct {
	Question     dataset.Question
	Draw         int // position of the question within the step: seeds depend on it
	Trajectories []*Trajectory
}

// Trajectory is one whole conversation: PromptIDs, then ResponseIDs.
type Trajectory struct {
	Member      int     // position within the group
	PromptIDs   []int32 // ends where the model starts to write
	ResponseIDs []int32
	// ResponseMask and LogProbs are aligned with ResponseIDs. The mask is true on tokens the model
	// sampled; LogProbs are those seen when sampling, 0 where the mask is false. In a failed
	// trajectory the mask is false everywhere.
	ResponseMask []bool
	LogProbs     []float32
	Turns        []Turn
	Stop         StopReason
	StopDetail   string        // for a failed trajectory: what failed
	Answer       *string       // content of the answer that ended the trajectory; nil without one
	Elapsed      time.Duration // from its first forward pass to its end, measured
	Redraws      int           // sampled ids without a token, redrawn
}

// Turn is one stretch of model tokens, with the tool result that followed it.
type Turn struct {
	Tokens Span   // of the model's own tokens, prefill included, end-of-turn token included
	Text   string // what Tokens decode to, raw bytes, without a trailing end-of-sequence token
	Stop   TurnStop

	ContextIDs []int32 // under Limited: what the turn was conditioned on; nil under Full, see ContextOf

	HasMemory bool    // a closed <mem> block was written
	Memory    Span    // from the first token of <mem> to the last of </mem>, within Tokens
	MemoryIDs []int32 // the same tokens for a context of their own: edge tokens that reach beyond the tags are re-encoded

	Action      string  // "search", "access", the tag of a custom tool, "answer" or "" (none)
	ActionText  string  // query, url, what a custom tool is asked, or answer, trimmed
	ActionIDs   []int32 // the action with its tags; edge tokens as in MemoryIDs
	FormatError string  // "" when the turn keeps the format

	// Malformed reports that the text holds the beginning of an action's opening tag, or an action
	// without content, and nothing could be run.
	Malformed bool

	Result     string // tool result as the model saw it, <information> tags included; "" if it never did
	ResultCut  bool   // the result was over its token limit, or over what a limited context had room for
	ToolError  string // text of a tool failure or refusal
	ToolTime   time.Duration
	ToolCalled bool // a tool ran, or was tried

	ResultTokensCut int  // of the result within its token limit, what a limited context had no room for
	MemoryCut       bool // the memory at the start of the next turn's limited context is cut by MemoryTokens
}

// Truncated reports whether a limit cut the trajectory, that of one turn included.
func (t *Trajectory) Truncated() bool {
	if t.Stop == NoAction && len(t.Turns) > 0 {
		return t.Turns[len(t.Turns)-1].Stop == TurnCut
	}
	return t.Stop.Truncated()
}

// Fail makes a trajectory that has ended a failed one.
func (t *Trajectory) Fail(reason StopReason, detail string) {
	t.Stop, t.StopDetail = reason, detail
	clear(t.ResponseMask)
	clear(t.LogProbs)
}

// FullIDs are the prompt and the response in one slice.
func (t *Trajectory) FullIDs() []int32 {
	ids := make([]int32, 0, len(t.PromptIDs)+len(t.ResponseIDs))
	return append(append(ids, t.PromptIDs...), t.ResponseIDs...)
}

// ModelPositions lists the positions in FullIDs of the tokens the model sampled, ascending.
func (t *Trajectory) ModelPositions() []int32 {
	var positions []int32
	for k, sampled := range t.ResponseMask {
		if sampled {
			positions = append(positions, int32(len(t.PromptIDs)+k))
		}
	}
	return positions
}

// Validate checks that the per-token slices are aligned and every span lies inside.
func (t *Trajectory) Validate() error {
	n := len(t.ResponseIDs)
	if len(t.ResponseMask) != n || len(t.LogProbs) != n {
		return fmt.Errorf("trajectory %d: %d response ids, %d mask entries, %d log-probs", t.Member, n, len(t.ResponseMask), len(t.LogProbs))
	}
	for k, turn := range t.Turns {
		if turn.Tokens.Start < 0 || turn.Tokens.End > n || turn.Tokens.Start > turn.Tokens.End {
			return fmt.Errorf("trajectory %d: turn %d covers %v of %d tokens", t.Member, k+1, turn.Tokens, n)
		}
		if limited := turn.ContextIDs != nil; limited != (t.Turns[0].ContextIDs != nil) || limited && len(turn.ContextIDs) == 0 {
			return fmt.Errorf("trajectory %d: turn %d has a context of %d tokens, the first turn of %d", t.Member, k+1, len(turn.ContextIDs), len(t.Turns[0].ContextIDs))
		}
		if turn.HasMemory && (turn.Memory.Start < turn.Tokens.Start || turn.Memory.End > turn.Tokens.End || turn.Memory.Len() <= 0) {
			return fmt.Errorf("trajectory %d: memory %v outside turn %d at %v", t.Member, turn.Memory, k+1, turn.Tokens)
		}
	}
	return nil
}
