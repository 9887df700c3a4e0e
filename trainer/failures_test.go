package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

// serviceDown fails the first calls of a run, and then works.
func serviceDown(calls int) searchFunc {
	return func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if calls--; calls >= 0 {
			return failFor("")(ctx, query)
		}
		return echo(ctx, query)
	}
}

func twoTurns(key rollout.SeedKey) string {
	if key.Turn == 0 {
		return searches("m", "x")
	}
	return answers(strings.Repeat("m", key.Member+1), map[bool]string{true: strings.ToUpper(key.Question), false: "no"}[key.Member == 0])
}

func TestAFailedStepIsTriedWithNewQuestions(t *testing.T) {
	t.Parallel()
	o := toyOptions(3)
	o.Tools.Concurrency = 1
	o.Tools.Search = serviceDown(12) // the six of two tries
	dir := t.TempDir()
	j := newJob(t, dir, o, twoTurns, nil)
	j.onLine = func(line string) {
		if strings.Contains(line, "does not count") && j.Counters.FailedStepsInRow == 0 {
			t.Error("a failed step is not counted")
		}
	}
	j.mustLoop(t)
	tries := j.questions()
	if len(tries) != 7 || !strings.HasPrefix(tries[0], "1 [") || !strings.HasPrefix(tries[2], "1 [") || !strings.HasPrefix(tries[3], "2 [") {
		t.Errorf("tries %q, want three of step 1", tries)
	}
	if tries[0] == tries[1] {
		t.Errorf("the second try has the questions of the first: %q", tries)
	}
	if j.Counters.FailedStepsInRow != 0 || j.Counters.OptimizerSteps != 5 {
		t.Errorf("counters %+v", j.Counters)
	}
	if steps, _ := series(t, dir, "score/total"); !slices.Equal(steps, []int{1, 2, 3, 4, 5}) {
		t.Errorf("metrics of steps %v", steps)
	}
	if failed := j.logs.FilterMessage("step failed").Len(); failed != 2 {
		t.Errorf("%d failed steps in the log", failed)
	}
}

// A run that is asked to stop does not try a failed step again.
func TestAFailedStepDoesNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	o := toyOptions(3)
	o.Tools.Concurrency = 1
	calls := 0
	dir := t.TempDir()
	j := newJob(t, dir, o, twoTurns, nil)
	j.Tools.Search = searchFunc(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if calls++; calls <= 6 { // of the first step
			return echo(ctx, query)
		}
		if calls == 7 {
			close(j.stop)
		}
		return failFor("")(ctx, query)
	})
	j.mustLoop(t)
	if tries := j.questions(); len(tries) != 2 || !slices.Equal(saved(t, dir), []int64{1}) {
		t.Errorf("tries %q, checkpoints of %v", tries, saved(t, dir))
	}
	// The failure still counts after resuming, and the questions are new ones.
	resumed := newJob(t, dir, o, twoTurns, nil)
	if resumed.Counters.FailedStepsInRow != 1 {
		t.Errorf("counters %+v", resumed.Counters)
	}
	if tries := resumed.mustLoop(t).questions(); len(tries) != 4 || slices.Contains(j.questions(), tries[0]) || resumed.Counters.FailedStepsInRow != 0 {
		t.Errorf("tries %q after %q", tries, j.questions())
	}
}

func TestTooManyFailedStepsInARowEndTheRun(t *testing.T) {
	t.Parallel()
	o := toyOptions(3)
	o.Tools.Concurrency = 1
	calls := 0
	o.Tools.Search = searchFunc(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if calls++; calls > 6 { // of the first step
			return failFor("")(ctx, query)
		}
		return echo(ctx, query)
	})
	dir := t.TempDir()
	j := newJob(t, dir, o, twoTurns, func(j *job) { j.CheckpointEvery = 1 })
	err := j.loop(t)
	if fault.Code(err) != fault.CodeEnvironment || !strings.Contains(err.Error(), "search service http://search.test/retrieve") || !strings.Contains(err.Error(), "tools.max_failed_steps") {
		t.Errorf("exit code %d: %v", fault.Code(err), err)
	}
	if tries := j.questions(); len(tries) != 4 || !strings.HasPrefix(tries[3], "2 [") {
		t.Errorf("tries %q, want one of step 1 and three of step 2", tries)
	}
	if got := saved(t, dir); !slices.Equal(got, []int64{1}) {
		t.Errorf("checkpoints of %v, want that of step 1", got)
	}
}

func TestOneNonfiniteGradientInARun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := newJob(t, dir, toyOptions(3), mixed, func(j *job) { j.CheckpointEvery, j.CheckpointKeep = 1, 10 })
	j.actor.poison = func(update int) bool { return update == 3 }
	j.mustLoop(t)
	state := func(step int) []byte {
		var all []byte
		for _, kind := range []string{"master", "exp_avg", "exp_avg_sq"} {
			data, err := os.ReadFile(filepath.Join(dir, "checkpoints", fmt.Sprintf("step_%06d", step), "trainer_state", kind+".safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
		return all
	}
	if !bytes.Equal(state(2), state(3)) || bytes.Equal(state(3), state(4)) || bytes.Equal(state(1), state(2)) {
		t.Error("weights and moments after step 3 are not those before it")
	}
	if _, values := series(t, dir, metrics.TrainNonfiniteSteps); !slices.Equal(values, []float64{0, 0, 1, 1, 1}) {
		t.Errorf("skipped steps count %v", values)
	}
	if _, values := series(t, dir, metrics.TrainOptimizerSteps); !slices.Equal(values, []float64{1, 2, 2, 3, 4}) {
		t.Errorf("optimiser steps count %v", values)
	}
	if warned := j.warnings(); len(warned) != 1 || !strings.Contains(warned[0], j.Dir.TrajectoriesPath(3)) {
		t.Errorf("warnings %q, want one that names the batch of step 3", warned)
	}
	resumed := newJob(t, dir, toyOptions(3), mixed, func(j *job) { j.Steps = 6 }).mustLoop(t)
	if warned := resumed.warnings(); len(warned) != 0 || resumed.Counters.NonfiniteSteps != 1 {
		t.Errorf("resumed, it warns again: %q", warned)
	}
}

func TestNonfiniteGradientsForEverEndTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := newJob(t, dir, toyOptions(3), mixed, func(j *job) { j.Steps, j.CheckpointEvery = 20, 1 })
	j.actor.poison = func(update int) bool { return update >= 6 }
	err := j.loop(t)
	var nonfinite *optim.NonfiniteError
	if !errors.As(err, &nonfinite) || nonfinite.Step != 8 || fault.Code(err) != fault.CodeOther || strings.Contains(err.Error(), "\n") {
		t.Fatalf("exit code %d: %v", fault.Code(err), err)
	}
	if got := saved(t, dir); !slices.Equal(got, []int64{6, 7}) {
		t.Errorf("checkpoints of %v", got)
	}
	folder, err := weights.Open(filepath.Join(dir, "checkpoints", "step_000007"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, tensor := range folder.Tensors() {
		values, err := tensor.Float32()
		if err != nil || slices.ContainsFunc(values, func(v float32) bool { return !weights.Finite(v) }) {
			t.Errorf("%s of the last checkpoint is not finite, %v", tensor.Name, err)
		}
	}
	if data, err := os.ReadFile(j.Dir.TrajectoriesPath(8)); err != nil || bytes.Count(data, []byte("\n")) != 6 {
		t.Errorf("the batch that ended the run is not there to look at: %v", err)
	}
	// The same once more from the checkpoint: the count in a row goes on.
	resumed := newJob(t, dir, toyOptions(3), mixed, func(j *job) { j.Steps = 20 })
	resumed.actor.poison = func(int) bool { return true }
	if err := resumed.loop(t); !errors.As(err, &nonfinite) || nonfinite.Step != 8 || resumed.Counters.NonfiniteSteps != 3 {
		t.Errorf("resumed: %v, counters %+v", err, resumed.Counters)
	}
}

func TestOutOfMemoryIsTheMachinesFault(t *testing.T) {
	t.Parallel()
	j := newJob(t, t.TempDir(), toyOptions(3), mixed, func(j *job) {
		j.actor.onForward = func(int) error { return fmt.Errorf("12 GB wanted: %w", model.ErrOutOfMemory) }
	})
	err := j.loop(t)
	if fault.Code(err) != fault.CodeEnvironment || j.actor.drops != 2 {
		t.Errorf("exit code %d, %d gradients dropped: %v", fault.Code(err), j.actor.drops, err)
	}
	for _, named := range []string{"12 GB", "at a second try of", "optimizer.micro_batch_tokens", "model.activation_checkpointing", "model.optimizer_offload", "lora.rank"} {
		if !strings.Contains(err.Error(), named) {
			t.Errorf("%q is not named: %v", named, err)
		}
	}
}

// A mini-batch that the device has no room for is tried again in halves, and gives the same step; the steps behind it
// begin with halves.
func TestAMiniBatchWithoutRoomIsTriedAgain(t *testing.T) {
	t.Parallel()
	o := toyOptions(4)
	o.Update.QuestionsPerMinibatch, o.Update.MicroBatchTokens = 1, 100000
	free := newJob(t, t.TempDir(), o, mixed, func(j *job) { j.Steps = 2 })
	tight := newJob(t, t.TempDir(), o, mixed, func(j *job) { j.Steps = 2 })
	refused := 0
	tight.actor.onForward = func(call int) error {
		if len(tight.actor.micro[call-1]) > 3 {
			refused++
			return model.ErrOutOfMemory
		}
		return nil
	}
	if err := errors.Join(free.loop(t), tight.loop(t)); err != nil {
		t.Fatal(err)
	}
	if refused != 1 || tight.actor.drops != 1 || len(tight.actor.gradients) != len(free.actor.gradients) {
		t.Errorf("%d micro-batches refused, %d gradients dropped, %d updates of %d", refused, tight.actor.drops, len(tight.actor.gradients), len(free.actor.gradients))
	}
	for update, want := range free.actor.gradients {
		for id, g := range tight.actor.gradients[update] {
			if math.Abs(g-want[id]) > 1e-6 {
				t.Errorf("update %d: the gradient of token %d is %v, want %v", update, id, g, want[id])
			}
		}
	}
	warnings := 0
	for _, line := range tight.lines {
		if strings.Contains(line, "the device had no room for the micro-batches") && strings.Contains(line, fmt.Sprint(tight.micro.Tokens)) {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("told %d times: %q", warnings, tight.lines)
	}
}

// So is scoring of whole rows.
func TestScoringWithoutRoomIsTriedAgain(t *testing.T) {
	o := toyOptions(4)
	o.Scoring.Form, o.Update.MicroBatchTokens = FormNaive, 100000
	free, calm := newToyTrainer(t, o, mixed)
	tight, actor := newToyTrainer(t, o, mixed)
	actor.onScore = func() error {
		if len(actor.calls) == 1 {
			return fmt.Errorf("%w for %d rows", model.ErrOutOfMemory, len(actor.calls[0].rows))
		}
		return nil
	}
	want, got := step(t, free, calm, "a").Metrics, step(t, tight, actor, "a").Metrics
	if len(actor.calls) < len(calm.calls)+2 {
		t.Errorf("%d passes, %d where there is room", len(actor.calls), len(calm.calls))
	}
	for _, name := range []string{metrics.LossPolicy, metrics.MemoryReward, metrics.LossEntropy} {
		if got[name] != want[name] {
			t.Errorf("%s is %v, want %v", name, got[name], want[name])
		}
	}
}

func TestARecordWithoutAPositionIsRefused(t *testing.T) {
	t.Parallel()
	for _, sampler := range []string{`"x"`, `{"drawn":1,"size":9}`} {
		j := newJob(t, t.TempDir(), toyOptions(3), mixed, nil)
		err := j.Continue(checkpoint.Record{Step: 4, Sampler: json.RawMessage(sampler)})
		if fault.Code(err) != fault.CodeUsage || j.Done != 0 {
			t.Errorf("position %s: %v, exit code %d", sampler, err, fault.Code(err))
		}
		if err := errors.Join(j.Metrics.Close(), j.Dir.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// What cannot be written ends the run, and names the step.
func TestWhatCannotBeWrittenEndsTheRun(t *testing.T) {
	t.Parallel()
	j := newJob(t, t.TempDir(), toyOptions(3), mixed, func(j *job) { j.CheckpointEvery = 1 })
	j.actor.onUpdate = func(int) error {
		j.actor.tensors[string(model.SecondMoment)+"/"+embedding] = slices.Repeat([]float32{float32(math.Inf(1))}, width*(endID+1))
		return nil
	}
	if err := j.loop(t); err == nil || !strings.Contains(err.Error(), "step 1") {
		t.Errorf("a state that is not finite: %v", err)
	}
	j = newJob(t, t.TempDir(), toyOptions(3), mixed, nil)
	if err := os.WriteFile(filepath.Join(j.Dir.Path(), "trajectories"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := j.loop(t); err == nil || j.Done != 0 || len(j.actor.gradients) != 1 {
		t.Errorf("no folder for trajectories: %v after %d steps", err, j.Done)
	}
	j = newJob(t, t.TempDir(), toyOptions(3), mixed, nil)
	if err := j.Metrics.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Loop(context.Background(), j.stop); !errors.Is(err, os.ErrClosed) || j.Done != 0 {
		t.Errorf("no file for metrics: %v after %d steps", err, j.Done)
	}
	if err := j.Dir.Close(); err != nil {
		t.Fatal(err)
	}
}
