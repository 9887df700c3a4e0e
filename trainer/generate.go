package trainer

import (
	"context"
	"time"

	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
)

// Outcome is what a trajectory's answer and format are worth.
type Outcome struct {
	reward.TrajectoryGrade
	Score float64
}

// Graded is a group with the outcome of each trajectory.
type Graded struct {
	*rollout.Group
	Outcomes []Outcome
}

// Tally counts trajectories that have ended, for people who watch.
type Tally struct {
	Ended  int
	EMSum  float64
	Failed int
}

// generated is what generation leaves behind.
type generated struct {
	graded   []Graded
	measured Measured
	stats    rollout.Stats
	ungraded int // trajectories that the grader failed on
}

// generate samples the trajectories; each is graded as soon as it ends, beside the generation of
// the others, and in the cached form its memories are measured.
func (t *Trainer) generate(ctx context.Context, step int, questions []rollout.Drawn, clock *clock) (*generated, error) {
	begun := time.Now()
	grades := map[*rollout.Trajectory]reward.TrajectoryGrade{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is still being graded when generation fails
	grading := reward.NewGrading(ctx, t.Reward.Grader)
	var tally Tally
	options := t.Rollout
	options.Step = step
	options.OnEnd = func(g *rollout.Group, trajectory *rollout.Trajectory) {
		grade := reward.GradeTrajectory(trajectory, g.Question.Objectives)
		grades[trajectory] = grade
		if t.Reward.FormatReward != "gate" || grade.FormatOK { // else the score is 0 in any case
			grading.Start(g.Question, trajectory, grade)
		}
		tally.Ended++
		if trajectory.Stop.Failed() {
			tally.Failed++
		}
		tally.EMSum += grade.EM
	}
	if t.watch.Rollout != nil {
		options.Progress = func(p rollout.Progress) { t.watch.Rollout(p, tally) }
	}
	measured := t.measureAlong(&options)
	groups, stats, err := rollout.Run(ctx, t.actor, questions, options, t.Tools)
	if err != nil {
		return nil, err
	}
	all := &generated{measured: measured, stats: stats, ungraded: grading.Wait()}
	clock.took(stageRollout, (time.Since(begun) - stats.ScoreTime).Seconds())
	clock.tokens(stageRollout, stats.ForwardTokens)
	if stats.ScoredTokens > 0 {
		clock.took(stageMemory, stats.ScoreTime.Seconds())
		clock.tokens(stageMemory, stats.ScoredTokens)
	}
	if all.graded, err = t.outcomes(groups, grades, grading); err != nil {
		return nil, err
	}
	return all, nothingValid(groups, t.Advantage.MinGroup)
}

// outcomes says what every trajectory is worth when all are graded.
func (t *Trainer) outcomes(groups []*rollout.Group, grades map[*rollout.Trajectory]reward.TrajectoryGrade, grading *reward.Grading) ([]Graded, error) {
	graded := make([]Graded, 0, len(groups))
	for _, g := range groups {
		one := Graded{Group: g}
		for _, trajectory := range g.Trajectories {
			outcome, err := t.outcome(trajectory, grades[trajectory], grading)
			if err != nil {
				return nil, err
			}
			one.Outcomes = append(one.Outcomes, outcome)
		}
		graded = append(graded, one)
	}
	return graded, nil
}

// nothingValid refuses a step whose failures leave no question to train on. One trajectory that never asks a service
// must not hide that it is gone.
func nothingValid(groups []*rollout.Group, minGroup int) error {
	detail := "no question was drawn"
	for _, g := range groups {
		valid := 0
		for _, trajectory := range g.Trajectories {
			if trajectory.Stop.Failed() {
				detail = trajectory.StopDetail
			} else {
				valid++
			}
		}
		if valid >= minGroup {
			return nil
		}
	}
	return &ErrNothingValid{Detail: detail, MinGroup: minGroup}
}

// outcome is what one trajectory is worth. A failed one is not graded.
func (t *Trainer) outcome(trajectory *rollout.Trajectory, grade reward.TrajectoryGrade, grading *reward.Grading) (Outcome, error) {
	if trajectory.Stop.Failed() {
		return Outcome{}, nil
	}
	outcome := Outcome{TrajectoryGrade: grade}
	var err error
	outcome.Score, err = reward.Score(grading.Outcome(trajectory, grade), grade.FormatOK, t.Reward.FormatReward, t.Reward.FormatWeight)
	if t.Reward.Truncated == "zero" && trajectory.Truncated() {
		outcome.Score = 0
	}
	return outcome, err
}
