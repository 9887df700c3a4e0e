package optim

import (
	"fmt"

	"github.com/mempo-train/mempo-train/model"
)

// Counters run on over the whole of a run, checkpoints included.
type Counters struct {
	OptimizerSteps  int64 // taken
	NonfiniteSteps  int64 // skipped
	NonfiniteInARow int64
}

// Count notes an optimiser step of a step of the run. Too many skipped in a row are a
// *NonfiniteError.
func (c *Counters) Count(step int, updated model.UpdateStats, most int) error {
	if !updated.Skipped {
		c.OptimizerSteps++
		c.NonfiniteInARow = 0
		return nil
	}
	c.NonfiniteSteps++
	c.NonfiniteInARow++
	if c.NonfiniteInARow >= int64(most) {
		return &NonfiniteError{Step: step, InARow: c.NonfiniteInARow}
	}
	return nil
}

// The names of the counters in a checkpoint's record.
const (
	keyOptimizerSteps  = "optimizer_steps"
	keyNonfiniteSteps  = "nonfinite_steps"
	keyNonfiniteInARow = "nonfinite_in_a_row"
)

// Record lists the counters for a checkpoint.
func (c *Counters) Record() map[string]int64 {
	return map[string]int64{
		keyOptimizerSteps: c.OptimizerSteps, keyNonfiniteSteps: c.NonfiniteSteps, keyNonfiniteInARow: c.NonfiniteInARow,
	}
}

// Restore reads them back.
func (c *Counters) Restore(record map[string]int64) {
	*c = Counters{
		OptimizerSteps: record[keyOptimizerSteps], NonfiniteSteps: record[keyNonfiniteSteps], NonfiniteInARow: record[keyNonfiniteInARow],
	}
}

// NonfiniteError ends a run whose loss or gradient was not finite too often in a row.
type NonfiniteError struct {
	Step   int
	InARow int64
}

func (e *NonfiniteError) Error() string {
	return fmt.Sprintf("step %d: loss or gradient was not finite in %d optimiser steps in a row (optimizer.max_nonfinite); the weights are those of before, a lower optimizer.learning_rate may help", e.Step, e.InARow)
}
