// Package eval measures how well a policy answers a fixed set of questions. It counts each question
// once, whatever the size of a batch, changes nothing about the model, and gives the same result
// for the same weights, questions and options.
package eval

import (
	"context"
	"errors"
	"time"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
)

// step stands for the step in the seeds of an evaluation: training counts from 1, so that no
// evaluation shares a seed with a training step, and all evaluations of a run share theirs.
const step = 0

// chunkTrajectories are decoded together: enough to keep the batches full, and few enough for the
// memory. Seeds depend on the place of a question in the whole set, not in its chunk.
const chunkTrajectories = 128

// Options say how an evaluation goes.
type Options struct {
	// Rollout holds the context, the sampling and the limits. GroupSize is the number of samples of
	// each question. Step, OnEnd and Progress are set by Run.
	Rollout rollout.Options
	// Keep sees every trajectory, in the order of questions and samples. Its error ends the
	// evaluation. Nil keeps nothing.
	Keep func(question dataset.Question, draw int, trajectory *rollout.Trajectory, grade reward.TrajectoryGrade) error
	// Grader scores answers in place of the exact match, under the rule of reward.Score; nil for none. A
	// trajectory that it fails on counts as failed.
	Grader       reward.Grader
	FormatReward string
	FormatWeight float64
	// Progress is told, between two forward passes, how many trajectories of all have ended.
	Progress func(ended, total int)

	chunk int // trajectories decoded together; 0 is chunkTrajectories
}

// ErrNothingValid is the end of an evaluation in which every trajectory failed so far: its tools or
// its device do not work.
type ErrNothingValid struct{ Detail string }

func (e *ErrNothingValid) Error() string {
	return "every trajectory of the evaluation failed; the last one because " + e.Detail
}

// Run evaluates the policy in the one context that the options name. A trajectory that failed is
// left out of every mean and counted. The end of ctx ends the evaluation with an error. An
// *ErrNothingValid comes with the result of the questions asked until then.
func Run(ctx context.Context, policy model.Policy, questions []dataset.Question, o Options, tools rollout.Tools) (*Result, error) {
	if len(questions) == 0 {
		return nil, errors.New("no question to evaluate on")
	}
	begun := time.Now()
	e := &evaluation{Options: o, policy: policy, tools: tools, total: len(questions) * o.Rollout.GroupSize, result: &Result{Context: o.Rollout.Context}}
	if e.chunk == 0 {
		e.chunk = chunkTrajectories
	}
	size := max(1, e.chunk/max(1, o.Rollout.GroupSize))
	for first := 0; first < len(questions); first += size {
		var drawn []rollout.Drawn
		for k, question := range questions[first:min(first+size, len(questions))] {
			drawn = append(drawn, rollout.Drawn{Question: question, Draw: first + k})
		}
		if err := e.answer(ctx, drawn); err != nil {
			return nil, err
		}
		if e.valid == 0 {
			break
		}
	}
	e.result.sum(o.Rollout.GroupSize)
	e.result.Seconds = time.Since(begun).Seconds()
	if e.valid == 0 {
		return e.result, &ErrNothingValid{Detail: e.result.Answers[len(e.result.Answers)-1].StopDetail}
	}
	return e.result, nil
}

// evaluation is a Run under way.
type evaluation struct {
	Options
	policy model.Policy
	tools  rollout.Tools
	total  int // trajectories in all
	valid  int // trajectories so far that did not fail
	result *Result
}

// answer has a chunk of the questions answered and notes how.
func (e *evaluation) answer(ctx context.Context, drawn []rollout.Drawn) error {
	options := e.Rollout
	options.Step, options.OnEnd, options.Progress = step, nil, nil
	grades := map[*rollout.Trajectory]reward.TrajectoryGrade{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is still being graded when generation fails
	grading := reward.NewGrading(ctx, e.Grader)
	options.OnEnd = func(g *rollout.Group, t *rollout.Trajectory) {
		grades[t] = reward.GradeTrajectory(t, g.Question.Objectives)
		if e.FormatReward != "gate" || grades[t].FormatOK { // else the score is 0 in any case
			grading.Start(g.Question, t, grades[t])
		}
	}
	before := len(e.result.Answers)
	if e.Progress != nil {
		options.Progress = func(p rollout.Progress) { e.Progress(before+p.Ended, e.total) }
	}
	groups, stats, err := rollout.Run(ctx, e.policy, drawn, options, e.tools)
	if err != nil {
		return err
	}
	grading.Wait()
	e.result.ForwardTokens += stats.ForwardTokens
	for _, group := range groups {
		for _, trajectory := range group.Trajectories {
			grade := grades[trajectory]
			if trajectory.Stop.Failed() {
				grade = reward.TrajectoryGrade{}
			}
			if e.Grader != nil && !trajectory.Stop.Failed() {
				score, err := reward.Score(grading.Outcome(trajectory, grade), grade.FormatOK, e.FormatReward, e.FormatWeight)
				if err != nil {
					return err
				}
				grade.Graded = &score
			}
			if e.Keep != nil {
				if err := e.Keep(group.Question, group.Draw, trajectory, grade); err != nil {
					return err
				}
			}
			e.result.Answers = append(e.result.Answers, newAnswer(group.Question, trajectory, grade))
			if !trajectory.Stop.Failed() {
				e.valid++
			}
		}
	}
	return nil
}
