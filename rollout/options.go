package rollout

import (
	"errors"
	"fmt"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
)

// Vocabulary is the part of a tokenizer that rollouts use.
type Vocabulary interface {
	// Encode recognises added tokens in trusted segments only.
	Encode(segments ...tokenizer.Segment) []int32
	// EncodePlain is Encode of one untrusted segment.
	EncodePlain(text string) []int32
	// TokenBytes are the raw bytes of one token; false if the id has no token.
	TokenBytes(id int32) ([]byte, bool)
	// Valid tells for each id up to the largest whether it has a token.
	Valid() []bool
}

// Limits bound a trajectory; all count tokens but MaxTurns, and all but MemoryTokens are at least 1.
type Limits struct {
	MaxTurns          int
	MaxTurnTokens     int // sampled in one turn
	MaxResponseTokens int // of a trajectory: model, tool and glue tokens together
	ToolResultTokens  int // of one tool result, its <information> tags included
	MemoryTokens      int // of the memory carried on under Limited, tags included; 0 is no cap
	ContextLength     int // of what the model sees, with the answer prefix and the golden answer
}

// Texts are the short messages the model gets instead of a tool result. In all of them "{tool}"
// stands for the action's name, "{url}" for its content and "{reason}" for why it was refused.
type Texts struct {
	Correct     string // the turn held no action, and Rules.CorrectNoAction is set
	Unavailable string // the run does not offer the tool
	Refused     string // the address is not allowed
	Empty       string // the query or address is empty
	NoResults   string // the search found nothing
	ToolFailed  string // the tool failed, and Rules.TellToolFailure is set
}

// Rules govern every trajectory of a run alike.
type Rules struct {
	Limits
	Format     chat.Format
	Vocabulary Vocabulary
	// Prefill is opening text put after each generation prompt: never trained on, but counted as
	// written by the model for tags, memory spans and format.
	Prefill string
	EOS     []int32 // end-of-sequence ids of the generation config
	// AnswerPrefix stands before the golden answer when memories are scored; room for both is
	// kept free in the context.
	AnswerPrefix    string
	CorrectNoAction bool // a turn without an action gets Texts.Correct instead of ending the trajectory
	TellToolFailure bool // a failed tool gets Texts.ToolFailed instead of ending the trajectory
	Texts           Texts
}

// Tools are what the model may use; a nil tool is not offered.
type Tools struct {
	Search      retrieval.Searcher
	Access      retrieval.Accessor
	Custom      []CustomTool
	TopK        int // passages per search
	Concurrency int // calls that run at the same time, at least 1
	// CacheHits counts the calls so far that a cache before the tools answered; nil without one.
	CacheHits func() int64
}

func (t Tools) cacheHits() int {
	if t.CacheHits == nil {
		return 0
	}
	return int(t.CacheHits())
}

// CustomTool is a tool with a tag of its own: <tag>text</tag> asks it for the passages of text, and what
// they hold is the result, as it is.
type CustomTool struct {
	Tag   string // see chat.NewTags
	Asked retrieval.Searcher
	TopK  int // passages per call
}

// Tags are the tags of a run with these tools.
func (t Tools) Tags() (chat.Tags, error) {
	names := make([]string, len(t.Custom))
	for k, tool := range t.Custom {
		names[k] = tool.Tag
	}
	return chat.NewTags(names...)
}

// offers reports whether the run has the tool of an action.
func (t Tools) offers(action chat.Action) bool {
	switch action {
	case chat.ActionSearch:
		return t.Search != nil
	case chat.ActionAccess:
		return t.Access != nil
	}
	return t.custom(action) != nil
}

// custom is the custom tool of an action, nil where it is none's.
func (t Tools) custom(action chat.Action) *CustomTool {
	for k := range t.Custom {
		if t.Custom[k].Tag == string(action) {
			return &t.Custom[k]
		}
	}
	return nil
}

// Schedule says when a trajectory joins the running batch.
type Schedule string

// Under Fixed which rows share a batch is a function of seeds and token counts alone, so that a
// run repeats bit for bit as long as no deadline strikes: a tool result joins a set number of
// forward passes after its call, and generation waits for it. Under Eager it joins when it comes.
const (
	Fixed Schedule = "fixed"
	Eager Schedule = "eager"
)

// Progress is the state of a Run after a forward pass.
type Progress struct {
	Generated int // tokens sampled so far
	Rows      int // rows the session holds
	Waiting   int // trajectories that wait for a tool
	Ended     int // trajectories that have ended
	Total     int // trajectories of the run
}

// Options say how Run works.
type Options struct {
	Rules
	Context   Context // what each turn is conditioned on
	GroupSize int     // trajectories per question
	Sampling  model.Sampling
	Seed      uint64 // of the run
	Step      int
	Schedule  Schedule
	// BatchTokens bounds the tokens of one forward pass: rows that go on by one token are always
	// in, longer pieces share what is left and are cut into chunks.
	BatchTokens int
	// MaxRows bounds the trajectories that generate; further ones wait. One that waits for its tool, or has ended
	// and is to be measured, does not count, and keeps its row. When the tool has answered it waits for a
	// place, before those that have not begun, in the order of questions and members. 0 is no bound.
	MaxRows int
	// CacheTokens bounds the keys and values that are held, those that rows share counted once. When
	// they are short, no further trajectory begins; then the newest is put aside, keeps all it has
	// sampled, and is encoded again when there is room, older ones first. The newest give way too when all
	// that have a row wait for tools and another could go on in their room. There must be room for the
	// prompt and one whole trajectory of each question, see LeastCacheTokens. 0 is no bound.
	CacheTokens int
	// TrajectoryDeadline runs from a trajectory's first forward pass, and stands still while the
	// trajectory does because Fixed waits for another's tool or because it waits for another row or a place.
	// StepDeadline runs from the start of Run. 0 is none.
	TrajectoryDeadline, StepDeadline time.Duration
	// OnEnd sees each trajectory as soon as it ends. It runs between two forward passes and must be quick.
	OnEnd func(*Group, *Trajectory)
	// Measure lists what is to be measured behind a trajectory that ended in the model's own way; nil,
	// and an empty list, is nothing. It is called after OnEnd, under Full only.
	Measure func(*Group, *Trajectory) []Branch
	// Measured sees the scores of these branches, at temperature 1, later between two forward passes
	// and at the latest before Run returns. It is not called for a trajectory whose branches found no
	// memory, or whose row no longer held what stands before them.
	Measured func(*Group, *Trajectory, []Branch, []model.RowScores)
	// Progress is called after each forward pass, and when trajectories ended without one. It must be quick.
	Progress func(Progress)
}

// validate refuses options that cannot work.
func (o *Options) validate(tools Tools) error {
	for _, limit := range []struct {
		name  string
		value int
	}{
		{"group size", o.GroupSize},
		{"max_turns", o.MaxTurns},
		{"max_turn_tokens", o.MaxTurnTokens},
		{"max_response_tokens", o.MaxResponseTokens},
		{"tool_result_tokens", o.ToolResultTokens},
		{"context length", o.ContextLength},
		{"batch tokens", o.BatchTokens},
		{"tool concurrency", tools.Concurrency},
	} {
		if limit.value < 1 {
			return fmt.Errorf("rollout: %s is %d, at least 1 is needed", limit.name, limit.value)
		}
	}
	switch {
	case o.Format == nil || o.Vocabulary == nil:
		return errors.New("rollout: a format and a vocabulary are needed")
	case o.Schedule != Fixed && o.Schedule != Eager:
		return fmt.Errorf("rollout: schedule is %q, allowed are %q and %q", o.Schedule, Fixed, Eager)
	case o.Context != "" && o.Context != Full && o.Context != Limited:
		return fmt.Errorf("rollout: context is %q, allowed are %q and %q", o.Context, Full, Limited)
	case o.MemoryTokens < 0:
		return fmt.Errorf("rollout: memory_tokens is %d, at least 0 is needed", o.MemoryTokens)
	case o.MaxRows < 0 || o.CacheTokens < 0:
		return fmt.Errorf("rollout: max rows is %d, cache tokens are %d, at least 0 (no bound) is needed", o.MaxRows, o.CacheTokens)
	case tools.Search != nil && tools.TopK < 1:
		return fmt.Errorf("rollout: topk is %d, at least 1 is needed", tools.TopK)
	}
	return o.validateTags(tools)
}

func (o *Options) validateTags(tools Tools) error {
	for _, tool := range tools.Custom {
		if tool.Asked == nil || tool.TopK < 1 {
			return fmt.Errorf("rollout: the custom tool %q asks nobody, or for %d passages; at least 1 is needed", tool.Tag, tool.TopK)
		}
	}
	tags, err := tools.Tags()
	if err != nil {
		return fmt.Errorf("rollout: %w", err)
	}
	if tags.ParseTurn(o.Prefill).Action != chat.ActionNone {
		return fmt.Errorf("rollout: the prefill %q holds a whole action, which only the model may write", o.Prefill)
	}
	return nil
}
