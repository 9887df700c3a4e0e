package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/loop"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// Run is a whole training run: steps, and what they leave in the run folder.
type Run struct {
	*Trainer
	loop.Job
	Sampler *dataset.Sampler // draws; the job's cursor

	QuestionsPerStep  int
	MaxFailedSteps    int
	CheckpointBestKey string // metric whose best checkpoint stays; "" is none

	// Evaluate measures the model as it is after a step; its figures join the metrics of the step. It
	// runs every EvaluateEvery steps and after the last one. Nil is never.
	Evaluate      func(ctx context.Context, step int) (map[string]float64, error)
	EvaluateEvery int

	quiet   quietMemory
	skipped int64 // optimiser steps that were warned of
}

// Continue takes up where a checkpoint left off; the weights are restored by checkpoint.Restore.
func (r *Run) Continue(record checkpoint.Record) error {
	if err := r.Resume(record); err != nil {
		return err
	}
	r.Counters.restore(record.Counters)
	r.skipped = r.Counters.NonfiniteSteps
	return nil
}

// Loop trains until all steps are done or stop is closed, as loop.Job.Loop does.
func (r *Run) Loop(ctx context.Context, stop <-chan struct{}) error {
	return r.Job.Loop(ctx, stop, r.step, r.Counters.record)
}

// step tries to train the next step. A try that failures leave nothing to train on does not count:
// the next one has the same number and new questions.
func (r *Run) step(ctx context.Context) error {
	result, err := r.try(ctx)
	var nothing *ErrNothingValid
	var nonfinite *optim.NonfiniteError
	switch {
	case err == nil:
		r.Counters.FailedStepsInRow = 0
		return r.keep(ctx, result)
	case errors.As(err, &nothing):
		return r.failed(nothing)
	case errors.As(err, &nonfinite):
		return errors.Join(err, rundir.WriteTrajectories(r.Dir, int64(r.Done+1), result.Records))
	}
	return err
}

// failed counts a try that failures left nothing to train on, and ends a run with too many in a row.
func (r *Run) failed(nothing *ErrNothingValid) error {
	r.Counters.FailedStepsInRow++
	r.Log.Warn("step failed", zap.Int("step", r.Done+1), zap.Int64("in_a_row", r.Counters.FailedStepsInRow), zap.String("detail", nothing.Detail))
	r.Line(fmt.Sprintf("step %d does not count: %v", r.Done+1, nothing))
	if r.Counters.FailedStepsInRow < int64(r.MaxFailedSteps) {
		return nil
	}
	return fault.Environment(fmt.Errorf("%d steps in a row that failures left nothing to train on (tools.max_failed_steps): %s", r.Counters.FailedStepsInRow, nothing.Detail))
}

func (r *Run) try(ctx context.Context) (*Result, error) {
	drawn := r.Sampler.Next(r.QuestionsPerStep)
	questions := make([]rollout.Drawn, len(drawn))
	ids := make([]string, len(drawn))
	for k, question := range drawn {
		questions[k] = rollout.Drawn{Question: question, Draw: k}
		ids[k] = question.ID
	}
	r.Log.Info("step begins", zap.Int("step", r.Done+1), zap.Strings("questions", ids))
	return r.Step(ctx, r.Done+1, questions)
}

// keep writes what a step leaves behind, with the figures of the evaluation that is due.
func (r *Run) keep(ctx context.Context, result *Result) error {
	step := r.Done + 1
	if err := rundir.WriteTrajectories(r.Dir, int64(step), result.Records); err != nil {
		return err
	}
	if r.Evaluate != nil && (step%r.EvaluateEvery == 0 || step == r.Steps) {
		figures, err := r.Evaluate(ctx, step)
		if err != nil {
			return fmt.Errorf("evaluation after step %d: %w", step, err)
		}
		maps.Copy(result.Metrics, figures)
	}
	if err := r.Metrics.Write(int64(step), result.Metrics); err != nil {
		return err
	}
	r.Done = step
	r.warn(step, result)
	r.Log.Info("step done", zap.Int("step", step), zap.Float64("seconds", result.Metrics[metrics.Time("step")]), zap.Float64("score", result.Metrics[metrics.ScoreTotal]))
	r.Line(summary(step, r.Steps, result.Metrics))
	value, known := result.Metrics[r.CheckpointBestKey]
	measured := known && !math.IsNaN(value) && !math.IsInf(value, 0)
	if measured && (r.Best == nil || r.Best.Metric != r.CheckpointBestKey || value > r.Best.Value) {
		r.Best = &checkpoint.Best{Metric: r.CheckpointBestKey, Value: value, Step: int64(step)}
		return r.Checkpoint(r.Counters.record)
	}
	return nil
}

// summary is a step in one line; what was not measured is left out.
func summary(step, steps int, m map[string]float64) string {
	line := fmt.Sprintf("step %d/%d", step, steps)
	for _, shown := range []struct{ label, form, name string }{
		{"score", "%.3f", metrics.ScoreTotal},
		{"em", "%.3f", metrics.ScoreEM},
		{"format", "%.2f", metrics.ScoreFormat},
		{"memory", "%+.3f", metrics.MemoryReward},
		{"kl", "%.2g", metrics.LossKL},
		{"clip", "%.3f", metrics.LossClipFraction},
		{"entropy", "%.2f", metrics.LossEntropy},
		{"grad", "%.3g", metrics.LossGradNorm},
		{"eval em", "%.3f", metrics.Eval("em")},
	} {
		if value, known := m[shown.name]; known && !math.IsNaN(value) {
			line += "  " + shown.label + " " + fmt.Sprintf(shown.form, value)
		}
	}
	return line + "  " + time.Duration(m[metrics.Time("step")]*float64(time.Second)).Round(100*time.Millisecond).String()
}
