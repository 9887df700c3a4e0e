package optim

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/batch"
)

// MicroBatches bound what goes through the model at a time. They are not safe for concurrent use.
type MicroBatches struct {
	// Tokens of one forward and backward pass; a longer row has one to itself. Where the device has no
	// room for so many they are halved, and stay so.
	Tokens int

	halved bool // and nobody was told
}

// News tells a person once of micro-batches that were halved; "" is nothing new.
func (m *MicroBatches) News() string {
	if !m.halved {
		return ""
	}
	m.halved = false
	return fmt.Sprintf("the device had no room for the micro-batches of an update, which was tried again: they have at most %d tokens from now on; optimizer.micro_batch_tokens = %d does so from the start", m.Tokens, m.Tokens)
}

// Step takes the optimiser step of a mini-batch, as Step does, in micro-batches of its rows in their order.
// Out of memory it starts again, once, with micro-batches of half the tokens of the largest, so that the
// gradient is that of the same mini-batch. done hears of rows that have gone through.
func (m *MicroBatches) Step(ctx context.Context, learner model.Learner, rows []model.TrainRow, rate float64, o Options, done func(rows int)) (model.LossStats, model.UpdateStats, error) {
	lengths := make([]int, len(rows))
	for k, row := range rows {
		lengths[k] = len(row.IDs)
	}
	told := 0
	tell := func(through int) { // a second try tells of what is new
		if through > told {
			done(through - told)
			told = through
		}
	}
	parts := batch.Split(lengths, m.Tokens)
	stats, updated, err := Step(ctx, learner, each(rows, parts, tell), rate, o)
	largest := largestOfSeveral(lengths, parts)
	if !errors.Is(err, model.ErrOutOfMemory) || largest == 0 {
		return stats, updated, err
	}
	m.Tokens, m.halved = largest/2, true
	stats, updated, err = Step(ctx, learner, each(rows, batch.Split(lengths, m.Tokens), tell), rate, o)
	if errors.Is(err, model.ErrOutOfMemory) {
		err = fmt.Errorf("%w (for micro-batches of %d tokens, and at a second try of %d)", err, largest, m.Tokens)
	}
	return stats, updated, err
}

// each gives the rows of one part after the other, and tells how many have gone through.
func each(rows []model.TrainRow, parts []batch.Part, tell func(through int)) iter.Seq[[]model.TrainRow] {
	return func(yield func([]model.TrainRow) bool) {
		for _, part := range parts {
			if !yield(rows[part.Start:part.End]) {
				return
			}
			tell(part.End)
		}
	}
}

// largestOfSeveral is the number of tokens of the largest part of several rows; 0 where every part is one
// row, which cannot be cut.
func largestOfSeveral(lengths []int, parts []batch.Part) int {
	largest := 0
	for _, part := range parts {
		if part.End-part.Start > 1 {
			largest = max(largest, sum(lengths[part.Start:part.End]))
		}
	}
	return largest
}

func sum(lengths []int) int {
	total := 0
	for _, length := range lengths {
		total += length
	}
	return total
}

// Score scores rows in one forward pass, or out of memory, once, in passes of half their tokens.
func Score(scorer model.Scorer, rows []model.ScoreRow, temperature float64) ([]model.RowScores, error) {
	scores, err := scorer.Score(rows, temperature)
	if !errors.Is(err, model.ErrOutOfMemory) || len(rows) < 2 {
		return scores, err
	}
	lengths := make([]int, len(rows))
	for k, row := range rows {
		lengths[k] = len(row.IDs)
	}
	scores = nil
	for _, part := range batch.Split(lengths, sum(lengths)/2) {
		half, err := scorer.Score(rows[part.Start:part.End], temperature)
		if err != nil {
			return nil, err
		}
		scores = append(scores, half...)
	}
	return scores, nil
}
