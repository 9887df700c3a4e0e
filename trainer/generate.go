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

// generate samples the trajectories; each is graded as soon as it ends, beside the generation of
// the others, and in the cached form its memories are measured.
func (t *Trainer) generate(ctx context.Context, step int, questions []rollout.Drawn, clock *clock) ([]Graded, Measured, rollout.Stats, error) {
	begun := time.Now()
	outcomes := map[*rollout.Trajectory]Outcome{}
	var failed error
	var tally Tally
	options := t.Rollout
	options.Step = step
	options.OnEnd = func(g *rollout.Group, trajectory *rollout.Trajectory) {
		outcome, err := t.grade(g, trajectory)
		if err != nil {
			failed = err
		}
		outcomes[trajectory] = outcome
		tally.Ended++
		if trajectory.Stop.Failed() {
			tally.Failed++
		}
		tally.EMSum += outcome.EM
	}
	if t.watch.Rollout != nil {
		options.Progress = func(p rollout.Progress) { t.watch.Rollout(p, tally) }
	}
	measured := t.measureAlong(&options)
	groups, stats, err := rollout.Run(ctx, t.actor, questions, options, t.Tools)
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, nil, stats, err
	}
	clock.took(stageRollout, (time.Since(begun) - stats.ScoreTime).Seconds())
	clock.tokens(stageRollout, stats.ForwardTokens)
	if stats.ScoredTokens > 0 {
		clock.took(stageMemory, stats.ScoreTime.Seconds())
		clock.tokens(stageMemory, stats.ScoredTokens)
	}
	return withOutcomes(groups, outcomes), measured, stats, nothingValid(groups)
}

func withOutcomes(groups []*rollout.Group, outcomes map[*rollout.Trajectory]Outcome) []Graded {
	graded := make([]Graded, 0, len(groups))
	for _, g := range groups {
		one := Graded{Group: g}
		for _, trajectory := range g.Trajectories {
			one.Outcomes = append(one.Outcomes, outcomes[trajectory])
		}
		graded = append(graded, one)
	}
	return graded
}

func nothingValid(groups []*rollout.Group) error {
	detail := "no question was drawn"
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			if !trajectory.Stop.Failed() {
				return nil
			}
			detail = trajectory.StopDetail
		}
	}
	return &ErrNothingValid{Detail: detail}
}

// grade is a pure function of what the model wrote. A failed trajectory is not graded.
func (t *Trainer) grade(g *rollout.Group, trajectory *rollout.Trajectory) (Outcome, error) {
	if trajectory.Stop.Failed() {
		return Outcome{}, nil
	}
	outcome := Outcome{TrajectoryGrade: reward.GradeTrajectory(trajectory, g.Question.Objectives)}
	var err error
	outcome.Score, err = reward.Score(outcome.Grade, outcome.FormatOK, t.Reward.FormatReward, t.Reward.FormatWeight)
	if t.Reward.Truncated == "zero" && trajectory.Truncated() {
		outcome.Score = 0
	}
	return outcome, err
}
