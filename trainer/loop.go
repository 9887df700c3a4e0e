package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// Run is a whole training run: steps, and what they leave in the run folder.
type Run struct {
	*Trainer
	State    model.State // the actor's weights and moments
	Sampler  *dataset.Sampler
	Dir      *rundir.Dir
	Metrics  *metrics.Writer
	Source   *checkpoint.Source // the model folder that the run started from
	Identity checkpoint.Identity
	Config   string // the resolved config.toml
	Log      *zap.Logger
	Line     func(string) // shows one line that stays

	Steps             int // to train in all
	QuestionsPerStep  int
	MaxFailedSteps    int
	CheckpointEvery   int
	CheckpointKeep    int
	CheckpointBestKey string // metric whose best checkpoint stays; "" is none

	// Evaluate measures the model as it is after a step; its figures join the metrics of the step. It
	// runs every EvaluateEvery steps and after the last one. Nil is never.
	Evaluate      func(ctx context.Context, step int) (map[string]float64, error)
	EvaluateEvery int

	done    int // steps trained
	saved   int // step of the newest checkpoint
	best    *checkpoint.Best
	quiet   quietMemory
	skipped int64 // optimiser steps that were warned of
}

// Continue takes up where a checkpoint left off; the weights are restored by checkpoint.Restore.
func (r *Run) Continue(record checkpoint.Record) error {
	var position dataset.SamplerState
	if err := json.Unmarshal(record.Sampler, &position); err != nil {
		return fault.Usage(fmt.Errorf("the checkpoint of step %d has no position in the questions: %w", record.Step, err))
	}
	if err := r.Sampler.Restore(position); err != nil {
		return fault.Usage(err)
	}
	r.done, r.saved, r.best = int(record.Step), int(record.Step), record.Best
	r.Counters = Counters{
		OptimizerSteps: record.Counters["optimizer_steps"], NonfiniteSteps: record.Counters["nonfinite_steps"],
		NonfiniteInARow: record.Counters["nonfinite_in_a_row"], FailedStepsInRow: record.Counters["failed_steps_in_row"],
	}
	r.skipped = r.Counters.NonfiniteSteps
	return nil
}

// Loop trains until all steps are done or stop is closed: the step under way is then finished and
// a checkpoint written. The end of ctx drops the step under way.
func (r *Run) Loop(ctx context.Context, stop <-chan struct{}) error {
	for r.done < r.Steps {
		select {
		case <-stop:
			r.Line(fmt.Sprintf("stopped after step %d; the same command goes on from there", r.done))
			return r.checkpoint()
		default:
		}
		if err := r.step(ctx); err != nil {
			return err
		}
		if r.done%r.CheckpointEvery == 0 {
			if err := r.checkpoint(); err != nil {
				return err
			}
		}
	}
	return r.checkpoint()
}

// step tries to train the next step. A try in which every trajectory failed does not count: the
// next one has the same number and new questions.
func (r *Run) step(ctx context.Context) error {
	result, err := r.try(ctx)
	var nothing *ErrNothingValid
	var nonfinite *NonfiniteError
	switch {
	case err == nil:
		r.Counters.FailedStepsInRow = 0
		return r.keep(ctx, result)
	case errors.As(err, &nothing):
		return r.failed(nothing)
	case errors.As(err, &nonfinite):
		return errors.Join(err, rundir.WriteTrajectories(r.Dir, int64(r.done+1), result.Records))
	case errors.Is(err, model.ErrOutOfMemory):
		return fault.Environment(fmt.Errorf("step %d: %w; a smaller optimizer.micro_batch_tokens needs less", r.done+1, err))
	}
	return err
}

// failed counts a try without a valid trajectory, and ends a run with too many in a row.
func (r *Run) failed(nothing *ErrNothingValid) error {
	r.Counters.FailedStepsInRow++
	r.Log.Warn("step failed", zap.Int("step", r.done+1), zap.Int64("in_a_row", r.Counters.FailedStepsInRow), zap.String("detail", nothing.Detail))
	r.Line(fmt.Sprintf("step %d does not count: %v", r.done+1, nothing))
	if r.Counters.FailedStepsInRow < int64(r.MaxFailedSteps) {
		return nil
	}
	return fault.Environment(fmt.Errorf("%d steps in a row without a valid trajectory (tools.max_failed_steps): %s", r.Counters.FailedStepsInRow, nothing.Detail))
}

func (r *Run) try(ctx context.Context) (*Result, error) {
	drawn := r.Sampler.Next(r.QuestionsPerStep)
	questions := make([]rollout.Drawn, len(drawn))
	ids := make([]string, len(drawn))
	for k, question := range drawn {
		questions[k] = rollout.Drawn{Question: question, Draw: k}
		ids[k] = question.ID
	}
	r.Log.Info("step begins", zap.Int("step", r.done+1), zap.Strings("questions", ids))
	return r.Step(ctx, r.done+1, questions)
}

// keep writes what a step leaves behind, with the figures of the evaluation that is due.
func (r *Run) keep(ctx context.Context, result *Result) error {
	step := r.done + 1
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
	r.done = step
	r.warn(step, result)
	r.Log.Info("step done", zap.Int("step", step), zap.Float64("seconds", result.Metrics[metrics.Time("step")]), zap.Float64("score", result.Metrics[metrics.ScoreTotal]))
	r.Line(summary(step, r.Steps, result.Metrics))
	value, known := result.Metrics[r.CheckpointBestKey]
	measured := known && !math.IsNaN(value) && !math.IsInf(value, 0)
	if measured && (r.best == nil || r.best.Metric != r.CheckpointBestKey || value > r.best.Value) {
		r.best = &checkpoint.Best{Metric: r.CheckpointBestKey, Value: value, Step: int64(step)}
		return r.checkpoint()
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

// checkpoint saves the step that was done last, unless it is saved already.
func (r *Run) checkpoint() error {
	if r.done == r.saved {
		return nil
	}
	position, err := json.Marshal(r.Sampler.State())
	if err != nil {
		return err
	}
	path, err := checkpoint.Save(r.Dir.Path(), r.Source, r.State, checkpoint.Record{
		Step: int64(r.done), Sampler: position, Best: r.best, Identity: r.Identity, Config: r.Config,
		Counters: map[string]int64{
			"optimizer_steps": r.Counters.OptimizerSteps, "nonfinite_steps": r.Counters.NonfiniteSteps,
			"nonfinite_in_a_row": r.Counters.NonfiniteInARow, "failed_steps_in_row": r.Counters.FailedStepsInRow,
		},
	})
	if err != nil {
		return err
	}
	r.saved = r.done
	r.Log.Info("checkpoint", zap.Int("step", r.done), zap.String("path", path))
	r.Line("checkpoint " + path)
	return checkpoint.Prune(r.Dir.Path(), r.CheckpointKeep)
}
