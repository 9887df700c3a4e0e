package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/rollout"
)

// short is a number for the page: four digits, null when it is not finite.
type short float64

// MarshalJSON writes a JSON number or null.
func (s short) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(s)) || math.IsInf(float64(s), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(s), 'g', 4, 64), nil
}

func shortened(n *rollout.Number) *short {
	if n == nil {
		return nil
	}
	s := short(*n)
	return &s
}

// block is what the page shows of one file of trajectories.
type block struct {
	Questions    []*question   `json:"questions"`
	Trajectories []*trajectory `json:"trajectories"`
}

// question is one question of a step with what its trajectories have in common.
type question struct {
	ID           string     `json:"id"`
	Text         string     `json:"text"`
	Golden       [][]string `json:"golden"`
	Prompt       string     `json:"prompt"`
	PromptTokens int        `json:"prompt_tokens"`

	draw int
}

// trajectory is one trajectory. Positions and lengths are in tokens.
type trajectory struct {
	Question  int              `json:"question"` // position in the block
	Member    int              `json:"member"`
	Score     *short           `json:"score"`
	Rewards   map[string]short `json:"rewards,omitempty"`
	Stop      string           `json:"stop"`
	Detail    string           `json:"detail,omitempty"`
	Truncated bool             `json:"truncated,omitempty"`
	Answer    *string          `json:"answer"`
	Seconds   short            `json:"seconds"`
	Tokens    int              `json:"tokens"`
	Sampled   int              `json:"sampled"`         // of them, written by the model
	Plain     bool             `json:"plain,omitempty"` // of an evaluation: nothing is trained on, so there are no advantages
	Strip     runs             `json:"strip"`           // advantages of all tokens of the response
	Turns     []turn           `json:"turns"`
}

// turn is one turn of the model with what came back.
type turn struct {
	Tokens      int    `json:"tokens"`
	Stop        string `json:"stop"`
	Action      string `json:"action,omitempty"`
	FormatError string `json:"format_error,omitempty"`
	ResultCut   bool   `json:"result_cut,omitempty"`
	MemoryCut   bool   `json:"memory_cut,omitempty"` // in the context of the next turn
	ToolError   string `json:"tool_error,omitempty"`
	ToolSeconds short  `json:"tool_s,omitempty"`

	MemoryReward    *short `json:"memory_reward,omitempty"`
	MemoryAdvantage *short `json:"memory_advantage,omitempty"`
	PFull           *short `json:"p_full,omitempty"`
	PMem            *short `json:"p_mem,omitempty"`

	Context       string `json:"context,omitempty"` // what the turn saw, where that was not all that stands before it
	ContextTokens int    `json:"context_tokens,omitempty"`
	Parts         []part `json:"parts"`
}

// part is a stretch of a turn of one kind. Texts are tokens, or one text where tokens cannot be
// told apart or were not written by the model; Advantages and LogProbs are aligned with them.
type part struct {
	Kind       string   `json:"kind"`
	Texts      []string `json:"texts"`
	Advantages runs     `json:"advantages,omitempty"`
	LogProbs   []short  `json:"logprobs,omitempty"`
}

// runs are values of which many in a row are equal, as [value, how often]…; NaN stands for a token
// that is not trained on.
type runs []run

type run struct {
	value short
	times int
}

// MarshalJSON writes one flat list.
func (r runs) MarshalJSON() ([]byte, error) {
	flat := []byte{'['}
	for k, run := range r {
		if k > 0 {
			flat = append(flat, ',')
		}
		value, err := run.value.MarshalJSON()
		if err != nil {
			return nil, err
		}
		flat = append(append(flat, value...), ',')
		flat = strconv.AppendInt(flat, int64(run.times), 10)
	}
	return append(flat, ']'), nil
}

func (r *runs) add(value float64) {
	if last := len(*r) - 1; last >= 0 {
		before := float64((*r)[last].value)
		if before == value || math.IsNaN(before) && math.IsNaN(value) {
			(*r)[last].times++
			return
		}
	}
	*r = append(*r, run{short(value), 1})
}

// newTrajectory prepares a record for the page. tok is nil where the tokenizer of the run is not
// there.
func newTrajectory(r *rollout.Record, tok *tokenizer.Tokenizer) *trajectory {
	t := &trajectory{
		Member: r.Member, Score: shortened(r.Score), Stop: string(r.Stop), Detail: r.StopDetail, Truncated: r.Truncated,
		Answer: r.Answer, Seconds: short(r.ElapsedSeconds), Tokens: len(r.ResponseIDs), Plain: len(r.Advantages) == 0,
		Turns: make([]turn, len(r.Turns)),
	}
	if len(r.Rewards) > 0 {
		t.Rewards = map[string]short{}
		for name, value := range r.Rewards {
			t.Rewards[name] = short(value)
		}
	}
	tokens := newTokens(r)
	for k := range tokens.ids {
		t.Strip.add(tokens.advantage(k))
		if tokens.sampled(k) {
			t.Sampled++
		}
	}
	for k := range r.Turns {
		end := len(tokens.ids)
		if k+1 < len(r.Turns) {
			end = r.Turns[k+1].Tokens[0]
		}
		t.Turns[k] = newTurn(&r.Turns[k], tokens, end, tok)
	}
	return t
}

// newTurn prepares a turn; next is where the model begins to write again.
func newTurn(r *rollout.TurnRecord, tokens tokens, next int, tok *tokenizer.Tokenizer) turn {
	t := turn{
		Tokens: r.Tokens[1] - r.Tokens[0], Stop: string(r.Stop), Action: r.Action, FormatError: r.FormatError,
		ResultCut: r.ResultCut, ToolError: r.ToolError, ToolSeconds: short(r.ToolSeconds),
		MemoryReward: shortened(r.MemoryReward), MemoryAdvantage: shortened(r.MemoryAdvantage),
		PFull: shortened(r.PFull), PMem: shortened(r.PMem),
		Context: r.Context, ContextTokens: len(r.ContextIDs), MemoryCut: r.MemoryCut,
	}
	start, end := tokens.within(r.Tokens[0]), tokens.within(r.Tokens[1])
	written, between := tokens.partsByText(r, start, end), r.Result
	if tok != nil {
		written, between = tokens.parts(tok, r, start, end), tok.Decode(tokens.ids[end:max(end, tokens.within(next))])
	}
	t.Parts = slices.Concat([]part{}, written, toolParts(between, r.Result))
	return t
}

// toolParts divides what stands between two turns into the tool's result and the chat template
// around it.
func toolParts(between, toolResult string) []part {
	before, after, found := strings.Cut(between, toolResult)
	if !found || toolResult == "" {
		before, toolResult, after = between, "", ""
	}
	var parts []part
	for _, p := range []struct{ kind, text string }{{template, before}, {result, toolResult}, {template, after}} {
		if p.text != "" {
			parts = append(parts, part{Kind: p.kind, Texts: []string{p.text}})
		}
	}
	return parts
}
