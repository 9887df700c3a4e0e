// Package trainer is one MemPO step, and the loop around it: generate, measure memories, reward,
// advantages, log-probabilities, update. It meets the device only through the interfaces of
// package model.
package trainer

import (
	"context"
	"errors"
	"fmt"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

// Actor is the model that is trained.
type Actor interface {
	model.Policy
	model.Scorer
	model.Learner
	model.Memory
}

// Reference is the model that the run started from.
type Reference interface {
	model.Policy // only to score
	model.Scorer
}

// Options are the constants of a run's steps.
type Options struct {
	Rollout   rollout.Options // Step, OnEnd and Progress are set by the trainer
	Tools     rollout.Tools
	Reward    RewardOptions
	Scoring   ScoringOptions
	Advantage advantage.Options
	Update    UpdateOptions
	Decode    func([]int32) string // ids to text, nothing skipped, for trajectory records
}

// RewardOptions say what a trajectory and its memories are worth; see the config's reward table.
type RewardOptions struct {
	FormatReward string
	FormatWeight float64
	MemoryReward string
	AnswerProb   string
	Truncated    string // "score", "zero" or "mask" what a limit cut
	// Grader scores answers in place of the exact match; nil for none. A trajectory that it fails on counts
	// as failed.
	Grader reward.Grader
	// ContextLength is the model's. A memory whose history, with the answer behind it, is longer has
	// no reward: what limited contexts leave behind may outgrow it. 0 is no bound.
	ContextLength int
}

// UpdateOptions are the constants of the update; see the config's loss and optimizer tables.
type UpdateOptions struct {
	Loss                  model.LossOptions
	Aggregation           string
	Divisor               float64
	Optimizer             model.OptimizerOptions
	LearningRate          func(step int) float64 // steps count from 1
	PPOEpochs             int
	QuestionsPerMinibatch int
	MicroBatchTokens      int // of one forward pass of scoring or training; a longer row has one to itself, or is cut
	MaxNonfinite          int // skipped optimiser steps in a row that end the run
}

// Counters run on over the whole run, checkpoints included.
type Counters struct {
	optim.Counters
	FailedStepsInRow int64 // tries of a step that failures left nothing to train on
}

const keyFailedSteps = "failed_steps_in_row" // in a checkpoint's record

func (c *Counters) record() map[string]int64 {
	all := c.Record()
	all[keyFailedSteps] = c.FailedStepsInRow
	return all
}

func (c *Counters) restore(record map[string]int64) {
	c.Restore(record)
	c.FailedStepsInRow = record[keyFailedSteps]
}

// Trainer takes steps. It is not safe for concurrent use.
type Trainer struct {
	Options
	actor     Actor
	reference Reference // nil when the loss has no KL term
	Counters  Counters
	micro     optim.MicroBatches
	watch     Watch
}

// Watch shows a person how a step goes on; any function may be nil.
type Watch struct {
	Stage   func(name string, total int) (add func(n int), done func()) // a stage of the step begins
	Rollout func(rollout.Progress, Tally)                               // after each forward pass of generation
}

// New makes a trainer. reference may be nil when the KL coefficient is 0.
func New(actor Actor, reference Reference, options Options, watch Watch) (*Trainer, error) {
	if reference == nil && options.Update.Loss.KLCoef != 0 {
		return nil, fmt.Errorf("a KL coefficient of %g needs a reference model", options.Update.Loss.KLCoef)
	}
	if err := options.Scoring.validate(); err != nil {
		return nil, err
	}
	return &Trainer{
		Options: options, actor: actor, reference: reference, watch: watch,
		micro: optim.MicroBatches{Tokens: options.Update.MicroBatchTokens},
	}, nil
}

// Result is what one step leaves behind.
type Result struct {
	Metrics map[string]float64
	Records []*rollout.Record
	// Malformed is the text of a turn whose action could not be run; "" when there was none.
	Malformed string
}

// ErrNothingValid marks a step in which so many trajectories failed that no question has MinGroup valid ones: it does
// not count as trained.
type ErrNothingValid struct {
	Detail   string // of the last one that failed
	MinGroup int
}

func (e *ErrNothingValid) Error() string {
	return fmt.Sprintf("so many trajectories failed that no question has the %d that advantage.min_group wants; the last one because %s", e.MinGroup, e.Detail)
}

// Step trains on the questions drawn for a step, counted from 1. An *optim.NonfiniteError comes with a
// result that holds the records alone, to look at what broke the updates.
func (t *Trainer) Step(ctx context.Context, step int, questions []rollout.Drawn) (*Result, error) {
	clock := newClock()
	if err := t.actor.ResetPeak(); err != nil {
		return nil, err
	}
	all, err := t.generate(ctx, step, questions, clock)
	if err != nil {
		return nil, err
	}
	rows, err := t.rows(all.graded)
	if err != nil {
		return nil, err
	}
	memories, scores, err := t.scoreActor(ctx, step, all.graded, all.measured, rows, clock)
	if err != nil {
		return nil, err
	}
	if err := t.scoreReference(ctx, step, rows, scores, clock); err != nil {
		return nil, err
	}
	advantages, err := t.advantages(all.graded, memories)
	if err != nil {
		return nil, err
	}
	plan := t.plan(step, rows, advantages)
	losses, err := t.update(ctx, step, plan, scores, clock)
	data := &stepData{all.graded, all.stats, all.ungraded, memories, advantages, plan, scores, losses, clock}
	var nonfinite *optim.NonfiniteError
	switch {
	case errors.As(err, &nonfinite):
		return &Result{Records: t.records(step, data)}, err
	case err != nil:
		return nil, err
	}
	return t.report(step, data)
}
