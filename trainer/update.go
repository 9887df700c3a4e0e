package trainer

import (
	"context"
	"slices"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

// Losses sums up the optimiser steps of one step.
type Losses struct {
	model.LossStats         // sums over mini-batches
	Minibatches     int     // optimiser steps tried
	GradNorm        float64 // mean over those taken; 0 if none was tried, NaN if all were skipped
	LearningRate    float64
}

// update runs the mini-batches: gradients of all micro-batches, then one optimiser step. After an
// error the optimiser steps before it stand, and are counted.
func (t *Trainer) update(ctx context.Context, step int, plan *Plan, scores *ResponseScores, clock *clock) (*Losses, error) {
	defer clock.start(stageUpdate)()
	losses := &Losses{LearningRate: t.Update.LearningRate(step)}
	add, done := t.stage(stageUpdate, len(plan.trained())*len(plan.epochs))
	defer done()
	taken := 0
	for _, epoch := range plan.epochs {
		for _, mini := range epoch {
			stats, updated, err := t.optimizerStep(ctx, plan, mini, scores, losses.LearningRate, add)
			if err != nil {
				return nil, err
			}
			losses.Add(stats)
			clock.tokens(stageUpdate, int(stats.Computed))
			losses.Minibatches++
			if !updated.Skipped {
				losses.GradNorm += updated.GradNorm
				taken++
			}
			if err := t.Counters.Count(step, updated, t.Update.MaxNonfinite); err != nil {
				return nil, err
			}
		}
	}
	if losses.Minibatches > 0 {
		losses.GradNorm /= float64(taken)
	}
	return losses, nil
}

func (t *Trainer) optimizerStep(ctx context.Context, plan *Plan, mini minibatch, scores *ResponseScores, rate float64, add func(int)) (model.LossStats, model.UpdateStats, error) {
	weights, err := t.tokenWeights(plan, mini)
	if err != nil {
		return model.LossStats{}, model.UpdateStats{}, err
	}
	rows := make([]model.TrainRow, len(mini))
	for k, row := range mini {
		r := plan.rows[row]
		rows[k] = model.TrainRow{
			IDs: r.ids, Positions: r.positions, OldLogProbs: scores.Old[row], RefLogProbs: scores.Ref[row],
			Advantages: plan.advantages[row], Weights: weights[row],
		}
	}
	return t.micro.Step(ctx, t.actor, rows, rate, optim.Options{Loss: t.Update.Loss, Optimizer: t.Update.Optimizer}, add)
}

// tokenWeights spreads the aggregation's normaliser, that of the whole mini-batch, over its tokens.
// Means over sequences are means over trajectories: all rows of one have the same weight.
func (t *Trainer) tokenWeights(plan *Plan, mini minibatch) (map[int][]float32, error) {
	type trajectory struct{ group, member int }
	place := map[trajectory]int{}
	var counts []int
	for _, row := range mini {
		r := plan.rows[row]
		of := trajectory{r.group, r.member}
		if _, known := place[of]; !known {
			place[of] = len(counts)
			counts = append(counts, 0)
		}
		counts[place[of]] += len(r.positions)
	}
	perToken, err := batch.Weights(t.Update.Aggregation, t.Update.Divisor, counts)
	if err != nil {
		return nil, err
	}
	weights := map[int][]float32{}
	for _, row := range mini {
		r := plan.rows[row]
		weight := float32(perToken[place[trajectory{r.group, r.member}]])
		weights[row] = slices.Repeat([]float32{weight}, len(r.positions))
	}
	return weights, nil
}
