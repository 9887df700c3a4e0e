package rollout

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/mempo-train/mempo-train/dataset"
)

// Number is a float64 that is written to JSON as null when it is not finite.
type Number float64

// MarshalJSON writes the shortest text that reads back as the same number.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as NaN.
func (n *Number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(data, (*float64)(n))
}

// Floats are float32 values that are written to JSON in as few digits as tell them apart, and as
// null when they are not finite.
type Floats []float32

// MarshalJSON writes an array.
func (f Floats) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for k, v := range f {
		if k > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, float64(v), 'g', -1, 32)
		}
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads null as NaN.
func (f *Floats) UnmarshalJSON(data []byte) error {
	var values []*float32
	if err := json.Unmarshal(data, &values); err != nil {
		return err
	}
	*f = make(Floats, len(values))
	for k, v := range values {
		if v == nil {
			(*f)[k] = float32(math.NaN())
		} else {
			(*f)[k] = *v
		}
	}
	return nil
}

// Record is a trajectory as a line of a trajectory file, for people and scripts to read. Spans are
// [start, end) in ResponseIDs. Bytes that are no UTF-8 read as U+FFFD in texts; ids are exact.
type Record struct {
	Step          int        `json:"step"`
	QuestionID    string     `json:"question_id"`
	Question      string     `json:"question"`
	GoldenAnswers [][]string `json:"golden_answers"` // of each objective
	Draw          int        `json:"draw"`
	Member        int        `json:"member"`

	Stop           StopReason        `json:"stop"`
	StopDetail     string            `json:"stop_detail,omitempty"`
	Truncated      bool              `json:"truncated"`
	Answer         *string           `json:"answer"`
	Score          *Number           `json:"score,omitempty"` // set by the trainer, like all rewards and advantages
	Rewards        map[string]Number `json:"rewards,omitempty"`
	ElapsedSeconds float64           `json:"elapsed_s"`
	Redraws        int               `json:"redraws,omitempty"`

	Prompt string       `json:"prompt"` // decoded from PromptIDs
	Turns  []TurnRecord `json:"turns"`

	PromptIDs    []int32 `json:"prompt_ids"`
	ResponseIDs  []int32 `json:"response_ids"`
	ResponseMask []int   `json:"response_mask"`
	LogProbs     Floats  `json:"logprobs"` // when sampled; 0 where the mask is 0
	Advantages   Floats  `json:"advantages,omitempty"`
}

// TurnRecord is one turn of a Record.
type TurnRecord struct {
	Text        string   `json:"text"`
	Stop        TurnStop `json:"stop"`
	Tokens      [2]int   `json:"tokens"`
	Memory      *[2]int  `json:"memory,omitempty"`
	Action      string   `json:"action"`
	ActionText  string   `json:"action_text"`
	FormatError string   `json:"format_error,omitempty"`
	Malformed   bool     `json:"malformed,omitempty"`
	Result      string   `json:"result,omitempty"`
	ResultCut   bool     `json:"result_cut,omitempty"`
	ToolError   string   `json:"tool_error,omitempty"`
	ToolSeconds float64  `json:"tool_s,omitempty"`

	// In limited context: what the turn was conditioned on, decoded from ContextIDs; tokens of the
	// result that the next turn's had no room for, and whether its memory was cut.
	Context         string  `json:"context,omitempty"`
	ContextIDs      []int32 `json:"context_ids,omitempty"`
	ResultTokensCut int     `json:"result_tokens_cut,omitempty"`
	MemoryCut       bool    `json:"memory_cut,omitempty"`

	MemoryReward    *Number `json:"memory_reward,omitempty"`
	MemoryAdvantage *Number `json:"memory_advantage,omitempty"`
	PFull           *Number `json:"p_full,omitempty"`
	PMem            *Number `json:"p_mem,omitempty"`
}

// NewRecord makes a trajectory's record; rewards and advantages are left for the trainer to set.
// decode turns ids into text and skips nothing.
func NewRecord(step int, question dataset.Question, draw int, t *Trajectory, decode func([]int32) string) *Record {
	r := &Record{
		Step: step, QuestionID: question.ID, Question: question.Text, GoldenAnswers: question.Objectives,
		Draw: draw, Member: t.Member,
		Stop: t.Stop, StopDetail: t.StopDetail, Truncated: t.Truncated(), Answer: t.Answer,
		ElapsedSeconds: t.Elapsed.Seconds(), Redraws: t.Redraws,
		Prompt: decode(t.PromptIDs), Turns: make([]TurnRecord, len(t.Turns)),
		PromptIDs: t.PromptIDs, ResponseIDs: t.ResponseIDs,
		ResponseMask: make([]int, len(t.ResponseMask)),
		LogProbs:     t.LogProbs,
	}
	for k, sampled := range t.ResponseMask {
		if sampled {
			r.ResponseMask[k] = 1
		}
	}
	for k := range t.Turns {
		r.Turns[k] = newTurnRecord(&t.Turns[k], decode)
	}
	return r
}

func newTurnRecord(t *Turn, decode func([]int32) string) TurnRecord {
	r := TurnRecord{
		Text: t.Text, Stop: t.Stop, Tokens: [2]int{t.Tokens.Start, t.Tokens.End},
		Action: t.Action, ActionText: t.ActionText, FormatError: t.FormatError, Malformed: t.Malformed,
		Result: t.Result, ResultCut: t.ResultCut, ToolError: t.ToolError, ToolSeconds: t.ToolTime.Seconds(),
		ContextIDs: t.ContextIDs, ResultTokensCut: t.ResultTokensCut, MemoryCut: t.MemoryCut,
	}
	if t.ContextIDs != nil {
		r.Context = decode(t.ContextIDs)
	}
	if t.HasMemory {
		r.Memory = &[2]int{t.Memory.Start, t.Memory.End}
	}
	return r
}
