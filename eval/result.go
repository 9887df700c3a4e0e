package eval

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
)

// Result is an evaluation in one context.
type Result struct {
	Context rollout.Context `json:"context"`
	Overall Figures         `json:"overall"`
	Groups  []Group         `json:"groups"`
	Answers []Answer        `json:"answers"` // in the order of questions and samples
	Seconds float64         `json:"seconds"` // that it took

	ForwardTokens int `json:"-"` // that went through the model
}

// What the questions of a group have in common.
const (
	BySource     = "source"
	ByHops       = "hops"
	ByObjectives = "objectives"
)

// Unknown is the key of a group of questions whose source or hops are not known.
const Unknown = "unknown"

// Group is a part of the questions.
type Group struct {
	By  string `json:"by"`  // BySource, ByHops or ByObjectives
	Key string `json:"key"` // the source or the number
	Figures
}

// Answer is how one trajectory answered its question. The grades of one that failed are null.
type Answer struct {
	QuestionID  string             `json:"question_id"`
	Source      string             `json:"source,omitempty"`
	Hops        int                `json:"hops,omitempty"` // 0 is not known
	Objectives  int                `json:"objectives"`
	Sample      int                `json:"sample"`     // from 0
	Prediction  *string            `json:"prediction"` // null without an answer
	EM          rollout.Number     `json:"em"`
	EMSum       rollout.Number     `json:"em_sum"`
	F1          rollout.Number     `json:"f1"`
	FormatOK    bool               `json:"format_ok"`
	Score       *rollout.Number    `json:"score,omitempty"` // by reward.command, under the rule of the format; absent without one
	Stop        rollout.StopReason `json:"stop"`
	StopDetail  string             `json:"stop_detail,omitempty"`
	Truncated   bool               `json:"truncated"`
	Turns       int                `json:"turns"`
	ToolCalls   int                `json:"tool_calls"`
	TotalTokens int                `json:"total_tokens"`
	PeakTokens  int                `json:"peak_tokens"`
}

func newAnswer(question dataset.Question, t *rollout.Trajectory, grade reward.TrajectoryGrade) Answer {
	a := Answer{
		QuestionID: question.ID, Source: question.Source, Hops: question.Hops, Objectives: len(question.Objectives), Sample: t.Member,
		Prediction: t.Answer, EM: rollout.Number(grade.EM), EMSum: rollout.Number(grade.EMSum), F1: rollout.Number(grade.F1), FormatOK: grade.FormatOK, Score: (*rollout.Number)(grade.Graded),
		Stop: t.Stop, StopDetail: t.StopDetail, Truncated: t.Truncated(), Turns: len(t.Turns),
		TotalTokens: t.TokensProcessed(), PeakTokens: t.PeakContext(),
	}
	for _, turn := range t.Turns {
		if turn.ToolCalled {
			a.ToolCalls++
		}
	}
	if t.Stop.Failed() {
		none := rollout.Number(math.NaN())
		a.EM, a.EMSum, a.F1 = none, none, none
	}
	return a
}

// sum fills in the figures of all questions and of their groups, by the answers to them.
func (r *Result) sum(samples int) {
	r.Overall = summarise(r.Answers, samples)
	r.group(BySource, samples, func(a *Answer) string { return cmp.Or(a.Source, Unknown) }, cmp.Compare[string])
	r.group(ByHops, samples, func(a *Answer) string { return numeral(a.Hops) }, byNumber)
	r.group(ByObjectives, samples, func(a *Answer) string { return numeral(a.Objectives) }, byNumber)
}

// byNumber puts numerals in the order of their numbers, and Unknown last.
func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func numeral(n int) string {
	if n == 0 {
		return Unknown
	}
	return strconv.Itoa(n)
}

// group appends the groups of one kind in order, unless no question says which it belongs to.
func (r *Result) group(by string, samples int, key func(*Answer) string, order func(a, b string) int) {
	members := map[string][]Answer{}
	for k := range r.Answers {
		of := key(&r.Answers[k])
		members[of] = append(members[of], r.Answers[k])
	}
	if len(members[Unknown]) == len(r.Answers) {
		return
	}
	keys := make([]string, 0, len(members))
	for of := range members {
		keys = append(keys, of)
	}
	slices.SortFunc(keys, order)
	for _, of := range keys {
		r.Groups = append(r.Groups, Group{By: by, Key: of, Figures: summarise(members[of], samples)})
	}
}
