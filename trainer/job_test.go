package trainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/loop"
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
		Trainer: trainer, QuestionsPerStep: 2, MaxFailedSteps: 3,
		Job: loop.Job{
			State: j.actor, Config: "[run]\n", Steps: 5, CheckpointEvery: 10, CheckpointKeep: 2,
			Identity: checkpoint.Identity{ModelHash: "m", TokenizerHash: "t", DataHash: "d"},
			Line:     func(line string) { j.lines = append(j.lines, line); j.onLine(line) },
		},
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
	j.actor.parameters, j.Source, j.Sampler, j.Cursor, j.Dir = architecture.Parameters(), source, sampler, sampler, opened
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

// stopDuring asks the run to stop while a step is under way, as SIGINT does.
func (j *job) stopDuring(step int) {
	j.Update.LearningRate = func(now int) float64 {
		if now == step {
			close(j.stop)
		}
		return 0.5 / float64(now)
	}
}
