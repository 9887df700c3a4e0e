package sft

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/loop"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// Run is a whole run: steps, and what they leave in the run folder.
type Run struct {
	Trainer
	loop.Job
	Order          *dataset.Order // of the draws; the job's cursor
	Lessons        []chat.Lesson  // each with a token to learn
	LessonsPerStep int
	// Held-out lessons are measured every EvaluateEvery steps (0 is never) and after the last one.
	HeldOut       []chat.Lesson
	EvaluateEvery int
	Stage         func(name string, total int) metrics.Stage // shows a person how far the work is

	skipped int64 // optimiser steps that were warned of
}

// linesPerRun is about how many lines a run shows; a line for each of a thousand quick steps would
// bury what matters.
const linesPerRun = 20

// Continue takes up where a checkpoint left off; the weights are restored by checkpoint.Restore.
func (r *Run) Continue(record checkpoint.Record) error {
	if err := r.Resume(record); err != nil {
		return err
	}
	r.Counters.Restore(record.Counters)
	r.skipped = r.Counters.NonfiniteSteps
	return nil
}

// Loop trains until all steps are done or stop is closed, as loop.Job.Loop does.
func (r *Run) Loop(ctx context.Context, stop <-chan struct{}) error {
	bar := r.Stage("sft", r.Steps)
	defer bar.Done()
	bar.Add(r.Done)
	step := func(ctx context.Context) error {
		if err := r.step(ctx); err != nil {
			return err
		}
		bar.Add(1)
		return nil
	}
	return r.Job.Loop(ctx, stop, step, r.Counters.Record)
}

// step trains the next step and writes what it leaves behind.
func (r *Run) step(ctx context.Context) error {
	step := r.Done + 1
	places := r.Order.Next(r.LessonsPerStep)
	lessons := make([]chat.Lesson, len(places))
	for k, place := range places {
		lessons[k] = r.Lessons[place]
	}
	r.Log.Info("step begins", zap.Int("step", step), zap.Ints("demonstrations", places))
	values, err := r.Step(ctx, step, lessons)
	if err != nil {
		return err
	}
	evaluates := len(r.HeldOut) > 0 && r.EvaluateEvery > 0 && (step%r.EvaluateEvery == 0 || step == r.Steps)
	if evaluates {
		bar := r.Stage("evaluation", len(r.HeldOut))
		figures, err := r.Evaluate(ctx, r.HeldOut, bar.Add)
		bar.Done()
		if err != nil {
			return fmt.Errorf("evaluation after step %d: %w", step, err)
		}
		maps.Copy(values, figures)
	}
	if err := r.Metrics.Write(int64(step), values); err != nil {
		return err
	}
	r.Done = step
	r.Log.Info("step done", zap.Int("step", step), zap.Float64("nll", values[metrics.LossNLL]))
	if evaluates || step == 1 || step == r.Steps || step%max(1, r.Steps/linesPerRun) == 0 {
		r.Line(summary(step, r.Steps, values))
	}
	if text := r.Micro.News(); text != "" {
		r.Log.Warn(text, zap.Int("step", step))
		r.Line("warning: " + text)
	}
	if r.Counters.NonfiniteSteps > r.skipped {
		r.skipped = r.Counters.NonfiniteSteps
		r.Log.Warn("step skipped", zap.Int("step", step))
		r.Line(fmt.Sprintf("warning: step %d: loss or gradient was not finite: the optimiser step was skipped", step))
	}
	return nil
}

// summary is a step in one line; what was not measured is left out.
func summary(step, steps int, values map[string]float64) string {
	line := fmt.Sprintf("step %d/%d", step, steps)
	for _, shown := range []struct{ label, form, name string }{
		{"loss", "%.4f", metrics.LossNLL},
		{"evaluation", "%.4f", metrics.Eval("nll")},
		{"grad", "%.3g", metrics.LossGradNorm},
		{"rate", "%.3g", metrics.LossLearningRate},
	} {
		if value, measured := values[shown.name]; measured && !math.IsNaN(value) {
			line += "  " + shown.label + " " + fmt.Sprintf(shown.form, value)
		}
	}
	return line + "  " + time.Duration(values[metrics.Time("step")]*float64(time.Second)).Round(time.Millisecond).String()
}
