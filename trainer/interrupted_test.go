package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
)

func TestANonfiniteGradientIsSkippedAndCounted(t *testing.T) {
	o := toyOptions(4)
	o.Update.QuestionsPerMinibatch = 1
	trainer, actor := newToyTrainer(t, o, mixed)
	actor.poison = func(update int) bool { return update == 2 }
	var weights [][]float32
	actor.onUpdate = func(int) error {
		weights = append(weights, slices.Clone(actor.weights))
		return nil
	}
	m := step(t, trainer, actor, "a", "b", "c").Metrics
	if !slices.Equal(weights[1], weights[2]) || slices.Equal(weights[0], weights[1]) {
		t.Error("the skipped update moved the weights, or the others did not")
	}
	if trainer.Counters != (Counters{Counters: optim.Counters{OptimizerSteps: 2, NonfiniteSteps: 1}}) {
		t.Errorf("counters %+v", trainer.Counters)
	}
	if m[metrics.TrainNonfiniteSteps] != 1 || m[metrics.TrainOptimizerSteps] != 2 {
		t.Errorf("metrics count %v skipped and %v taken", m[metrics.TrainNonfiniteSteps], m[metrics.TrainOptimizerSteps])
	}
	if want := (norm(actor.gradients[0]) + norm(actor.gradients[2])) / 2; !near(m[metrics.LossGradNorm], want) {
		t.Errorf("gradient norm %v, of those taken %v", m[metrics.LossGradNorm], want)
	}
}

// A loss that is not finite is not left to the learner.
func TestANonfiniteLossIsSkippedBeforeTheUpdate(t *testing.T) {
	trainer, actor := newToyTrainer(t, toyOptions(4), mixed)
	reference := trainer.reference.(*toyScorer)
	for k, weight := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		reference.weights['t'*width] = float32(weight)
		m := step(t, trainer, actor, "a").Metrics
		if len(actor.gradients) != 0 || actor.drops != k+1 || actor.updates != 0 {
			t.Errorf("%v: %d updates tried, %d gradients dropped", weight, len(actor.gradients), actor.drops)
		}
		if want := int64(k) + 1; trainer.Counters.NonfiniteSteps != want || trainer.Counters.OptimizerSteps != 0 || m[metrics.TrainNonfiniteSteps] != float64(want) {
			t.Errorf("%v: counters %+v, metric %v", weight, trainer.Counters, m[metrics.TrainNonfiniteSteps])
		}
		if loss := m[metrics.LossTotal]; !math.IsNaN(loss) && !math.IsInf(loss, 0) || !math.IsNaN(m[metrics.LossGradNorm]) {
			t.Errorf("%v: the loss is %v, it was not finite", weight, loss)
		}
		trainer.Counters.NonfiniteInARow = 0
	}
	actor.onDrop = errors.New("device lost")
	if _, err := trainer.Step(context.Background(), 1, drawn("a")); !errors.Is(err, actor.onDrop) {
		t.Errorf("a gradient that cannot be dropped: %v", err)
	}
}

func TestTooManyNonfiniteStepsInARowEndTheRun(t *testing.T) {
	o := toyOptions(4)
	o.Update.PPOEpochs, o.Update.MaxNonfinite = 6, 3
	trainer, actor := newToyTrainer(t, o, mixed)
	actor.poison = func(update int) bool { return update != 3 } // 1 2 . 4 5 6
	before := slices.Clone(actor.weights)
	result, err := trainer.Step(context.Background(), 1, drawn("a"))
	var nonfinite *optim.NonfiniteError
	if !errors.As(err, &nonfinite) || nonfinite.InARow != 3 || nonfinite.Step != 1 || !strings.Contains(err.Error(), "optimizer.max_nonfinite") {
		t.Fatalf("got %v", err)
	}
	if trainer.Counters != (Counters{Counters: optim.Counters{OptimizerSteps: 1, NonfiniteSteps: 5, NonfiniteInARow: 3}}) {
		t.Errorf("counters %+v", trainer.Counters)
	}
	for id, weight := range actor.weights {
		if math.IsNaN(float64(weight)) {
			t.Fatalf("weight %d is NaN", id)
		}
	}
	if slices.Equal(before, actor.weights) {
		t.Error("the third update was not taken")
	}
	if len(result.Records) != 4 || result.Metrics != nil {
		t.Errorf("%d records to look at, want 4", len(result.Records))
	}
}

// However an update ends, no gradient is left for the next one, and what was counted is what the
// learner did.
func TestNoHalfGradientIsLeftBehind(t *testing.T) {
	broken := errors.New("device lost")
	tests := map[string]struct {
		arrange func(actor *toyActor, cancel context.CancelFunc)
		want    error
		updates int64
	}{
		"cancelled between micro-batches": {func(a *toyActor, cancel context.CancelFunc) {
			a.onForward = func(call int) error {
				if call == 2 {
					cancel()
				}
				return nil
			}
		}, context.Canceled, 0},
		"cancelled between mini-batches": {func(a *toyActor, cancel context.CancelFunc) {
			a.onUpdate = func(int) error {
				cancel()
				return nil
			}
		}, context.Canceled, 1},
		"a micro-batch fails": {func(a *toyActor, _ context.CancelFunc) {
			a.onForward = func(call int) error {
				if call == 6 { // of the second mini-batch
					return broken
				}
				return nil
			}
		}, broken, 1},
		"an update fails": {func(a *toyActor, _ context.CancelFunc) {
			a.onUpdate = func(call int) error {
				if call == 2 {
					return broken
				}
				return nil
			}
		}, broken, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := toyOptions(4)
			o.Update.MicroBatchTokens, o.Update.QuestionsPerMinibatch = 1, 1
			trainer, actor := newToyTrainer(t, o, mixed)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			test.arrange(actor, cancel)
			result, err := trainer.Step(ctx, 1, drawn("a", "b"))
			if !errors.Is(err, test.want) || result != nil {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if actor.drops != 1 || actor.pending != 0 || norm(actor.gradient) != 0 {
				t.Errorf("%d gradients dropped, %d micro-batches left", actor.drops, actor.pending)
			}
			if actor.updates != test.updates || trainer.Counters.OptimizerSteps != test.updates {
				t.Errorf("%d updates were taken, %d counted, want %d", actor.updates, trainer.Counters.OptimizerSteps, test.updates)
			}
		})
	}
	o := toyOptions(4)
	trainer, actor := newToyTrainer(t, o, mixed)
	actor.onForward = func(int) error { return broken }
	actor.onDrop = errors.New("nor cleared")
	if _, err := trainer.Step(context.Background(), 1, drawn("a")); !errors.Is(err, broken) || !errors.Is(err, actor.onDrop) {
		t.Errorf("both errors count: %v", err)
	}
}

// The end of ctx drops the step wherever it stands.
func TestACancelledStepTrainsOnNothing(t *testing.T) {
	o := toyOptions(4)
	o.Update.MicroBatchTokens = 1
	tests := map[string]func(*Trainer, *toyActor, context.CancelFunc) (calls func() int){
		"while generating": func(_ *Trainer, a *toyActor, cancel context.CancelFunc) func() int {
			a.onStep = func([]rollout.SeedKey) error {
				cancel()
				return nil
			}
			return func() int { return 1 }
		},
		"while memories are scored": func(_ *Trainer, a *toyActor, cancel context.CancelFunc) func() int {
			calls := 0
			a.onScore = func() error {
				cancel()
				calls++
				return nil
			}
			return func() int { return calls }
		},
		"while the reference scores": func(t *Trainer, _ *toyActor, cancel context.CancelFunc) func() int {
			calls := 0
			t.reference.(*toyScorer).onScore = func() error {
				cancel()
				calls++
				return nil
			}
			return func() int { return calls }
		},
	}
	for name, arrange := range tests {
		for _, form := range forms {
			t.Run(name+"/"+form, func(t *testing.T) {
				o.Scoring.Form = form
				trainer, actor := newToyTrainer(t, o, mixed)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				calls := arrange(trainer, actor, cancel)
				if _, err := trainer.Step(ctx, 1, drawn("a")); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
				if calls() != 1 || len(actor.micro) != 0 || actor.open != 0 {
					t.Errorf("it went on for %d calls, trained %d micro-batches, left %d sessions", calls(), len(actor.micro), actor.open)
				}
			})
		}
	}
}

func TestErrorsOfTheDeviceEndTheStep(t *testing.T) {
	broken := errors.New("device lost")
	tests := map[string]func(*Trainer, *toyActor){
		"generation": func(_ *Trainer, a *toyActor) { a.onStep = func([]rollout.SeedKey) error { return broken } },
		"reference":  func(t *Trainer, _ *toyActor) { t.reference.(*toyScorer).onScore = func() error { return broken } },
		"actor":      func(_ *Trainer, a *toyActor) { a.onScore = func() error { return broken } },
		"peak":       func(t *Trainer, a *toyActor) { t.actor = &brokenActor{toyActor: a, reset: broken} },
		"usage":      func(t *Trainer, a *toyActor) { t.actor = &brokenActor{toyActor: a, usage: broken} },
	}
	for name, arrange := range tests {
		for _, form := range forms {
			for _, memory := range []string{"off", "mem"} {
				o := toyOptions(4)
				o.Reward.MemoryReward, o.Scoring.Form = memory, form
				trainer, actor := newToyTrainer(t, o, mixed)
				arrange(trainer, actor)
				if result, err := trainer.Step(context.Background(), 1, drawn("a")); !errors.Is(err, broken) || result != nil {
					t.Errorf("%s with memory %s, %s: %v", name, memory, form, err)
				}
				if actor.open != 0 {
					t.Errorf("%s, %s: %d sessions left open", name, form, actor.open)
				}
			}
		}
	}
}

type brokenActor struct {
	*toyActor
	reset, usage error
}

func (a *brokenActor) ResetPeak() error { return a.reset }

func (a *brokenActor) MemoryUsage() (model.MemoryUsage, error) {
	return model.MemoryUsage{}, a.usage
}

// Settings that no one checked before show in the first step, by name.
func TestUnknownSettingsAreErrors(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`format_reward is "x"`: func(o *Options) { o.Reward.FormatReward = "x" },
		`memory_reward is "x"`: func(o *Options) { o.Reward.MemoryReward = "x" },
		`answer_prob is "x"`:   func(o *Options) { o.Reward.AnswerProb = "x" },
		`normalize is "x"`:     func(o *Options) { o.Advantage.Normalize = "x" },
		`aggregation is "x"`:   func(o *Options) { o.Update.Aggregation = "x" },
		`topk is 0`:            func(o *Options) { o.Tools.TopK = 0 },
	} {
		o := toyOptions(4)
		change(&o)
		trainer, _ := newToyTrainer(t, o, mixed)
		if _, err := trainer.Step(context.Background(), 1, drawn("a")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A watcher sees every row of every stage, and the end of each stage even after an error.
func TestAWatcherSeesEveryStage(t *testing.T) {
	o := toyOptions(4)
	o.Update.PPOEpochs, o.Update.MicroBatchTokens = 2, 300
	actor := newToyActor(t, mixed)
	actor.expect(o, []string{"a"}, 1, 1)
	var seen []string
	ended, failed, em := 0, 0, 0.0
	watch := Watch{
		Stage: func(name string, total int) (func(int), func()) {
			added := 0
			return func(n int) { added += n }, func() { seen = append(seen, fmt.Sprintf("%s %d/%d", name, added, total)) }
		},
		Rollout: func(p rollout.Progress, tally Tally) {
			ended, failed, em = tally.Ended, tally.Failed, tally.EMSum
			if tally.Ended != p.Ended {
				t.Errorf("%d trajectories have ended, the tally says %+v", p.Ended, tally)
			}
		},
	}
	trainer, err := New(actor, actor.frozen(0.1), o, watch)
	if err != nil {
		t.Fatal(err)
	}
	step(t, trainer, actor, "a")
	if want := []string{"memory_score 6/6", "old_log_prob 4/4", "ref_log_prob 4/4", "update 8/8"}; !slices.Equal(seen, want) {
		t.Errorf("stages %q, want %q", seen, want)
	}
	if ended != 4 || em != 2 || failed != 0 {
		t.Errorf("the last tally: %d ended, %d failed, EM %v", ended, failed, em)
	}
	trainer.Tools.Search = failFor("x")
	step(t, trainer, actor, "a")
	if ended != 4 || em != 1 || failed != 2 {
		t.Errorf("the last tally: %d ended, %d failed, EM %v", ended, failed, em)
	}
	seen = nil
	actor.onForward = func(call int) error { return errors.New("device lost") }
	if _, err := trainer.Step(context.Background(), 1, drawn("a")); err == nil {
		t.Error("no error")
	}
	if last := seen[len(seen)-1]; last != "update 0/4" { // of the two that do not fail, in two epochs
		t.Errorf("the last stage ended as %q", last)
	}
}
