package sft

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

// toyLearner has one weight for each id, which is the token's log-probability; it learns by plain
// gradient descent.
type toyLearner struct {
	weights  []float64
	gradient []float64
	calls    [][]model.TrainRow  // micro-batches of the steps so far
	losses   []model.LossOptions // of each call
	scored   [][]model.ScoreRow
	rates    []float64
	drops    int

	fails  error            // of the next micro-batch
	poison func(n int) bool // makes the loss of the nth step, from 1, NaN
	spoil  func(n int) bool // makes its gradient NaN
	steps  int              // updates tried or dropped
	before func(rows int)   // sees each micro-batch
}

func newToyLearner() *toyLearner {
	l := &toyLearner{weights: make([]float64, 16), gradient: make([]float64, 16)}
	for id := range l.weights {
		l.weights[id] = -float64(id+1) / 8
	}
	return l
}

func (l *toyLearner) ForwardBackward(rows []model.TrainRow, o model.LossOptions) (model.LossStats, error) {
	l.calls, l.losses = append(l.calls, rows), append(l.losses, o)
	if l.before != nil {
		l.before(len(rows))
	}
	if l.fails != nil {
		return model.LossStats{}, l.fails
	}
	var stats model.LossStats
	for _, row := range rows {
		stats.Computed += float64(len(row.IDs))
	}
	for _, row := range rows {
		for k, p := range row.Positions {
			id, weight := row.IDs[p], float64(row.Weights[k])
			stats.Add(model.LossStats{NegativeLogLikelihood: -weight * l.weights[id], Tokens: 1})
			l.gradient[id] -= weight
		}
	}
	if l.poison != nil && l.poison(l.steps+1) {
		stats.NegativeLogLikelihood = math.NaN()
	}
	return stats, nil
}

func (l *toyLearner) Update(rate float64, _ model.OptimizerOptions) (model.UpdateStats, error) {
	l.steps++
	l.rates = append(l.rates, rate)
	squares := 0.0
	for _, g := range l.gradient {
		squares += g * g
	}
	if l.spoil != nil && l.spoil(l.steps) {
		squares = math.Inf(1)
	}
	stats := model.UpdateStats{GradNorm: math.Sqrt(squares), Skipped: math.IsInf(squares, 0)}
	if !stats.Skipped {
		for id, g := range l.gradient {
			l.weights[id] -= rate * g
		}
	}
	clear(l.gradient)
	return stats, nil
}

func (l *toyLearner) DropGradient() error {
	l.steps++
	l.drops++
	clear(l.gradient)
	return nil
}

func (l *toyLearner) Score(rows []model.ScoreRow, temperature float64) ([]model.RowScores, error) {
	if temperature != 1 {
		return nil, errors.New("not the model's own distribution")
	}
	l.scored = append(l.scored, rows)
	scores := make([]model.RowScores, len(rows))
	for k, row := range rows {
		for _, p := range row.Positions {
			scores[k].LogProbs = append(scores[k].LogProbs, float32(l.weights[row.IDs[p]]))
		}
	}
	return scores, nil
}

func (l *toyLearner) MemoryUsage() (model.MemoryUsage, error) {
	return model.MemoryUsage{Peak: 1 << 20}, nil
}

func (l *toyLearner) ResetPeak() error { return nil }

func newTrainer(l *toyLearner, tokens int) *Trainer {
	return &Trainer{Learner: l, Options: Options{
		LearningRate: func(step int) float64 { return 1 / float64(step) }, Micro: optim.MicroBatches{Tokens: tokens}, MaxNonfinite: 3,
	}}
}

// lessons have 3, 1 and 2 tokens to learn.
func lessons() []chat.Lesson {
	return []chat.Lesson{
		{IDs: []int32{1, 2, 3, 4, 5, 6}, Positions: []int32{2, 3, 5}},
		{IDs: []int32{7, 8, 9}, Positions: []int32{1}},
		{IDs: []int32{1, 2, 3, 4}, Positions: []int32{2, 3}},
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(b)) }

// The loss is the mean over all tokens to learn, however the lessons are cut.
func TestTheLossIsTheMeanOverTokensHoweverTheyAreCut(t *testing.T) {
	want := (4 + 5 + 7 + 9 + 4 + 5) / 8.0 / 6
	var weights []float64
	for tokens, sizes := range map[int][]int{1: {1, 1, 1}, 9: {2, 1}, 12: {2, 1}, 13: {3}} {
		l := newToyLearner()
		values, err := newTrainer(l, tokens).Step(t.Context(), 2, lessons())
		if err != nil {
			t.Fatal(err)
		}
		if got := values[metrics.LossNLL]; !near(got, want) {
			t.Errorf("bound of %d tokens: the loss is %v, want %v", tokens, got, want)
		}
		var rows []int
		for _, call := range l.calls {
			rows = append(rows, len(call))
		}
		if !slices.Equal(rows, sizes) {
			t.Errorf("bound of %d tokens: micro-batches of %v rows, want %v", tokens, rows, sizes)
		}
		if weights == nil {
			weights = l.weights
		}
		for id := range weights {
			if !near(l.weights[id], weights[id]) {
				t.Errorf("bound of %d tokens: weight %d is %v, with another bound %v", tokens, id, l.weights[id], weights[id])
			}
		}
	}
}

func TestAStepTellsWhatItDid(t *testing.T) {
	l := newToyLearner()
	values, err := newTrainer(l, 9).Step(t.Context(), 2, lessons())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		metrics.LossLearningRate: 0.5, metrics.LossGradNorm: math.Sqrt(4+4+1+1) / 6, metrics.TrainOptimizerSteps: 1, metrics.TrainNonfiniteSteps: 0,
		"tokens/update": 13, "tokens/learned": 6, metrics.MemoryBytesPeak: 1 << 20,
	} {
		if !near(values[name], want) {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
	for name := range values {
		if !metrics.Known(name) {
			t.Errorf("%s is not a name", name)
		}
	}
	for _, o := range l.losses {
		if o != (model.LossOptions{Kind: model.NegativeLogLikelihood, Temperature: 1}) {
			t.Errorf("trained with %+v", o)
		}
	}
}

func TestNonfiniteStepsAreSkippedCountedAndBounded(t *testing.T) {
	for name, spoil := range map[string]func(*toyLearner, func(int) bool){
		"loss":     func(l *toyLearner, when func(int) bool) { l.poison = when },
		"gradient": func(l *toyLearner, when func(int) bool) { l.spoil = when },
	} {
		l := newToyLearner()
		spoil(l, func(step int) bool { return step == 2 || step >= 4 })
		trainer := newTrainer(l, 9)
		var failed error
		step := 1
		for ; failed == nil; step++ {
			before := slices.Clone(l.weights)
			values, err := trainer.Step(t.Context(), step, lessons())
			if failed = err; err != nil {
				break
			}
			skipped := step == 2 || step >= 4
			if slices.Equal(before, l.weights) != skipped || math.IsNaN(values[metrics.LossGradNorm]) != skipped {
				t.Errorf("%s: step %d: moved the weights %v, gradient norm %v", name, step, !slices.Equal(before, l.weights), values[metrics.LossGradNorm])
			}
		}
		var nonfinite *optim.NonfiniteError
		if !errors.As(failed, &nonfinite) || step != 6 || !strings.Contains(failed.Error(), "step 6") || !strings.Contains(failed.Error(), "optimizer.max_nonfinite") {
			t.Errorf("%s: step %d: %v", name, step, failed)
		}
		if trainer.Counters != (optim.Counters{OptimizerSteps: 2, NonfiniteSteps: 4, NonfiniteInARow: 3}) {
			t.Errorf("%s: counters %+v", name, trainer.Counters)
		}
	}
}

// What fails or is cancelled in the middle of a step leaves no half of a gradient behind.
func TestABrokenStepLeavesNoGradient(t *testing.T) {
	broken := errors.New("broken")
	for _, cancels := range []bool{false, true} {
		l := newToyLearner()
		trainer := newTrainer(l, 1)
		before := slices.Clone(l.weights)
		ctx, cancel := context.WithCancel(t.Context())
		l.before = func(int) {
			if len(l.calls) == 2 && cancels {
				cancel()
			} else if len(l.calls) == 2 {
				l.fails = broken
			}
		}
		_, err := trainer.Step(ctx, 1, lessons())
		if want := map[bool]error{false: broken, true: context.Canceled}[cancels]; !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if l.drops != 1 || len(l.rates) != 0 || len(l.calls) != 2 || !slices.Equal(l.weights, before) {
			t.Errorf("%d gradients dropped, %d updates, %d micro-batches", l.drops, len(l.rates), len(l.calls))
		}
		cancel()
	}
}

// A step that the device has no room for is tried again in halves, and learns the same.
func TestAStepWithoutRoomIsTriedAgain(t *testing.T) {
	free, tight := newToyLearner(), newToyLearner()
	tight.before = func(rows int) {
		if tight.fails = nil; rows > 2 {
			tight.fails = model.ErrOutOfMemory
		}
	}
	trainers := []*Trainer{newTrainer(free, 100), newTrainer(tight, 100)}
	for _, trainer := range trainers {
		for step := 1; step <= 2; step++ {
			if _, err := trainer.Step(t.Context(), step, lessons()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, want := range free.weights {
		if !near(tight.weights[id], want) {
			t.Errorf("weight %d is %v, want %v", id, tight.weights[id], want)
		}
	}
	// 13 tokens, of which 6 are half; the second step begins with these.
	if len(free.calls) != 2 || len(tight.calls) != 1+3+3 || tight.drops != 1 || trainers[1].Micro.Tokens != 6 || trainers[0].Micro.News() != "" || trainers[1].Micro.News() == "" {
		t.Errorf("%d and %d micro-batches, %d gradients dropped, %d tokens from then on", len(free.calls), len(tight.calls), tight.drops, trainers[1].Micro.Tokens)
	}
}

func TestEvaluationIsTheMeanOverTokensAndLearnsNothing(t *testing.T) {
	l := newToyLearner()
	before := slices.Clone(l.weights)
	measured := 0
	values, err := newTrainer(l, 9).Evaluate(t.Context(), lessons(), func(n int) { measured += n })
	if err != nil {
		t.Fatal(err)
	}
	if want := (4 + 5 + 7 + 9 + 4 + 5) / 8.0 / 6; !near(values["eval/nll"], want) || measured != 3 || len(l.scored) != 2 {
		t.Errorf("%v after %d lessons in %d batches, want %v", values["eval/nll"], measured, len(l.scored), want)
	}
	if !slices.Equal(before, l.weights) || len(l.calls) != 0 {
		t.Error("an evaluation trained")
	}
	if values["tokens/eval"] != 13 {
		t.Errorf("%v tokens", values["tokens/eval"])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newTrainer(l, 9).Evaluate(ctx, lessons(), func(int) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What was not measured is not shown as a number.
func TestTheSummaryOfAStep(t *testing.T) {
	values := map[string]float64{metrics.LossNLL: 1.5, metrics.LossGradNorm: math.NaN(), metrics.LossLearningRate: 1e-3, metrics.Time("step"): 0.1234}
	if got, want := summary(3, 20, values), "step 3/20  loss 1.5000  rate 0.001  123ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	values[metrics.Eval("nll")] = 2
	if got := summary(3, 20, values); !strings.Contains(got, "evaluation 2.0000") {
		t.Errorf("%q has no evaluation", got)
	}
}
