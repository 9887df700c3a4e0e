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

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// job is one process of a run: two of four questions a step, of three trajectories each.
type job struct {
	*Run
	actor *toyActor
	logs  *observer.ObservedLogs
	lines []string
	stop  chan struct{}
	// onLine sees every line that is shown.
	onLine func(line string)
}

// newJob opens a run folder as the program does, and goes on from its newest checkpoint.
func newJob(t *testing.T, dir string, o Options, s script, change func(*job)) *job {
	t.Helper()
	j := &job{actor: newToyActor(t, s), stop: make(chan struct{}), onLine: func(string) {}}
	j.actor.expect(o, []string{"a", "b", "c", "d"}, 24, 5)
	trainer, err := New(j.actor, j.actor.frozen(0.1), o, Watch{})
	if err != nil {
		t.Fatal(err)
	}
	j.Run = &Run{
		Trainer: trainer, State: j.actor, Config: "[run]\n", Steps: 5, QuestionsPerStep: 2, MaxFailedSteps: 3, CheckpointEvery: 10, CheckpointKeep: 2,
		Identity: checkpoint.Identity{ModelHash: "m", TokenizerHash: "t", DataHash: "d"},
		Line:     func(line string) { j.lines = append(j.lines, line); j.onLine(line) },
	}
	folder := toyFolder(t)
	architecture, err1 := model.LoadArchitecture(folder)
	source, err2 := checkpoint.ReadSource(folder)
	sampler, err3 := dataset.NewSampler([]dataset.Question{question("a"), question("b"), question("c"), question("d")}, o.Rollout.Seed, true)
	opened, err4 := rundir.Open(dir)
	newest, err5 := checkpoint.Latest(dir)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	j.actor.parameters, j.Source, j.Sampler, j.Dir = architecture.Parameters(), source, sampler, opened
	core, logs := observer.New(zap.InfoLevel)
	j.Log, j.logs = zap.New(core), logs
	if change != nil {
		change(j)
	}
	resumed := int64(0)
	if newest != "" {
		record, err := checkpoint.Restore(newest, j.actor, j.Identity)
		if err == nil {
			err = j.Continue(record)
		}
		if err != nil {
			t.Fatal(err)
		}
		resumed = record.Step
	}
	if j.Metrics, err = metrics.Open(opened.MetricsPath(), resumed); err != nil {
		t.Fatal(err)
	}
	return j
}

// loop runs the job to its end and gives its folder up.
func (j *job) loop(t *testing.T) error {
	t.Helper()
	err := j.Loop(context.Background(), j.stop)
	if closed := errors.Join(j.Metrics.Close(), j.Dir.Close()); closed != nil {
		t.Fatal(closed)
	}
	return err
}

func (j *job) mustLoop(t *testing.T) *job {
	t.Helper()
	if err := j.loop(t); err != nil {
		t.Fatal(err)
	}
	return j
}

// questions lists what each try of a step drew, as the log has it.
func (j *job) questions() []string {
	var all []string
	for _, entry := range j.logs.FilterMessage("step begins").All() {
		all = append(all, fmt.Sprint(entry.ContextMap()["step"], entry.ContextMap()["questions"]))
	}
	return all
}

// saved lists the steps whose checkpoint is complete.
func saved(t *testing.T, dir string) []int64 {
	t.Helper()
	found, err := checkpoint.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	for _, one := range found {
		steps = append(steps, one.Step)
	}
	return steps
}

// series reads one metric against the x axis.
func series(t *testing.T, dir, name string) (steps []int, values []float64) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		entry := map[string]*float64{}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, int(*entry["step"]))
		if value := entry[name]; value != nil {
			values = append(values, *value)
		}
	}
	return steps, values
}

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

// stopDuring asks the run to stop while a step is under way, as SIGINT does.
func (j *job) stopDuring(step int) {
	j.Update.LearningRate = func(now int) float64 {
		if now == step {
			close(j.stop)
		}
		return 0.5 / float64(now)
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
			if j.done == 2 {
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
		if best := test.want[0]; j.best.Step != best || !near(j.best.Value, float64(right[int(best)])/3) || j.best.Metric != "score/total" {
			t.Errorf("after %d steps the best is %+v", test.steps, *j.best)
		}
	}
	// Another metric starts anew, though its values are smaller.
	run(8)
	j := newJob(t, dir, o, script, func(j *job) {
		j.Steps, j.CheckpointKeep, j.CheckpointBestKey = 9, 1, metrics.LossPolicy
	}).mustLoop(t)
	if j.best.Metric != metrics.LossPolicy || j.best.Step != 9 {
		t.Errorf("the best by another metric is %+v", *j.best)
	}
	o.Reward.MemoryReward = "off"
	other := t.TempDir()
	j = newJob(t, other, o, script, func(j *job) { j.CheckpointBestKey = metrics.MemoryReward }).mustLoop(t)
	if got := saved(t, other); !slices.Equal(got, []int64{5}) || j.best != nil {
		t.Errorf("without a measure the checkpoints are of %v, the best %v", got, j.best)
	}
}

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
	var nonfinite *NonfiniteError
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
	if fault.Code(err) != fault.CodeEnvironment || !strings.Contains(err.Error(), "optimizer.micro_batch_tokens") || !strings.Contains(err.Error(), "12 GB") || j.actor.drops != 1 {
		t.Errorf("exit code %d: %v", fault.Code(err), err)
	}
}

func TestARecordWithoutAPositionIsRefused(t *testing.T) {
	t.Parallel()
	for _, sampler := range []string{`"x"`, `{"drawn":1,"size":9}`} {
		j := newJob(t, t.TempDir(), toyOptions(3), mixed, nil)
		err := j.Continue(checkpoint.Record{Step: 4, Sampler: json.RawMessage(sampler)})
		if fault.Code(err) != fault.CodeUsage || j.done != 0 {
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
	if err := j.loop(t); err == nil || j.done != 0 || len(j.actor.gradients) != 1 {
		t.Errorf("no folder for trajectories: %v after %d steps", err, j.done)
	}
	j = newJob(t, t.TempDir(), toyOptions(3), mixed, nil)
	if err := j.Metrics.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Loop(context.Background(), j.stop); !errors.Is(err, os.ErrClosed) || j.done != 0 {
		t.Errorf("no file for metrics: %v after %d steps", err, j.done)
	}
	if err := j.Dir.Close(); err != nil {
		t.Fatal(err)
	}
}
