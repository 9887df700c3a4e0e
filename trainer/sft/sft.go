// Package sft trains a model on demonstrations: the loss is the negative log-likelihood of the
// tokens to learn, its mean over those of a step.
package sft

import (
	"context"
	"math"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

// Learner is the model that is trained.
type Learner interface {
	model.Scorer
	model.Learner
	model.Memory
}

// Options are the constants of a run's steps.
type Options struct {
	Optimizer    model.OptimizerOptions
	LearningRate func(step int) float64 // steps count from 1
	Micro        optim.MicroBatches     // a longer lesson has one to itself
	MaxNonfinite int                    // skipped steps in a row that end the run
}

// The stages of a step, as they occur in metric names.
const (
	stageUpdate     = "update"
	stageEvaluation = "eval"
)

// temperature leaves the model's own distribution as it is.
const temperature = 1

// Trainer takes steps. It is not safe for concurrent use.
type Trainer struct {
	Options
	Learner  Learner
	Counters optim.Counters
}

// Step trains on the lessons of a step, counted from 1, and returns its metrics. Lessons are packed
// in their order, without padding, into as few micro-batches as the bound allows; how they are cut
// changes nothing but rounding. Too many steps in a row whose loss or gradient is not finite are an
// *optim.NonfiniteError.
func (t *Trainer) Step(ctx context.Context, step int, lessons []chat.Lesson) (map[string]float64, error) {
	begun := time.Now()
	if err := t.Learner.ResetPeak(); err != nil {
		return nil, err
	}
	_, learned := count(lessons)
	weight := 1 / float32(learned)
	rows := make([]model.TrainRow, len(lessons))
	for k, lesson := range lessons {
		rows[k] = model.TrainRow{IDs: lesson.IDs, Positions: lesson.Positions, Weights: equal(weight, len(lesson.Positions))}
	}
	rate := t.LearningRate(step)
	loss, updated, err := t.Micro.Step(ctx, t.Learner, rows, rate, optim.Options{
		Loss: model.LossOptions{Kind: model.NegativeLogLikelihood, Temperature: temperature}, Optimizer: t.Optimizer,
	}, func(int) {})
	if err != nil {
		return nil, err
	}
	if err := t.Counters.Count(step, updated, t.MaxNonfinite); err != nil {
		return nil, err
	}
	usage, err := t.Learner.MemoryUsage()
	if err != nil {
		return nil, err
	}
	seconds := time.Since(begun).Seconds()
	norm := updated.GradNorm
	if updated.Skipped {
		norm = math.NaN()
	}
	return map[string]float64{
		metrics.LossNLL: loss.NegativeLogLikelihood, metrics.LossGradNorm: norm, metrics.LossLearningRate: rate,
		metrics.TrainOptimizerSteps: float64(t.Counters.OptimizerSteps), metrics.TrainNonfiniteSteps: float64(t.Counters.NonfiniteSteps),
		metrics.Time(stageUpdate): seconds, metrics.Time("step"): seconds,
		metrics.Tokens(stageUpdate): loss.Computed, metrics.Tokens("learned"): float64(learned),
		metrics.MemoryBytesPeak: float64(usage.Peak),
	}, nil
}

// Evaluate measures the mean negative log-likelihood of the tokens of lessons, in nats, without
// learning from them; done hears of lessons that were measured.
func (t *Trainer) Evaluate(ctx context.Context, lessons []chat.Lesson, done func(n int)) (map[string]float64, error) {
	begun := time.Now()
	sum := 0.0
	for _, part := range t.split(lessons) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var rows []model.ScoreRow
		for _, lesson := range lessons[part.Start:part.End] {
			rows = append(rows, model.ScoreRow{IDs: lesson.IDs, Positions: lesson.Positions})
		}
		scores, err := optim.Score(t.Learner, rows, temperature)
		if err != nil {
			return nil, err
		}
		for _, row := range scores {
			for _, logProb := range row.LogProbs {
				sum -= float64(logProb)
			}
		}
		done(len(rows))
	}
	processed, learned := count(lessons)
	return map[string]float64{
		metrics.Eval("nll"): sum / float64(learned), metrics.Time(stageEvaluation): time.Since(begun).Seconds(),
		metrics.Tokens(stageEvaluation): float64(processed),
	}, nil
}

// split cuts lessons into micro-batches.
func (t *Trainer) split(lessons []chat.Lesson) []batch.Part {
	lengths := make([]int, len(lessons))
	for k, lesson := range lessons {
		lengths[k] = len(lesson.IDs)
	}
	return batch.Split(lengths, t.Micro.Tokens)
}

// count adds up tokens: all, and those to learn.
func count(lessons []chat.Lesson) (processed, learned int) {
	for _, lesson := range lessons {
		processed += len(lesson.IDs)
		learned += len(lesson.Positions)
	}
	return processed, learned
}

func equal(value float32, n int) []float32 {
	values := make([]float32, n)
	for k := range values {
		values[k] = value
	}
	return values
}
