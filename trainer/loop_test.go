package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

func TestTheSeedDrivesTheOrderOfQuestions(t *testing.T) {
	t.Parallel()
	order := func(seed uint64) []string {
		o := toyOptions(3)
		o.Rollout.Seed = seed
		return newJob(t, t.TempDir(), o, mixed, nil).mustLoop(t).questions()
	}
	first := order(42)
	if len(first) != 5 || !strings.HasPrefix(first[0], "1 [") || !strings.HasPrefix(first[4], "5 [") {
		t.Errorf("the log names the questions as %q", first)
	}
	if again := order(42); !slices.Equal(first, again) {
		t.Errorf("two orders of one seed: %q and %q", first, again)
	}
	if other := order(43); slices.Equal(first, other) {
		t.Errorf("two seeds give the order %q", other)
	}
}

// A question that is drawn twice in a step is two groups, which write different things.
func TestAQuestionDrawnTwiceIsTwoGroups(t *testing.T) {
	t.Parallel()
	j := newJob(t, t.TempDir(), toyOptions(3), mixed, func(j *job) { j.QuestionsPerStep, j.Steps = 5, 1 }).mustLoop(t)
	data, err := os.ReadFile(j.Dir.TrajectoriesPath(1))
	if err != nil {
		t.Fatal(err)
	}
	draws := map[int]string{}
	for line := range bytes.Lines(data) {
		var record rollout.Record
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		draws[record.Draw] = record.QuestionID
	}
	if got := fmt.Sprint("1 [", draws[0], " ", draws[1], " ", draws[2], " ", draws[3], " ", draws[4], "]"); len(draws) != 5 || got != j.questions()[0] {
		t.Errorf("groups of %v, drawn were %q", draws, j.questions())
	}
}

func TestAStoppedAndResumedRunHasEveryStepOnce(t *testing.T) {
	t.Parallel()
	o := toyOptions(3)
	o.Update.QuestionsPerMinibatch = 1
	straight, broken := t.TempDir(), t.TempDir()
	whole := newJob(t, straight, o, mixed, func(j *job) { j.Steps = 10 }).mustLoop(t)
	stopped := newJob(t, broken, o, mixed, func(j *job) { j.Steps = 10; j.stopDuring(6) }).mustLoop(t)
	if steps := saved(t, broken); !slices.Equal(steps, []int64{6}) {
		t.Fatalf("stopped during step 6, saved %v", steps)
	}
	if last := stopped.lines[len(stopped.lines)-2]; !strings.Contains(last, "stopped after step 6") {
		t.Errorf("the last lines are %q", stopped.lines[len(stopped.lines)-2:])
	}
	resumed := newJob(t, broken, o, mixed, func(j *job) { j.Steps = 10 }).mustLoop(t)
	if got := append(stopped.questions(), resumed.questions()...); !slices.Equal(got, whole.questions()) {
		t.Errorf("questions %q, without a stop %q", got, whole.questions())
	}
	for _, name := range []string{"score/total", "loss/total", "memory/reward", "train/optimizer_steps", "loss/learning_rate", "tokens/update"} {
		steps, values := series(t, broken, name)
		if !slices.Equal(steps, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) || len(values) != 10 {
			t.Errorf("%s has %d values at steps %v", name, len(values), steps)
		}
		if _, want := series(t, straight, name); !slices.Equal(values, want) {
			t.Errorf("%s is %v, without a stop %v", name, values, want)
		}
		if name == "train/optimizer_steps" && !slices.Equal(values, []float64{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}) {
			t.Errorf("optimiser steps count %v", values)
		}
	}
	if !slices.Equal(whole.actor.weights, resumed.actor.weights) {
		t.Error("the weights differ from those without a stop")
	}
	for step := 1; step <= 10; step++ {
		if data, err := os.ReadFile(resumed.Dir.TrajectoriesPath(int64(step))); err != nil || bytes.Count(data, []byte("\n")) != 6 {
			t.Errorf("step %d left %d trajectories, %v", step, bytes.Count(data, []byte("\n")), err)
		}
	}
}

func TestStopBeforeTheFirstStep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := newJob(t, dir, toyOptions(3), mixed, nil)
	close(j.stop)
	j.mustLoop(t)
	if steps := saved(t, dir); len(steps) != 0 || len(j.actor.micro) != 0 {
		t.Errorf("saved %v, trained %d micro-batches", steps, len(j.actor.micro))
	}
}

// The end of the context, as on SIGTERM, drops the step: the last checkpoint stands.
func TestCancellingDropsTheStepUnderWay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	j := newJob(t, dir, toyOptions(3), mixed, func(j *job) {
		j.CheckpointEvery = 1
		j.actor.onForward = func(int) error {
			if j.Done == 2 {
				cancel()
			}
			return nil
		}
		j.Update.MicroBatchTokens = 1
	})
	err := j.Loop(ctx, j.stop)
	if !errors.Is(err, context.Canceled) || fault.Code(err) != fault.CodeOther {
		t.Errorf("got %v", err)
	}
	if closed := errors.Join(j.Metrics.Close(), j.Dir.Close()); closed != nil {
		t.Fatal(closed)
	}
	steps, _ := series(t, dir, "score/total")
	if got := saved(t, dir); !slices.Equal(got, []int64{1, 2}) || !slices.Equal(steps, []int{1, 2}) || j.actor.drops != 1 {
		t.Errorf("checkpoints %v, metrics of %v, %d gradients dropped", got, steps, j.actor.drops)
	}
	resumed := newJob(t, dir, toyOptions(3), mixed, nil).mustLoop(t)
	if first := resumed.questions()[0]; !strings.HasPrefix(first, "3 [") {
		t.Errorf("it goes on with %s", first)
	}
}

func TestCheckpointsComeAtTheirStepsAndAtTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := newJob(t, dir, toyOptions(3), mixed, func(j *job) { j.CheckpointEvery, j.CheckpointKeep = 2, 10 }).mustLoop(t)
	if steps := saved(t, dir); !slices.Equal(steps, []int64{2, 4, 5}) {
		t.Errorf("checkpoints of %v, want 2, 4 and 5", steps)
	}
	if entries := j.logs.FilterMessage("checkpoint").Len(); entries != 3 {
		t.Errorf("%d checkpoints in the log", entries)
	}
	path, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	record, err := checkpoint.ReadRecord(path)
	if err != nil || record.UpdateCount != 5 || record.Counters["optimizer_steps"] != 5 || record.Config != "[run]\n" || record.Best != nil {
		t.Errorf("record %+v, %v", record, err)
	}
	// Nothing is left to do: nothing is saved again.
	again := newJob(t, dir, toyOptions(3), mixed, nil).mustLoop(t)
	if len(again.actor.micro) != 0 || again.logs.FilterMessage("checkpoint").Len() != 0 {
		t.Error("a finished run was trained or saved again")
	}
	two := newJob(t, t.TempDir(), toyOptions(3), mixed, func(j *job) { j.CheckpointEvery, j.CheckpointKeep = 1, 2 }).mustLoop(t)
	if steps := saved(t, two.Dir.Path()); !slices.Equal(steps, []int64{4, 5}) {
		t.Errorf("keep = 2 keeps %v", steps)
	}
}

// The best checkpoint stays, across processes; a metric that was not measured is no best one.
func TestTheBestCheckpointStays(t *testing.T) {
	t.Parallel()
	o := toyOptions(3)
	right := map[int]int{1: 1, 2: 2, 3: 1, 4: 0, 5: 3, 6: 1, 7: 1} // of three, by step
	script := func(key rollout.SeedKey) string {
		return answers("m", map[bool]string{true: strings.ToUpper(key.Question), false: "no"}[key.Member < right[key.Step]])
	}
	dir := t.TempDir()
	run := func(steps int) *job {
		return newJob(t, dir, o, script, func(j *job) {
			j.Steps, j.CheckpointKeep, j.CheckpointBestKey = steps, 1, metrics.ScoreTotal
		}).mustLoop(t)
	}
	for _, test := range []struct {
		steps int
		want  []int64
	}{{3, []int64{2, 3}}, {4, []int64{2, 4}}, {7, []int64{5, 7}}} {
		j := run(test.steps)
		if got := saved(t, dir); !slices.Equal(got, test.want) {
			t.Errorf("after %d steps the checkpoints are of %v, want %v", test.steps, got, test.want)
		}
		if best := test.want[0]; j.Best.Step != best || !near(j.Best.Value, float64(right[int(best)])/3) || j.Best.Metric != "score/total" {
			t.Errorf("after %d steps the best is %+v", test.steps, *j.Best)
		}
	}
	// Another metric starts anew, though its values are smaller.
	run(8)
	j := newJob(t, dir, o, script, func(j *job) {
		j.Steps, j.CheckpointKeep, j.CheckpointBestKey = 9, 1, metrics.LossPolicy
	}).mustLoop(t)
	if j.Best.Metric != metrics.LossPolicy || j.Best.Step != 9 {
		t.Errorf("the best by another metric is %+v", *j.Best)
	}
	o.Reward.MemoryReward = "off"
	for _, name := range []string{metrics.MemoryReward, metrics.LossKL, "eval/em"} { // NaN, infinite, not there
		other := t.TempDir()
		j = newJob(t, other, o, script, func(j *job) {
			j.Steps, j.CheckpointBestKey = 2, name
			j.reference.(*toyScorer).weights['m'*width] = float32(math.Inf(1))
		}).mustLoop(t)
		if got := saved(t, other); !slices.Equal(got, []int64{2}) || j.Best != nil {
			t.Errorf("without a measure of %s the checkpoints are of %v, the best %v", name, got, j.Best)
		}
	}
}
