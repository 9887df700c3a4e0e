// Package loop is what every training job has, whatever a step of it is: a run folder, checkpoints
// at a cadence, and an end in good order.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// Cursor is where a run is in its training data: a dataset.Order or dataset.Sampler.
type Cursor interface {
	State() dataset.OrderState
	Restore(dataset.OrderState) error // a position in other data is an error
}

// Job is a run of steps. It is not safe for concurrent use.
type Job struct {
	State    model.State // weights and moments
	Dir      *rundir.Dir
	Metrics  *metrics.Writer
	Source   *checkpoint.Source // the model folder that the run started from
	Identity checkpoint.Identity
	Cursor   Cursor // in which the training data are drawn
	Config   string // the resolved config.toml
	Log      *zap.Logger
	Line     func(string) // shows one line that stays

	Steps           int // to train in all
	CheckpointEvery int
	CheckpointKeep  int

	Done  int              // steps trained
	Best  *checkpoint.Best // nil before the first evaluation
	saved int              // step of the newest checkpoint
}

// Resume goes to where a checkpoint left off; the weights are restored by checkpoint.Restore. A
// position that is none in the data is a usage fault.
func (j *Job) Resume(record checkpoint.Record) error {
	var position dataset.OrderState
	if err := json.Unmarshal(record.Sampler, &position); err != nil {
		return fault.Usage(fmt.Errorf("the checkpoint of step %d has no position in the training data: %w", record.Step, err))
	}
	if err := j.Cursor.Restore(position); err != nil {
		return fault.Usage(err)
	}
	j.Done, j.saved, j.Best = int(record.Step), int(record.Step), record.Best
	return nil
}

// needsLess tells what to change where a step finds no memory.
const needsLess = `a smaller optimizer.micro_batch_tokens or shorter rows need less memory, and so do model.activation_checkpointing = "layer", lora.rank above 0 and, on a GPU, model.optimizer_offload = "cpu"`

// Loop takes steps until all are done or stop is closed: the step under way is then finished and a
// checkpoint written. The end of ctx drops the step under way. step takes one and, unless it does
// not count, raises Done; counters are what the job keeps in a checkpoint beside what a Job knows.
func (j *Job) Loop(ctx context.Context, stop <-chan struct{}, step func(context.Context) error, counters func() map[string]int64) error {
	for j.Done < j.Steps {
		select {
		case <-stop:
			j.Line(fmt.Sprintf("stopped after step %d; the same command goes on from there", j.Done))
			return j.Checkpoint(counters)
		default:
		}
		if err := step(ctx); errors.Is(err, model.ErrOutOfMemory) {
			return fault.Environment(fmt.Errorf("step %d: %w; %s", j.Done+1, err, needsLess))
		} else if err != nil {
			return err
		}
		if j.Done%j.CheckpointEvery == 0 {
			if err := j.Checkpoint(counters); err != nil {
				return err
			}
		}
	}
	return j.Checkpoint(counters)
}

// Checkpoint saves the step that was done last, unless it is saved already, and removes old ones.
func (j *Job) Checkpoint(counters func() map[string]int64) error {
	if j.Done == j.saved {
		return nil
	}
	position, err := json.Marshal(j.Cursor.State())
	if err != nil {
		return err
	}
	path, err := checkpoint.Save(j.Dir.Path(), j.Source, j.State, checkpoint.Record{
		Step: int64(j.Done), Sampler: position, Counters: counters(), Best: j.Best, Identity: j.Identity, Config: j.Config,
	})
	if err != nil {
		return err
	}
	j.saved = j.Done
	j.Log.Info("checkpoint", zap.Int("step", j.Done), zap.String("path", path))
	j.Line("checkpoint " + path)
	return checkpoint.Prune(j.Dir.Path(), j.CheckpointKeep)
}
