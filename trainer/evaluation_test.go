package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// evaluating makes a job measure, every two steps and after the last one, what measure says.
func evaluating(steps int, evaluated *[]int, measure func(step int) (float64, error)) func(*job) {
	return func(j *job) {
		j.Steps, j.CheckpointKeep, j.EvaluateEvery, j.CheckpointBestKey = steps, 1, 2, "eval/em"
		j.Evaluate = func(_ context.Context, step int) (map[string]float64, error) {
			*evaluated = append(*evaluated, step)
			em, err := measure(step)
			return map[string]float64{
				metrics.Eval("em"): em, metrics.Eval("limited/em"): em,
				metrics.Time(StageEvaluation): 0.5, metrics.Tokens(StageEvaluation): 10,
			}, err
		}
	}
}

func TestEvaluationsComeAtTheirStepsAndAtTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var evaluated []int
	values := map[int]float64{2: 0.25, 4: 0.75, 6: 0.5, 7: math.NaN()}
	j := newJob(t, dir, toyOptions(3), mixed, evaluating(7, &evaluated, func(step int) (float64, error) { return values[step], nil })).mustLoop(t)
	if !slices.Equal(evaluated, []int{2, 4, 6, 7}) {
		t.Errorf("evaluated after %v", evaluated)
	}
	for _, name := range []string{"eval/em", "eval/limited/em"} {
		steps, found := series(t, dir, name)
		if !slices.Equal(steps, []int{1, 2, 3, 4, 5, 6, 7}) || !slices.Equal(found, []float64{0.25, 0.75, 0.5}) {
			t.Errorf("%s is %v in the lines of %v", name, found, steps)
		}
	}
	if got := saved(t, dir); !slices.Equal(got, []int64{4, 7}) || j.Best.Step != 4 || j.Best.Value != 0.75 {
		t.Errorf("checkpoints of %v, the best %+v", got, *j.Best)
	}
	for k, line := range stepLines(j.lines) {
		if em, known := values[k+1]; strings.Contains(line, "eval em") != (known && !math.IsNaN(em)) {
			t.Errorf("step %d is shown as %q", k+1, line)
		}
	}
}

func stepLines(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.HasPrefix(line, "step ") })
}

// A stop in the step of an evaluation lets it finish: the run that goes on is as one that never
// stopped.
func TestAStoppedRunEvaluatesAsOneThatWasNot(t *testing.T) {
	t.Parallel()
	measure := func(step int) (float64, error) { return float64(step), nil }
	straight, broken := t.TempDir(), t.TempDir()
	var once, twice []int
	whole := newJob(t, straight, toyOptions(3), mixed, evaluating(6, &once, measure)).mustLoop(t)
	newJob(t, broken, toyOptions(3), mixed, func(j *job) {
		evaluating(6, &twice, measure)(j)
		j.stopDuring(2)
	}).mustLoop(t)
	resumed := newJob(t, broken, toyOptions(3), mixed, evaluating(6, &twice, measure)).mustLoop(t)
	if !slices.Equal(once, []int{2, 4, 6}) || !slices.Equal(once, twice) {
		t.Errorf("evaluated after %v, and with a stop after %v", once, twice)
	}
	_, want := series(t, straight, "eval/em")
	if _, got := series(t, broken, "eval/em"); !slices.Equal(got, want) || !slices.Equal(whole.actor.weights, resumed.actor.weights) {
		t.Errorf("eval/em is %v, without a stop %v", got, want)
	}
}

// An evaluation that breaks or is cancelled leaves no line behind: the step is taken again.
func TestAnEvaluationThatBreaksDropsTheStep(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{errors.New("the device is gone"), fmt.Errorf("given up: %w", context.Canceled)} {
		dir := t.TempDir()
		var evaluated []int
		err := newJob(t, dir, toyOptions(3), mixed, func(j *job) {
			evaluating(5, &evaluated, func(int) (float64, error) { return 0, broken })(j)
			j.CheckpointEvery = 1
		}).loop(t)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "evaluation after step 2") {
			t.Errorf("got %v", err)
		}
		data, readErr := os.ReadFile(dir + "/metrics.jsonl")
		if lines := bytes.Count(data, []byte("\n")); readErr != nil || lines != 1 || !slices.Equal(saved(t, dir), []int64{1}) {
			t.Errorf("%d lines of metrics, checkpoints of %v", lines, saved(t, dir))
		}
	}
}
