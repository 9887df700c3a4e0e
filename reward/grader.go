package reward

import (
	"context"
	"sync"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/rollout"
)

// Answered is an ended trajectory as a Grader sees it.
type Answered struct {
	ID            string   `json:"id"`
	Question      string   `json:"question"`
	GoldenAnswers any      `json:"golden_answers"` // []string, or [][]string for several objectives
	Turns         []string `json:"turns"`          // what the model wrote in each, prefill included
	Answer        *string  `json:"answer"`         // nil without one
	EM            float64  `json:"em"`
	F1            float64  `json:"f1"`
	FormatOK      bool     `json:"format_ok"`
}

// NewAnswered describes a trajectory and its grade.
func NewAnswered(question dataset.Question, t *rollout.Trajectory, grade TrajectoryGrade) Answered {
	a := Answered{
		ID: question.ID, Question: question.Text, GoldenAnswers: question.Objectives,
		Turns: make([]string, len(t.Turns)), Answer: t.Answer, EM: grade.EM, F1: grade.F1, FormatOK: grade.FormatOK,
	}
	if len(question.Objectives) == 1 {
		a.GoldenAnswers = question.Objectives[0]
	}
	for k, turn := range t.Turns {
		a.Turns[k] = turn.Text
	}
	return a
}

// Grader says what an answer is worth, in place of the exact match. It is safe for concurrent use, and
// for the same answer gives the same score. Its error means that it failed, not that the answer is bad.
type Grader interface {
	Grade(ctx context.Context, a Answered) (float64, error)
}

// Grading has trajectories graded beside their generation.
type Grading struct {
	ctx     context.Context
	grader  Grader
	running sync.WaitGroup
	mutex   sync.Mutex
	scores  map[*rollout.Trajectory]float64
	errs    map[*rollout.Trajectory]error
}

// NewGrading begins a grading, which ends early with ctx. grader may be nil: then nothing is graded.
func NewGrading(ctx context.Context, grader Grader) *Grading {
	return &Grading{ctx: ctx, grader: grader, scores: map[*rollout.Trajectory]float64{}, errs: map[*rollout.Trajectory]error{}}
}

// Start has a trajectory that has ended graded and returns at once. One that failed is not graded.
func (g *Grading) Start(question dataset.Question, t *rollout.Trajectory, grade TrajectoryGrade) {
	if g.grader == nil || t.Stop.Failed() {
		return
	}
	asked := NewAnswered(question, t, grade)
	g.running.Go(func() {
		score, err := g.grader.Grade(g.ctx, asked)
		g.mutex.Lock()
		defer g.mutex.Unlock()
		if err != nil {
			g.errs[t] = err
		} else {
			g.scores[t] = score
		}
	})
}

// Wait waits for all that was started and lets the trajectories fail whose grading did, as if a tool
// had: nothing of them is trained on or counted in a mean. It returns how many those are.
func (g *Grading) Wait() (failed int) {
	g.running.Wait()
	for t, err := range g.errs {
		t.Fail(rollout.FailedTool, "the answer could not be graded: "+err.Error())
	}
	return len(g.errs)
}

// Outcome is the score of a trajectory, behind Wait: the grader's, or the exact match where nothing is
// graded.
func (g *Grading) Outcome(t *rollout.Trajectory, grade TrajectoryGrade) float64 {
	if g.grader == nil {
		return grade.EM
	}
	return g.scores[t]
}
