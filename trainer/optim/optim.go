// Package optim takes optimiser steps, whatever the loss, and counts those that had to be skipped.
package optim

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/mempo-train/mempo-train/model"
)

// Options are the constants of a step.
type Options struct {
	Loss      model.LossOptions
	Optimizer model.OptimizerOptions
}

// Step sums the gradients of the micro-batches up and takes one optimiser step at a learning rate.
// It takes none, and says so, if loss or gradient is not finite. An error, the end of ctx too,
// leaves no gradient behind.
func Step(ctx context.Context, learner model.Learner, micro iter.Seq[[]model.TrainRow], rate float64, o Options) (model.LossStats, model.UpdateStats, error) {
	var sum model.LossStats
	for rows := range micro {
		if err := ctx.Err(); err != nil {
			return sum, model.UpdateStats{}, dropped(learner, err)
		}
		stats, err := learner.ForwardBackward(rows, o.Loss)
		if err != nil {
			return sum, model.UpdateStats{}, dropped(learner, err)
		}
		sum.Add(stats)
	}
	if loss := sum.Loss(); math.IsNaN(loss) || math.IsInf(loss, 0) {
		return sum, model.UpdateStats{GradNorm: math.NaN(), Skipped: true}, learner.DropGradient()
	}
	updated, err := learner.Update(rate, o.Optimizer)
	if err != nil {
		return sum, updated, dropped(learner, err)
	}
	return sum, updated, nil
}

// dropped clears what was accumulated, so that an error leaves no half of a gradient behind.
func dropped(learner model.Learner, err error) error {
	if cleared := learner.DropGradient(); cleared != nil {
		return fmt.Errorf("%w (and the gradient could not be cleared: %w)", err, cleared)
	}
	return err
}
