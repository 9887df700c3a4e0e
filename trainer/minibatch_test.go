package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// mixed answers some right and some wrong, after searches.
func mixed(key rollout.SeedKey) string {
	if key.Turn < key.Member%3 {
		return searches(fmt.Sprint("notes of ", key.Question, key.Member), "x")
	}
	return answers(strings.Repeat("m", key.Member+1), map[bool]string{true: strings.ToUpper(key.Question), false: "no"}[key.Member%2 == 0])
}

// In the first optimiser step of a step the ratio is 1, of the toy model exactly, whatever the split;
// later ones are held against the weights at the start of the step.
func TestOldLogProbsAreThoseAtTheStartOfTheStep(t *testing.T) {
	o := toyOptions(4)
	o.Update.PPOEpochs, o.Update.QuestionsPerMinibatch, o.Update.LearningRate = 3, 1, func(int) float64 { return 5 }
	trainer, actor := newToyTrainer(t, o, mixed)
	start, reference := actor.frozen(0), actor.frozen(0.1)
	var stats []model.LossStats
	actor.onForward = func(int) error {
		stats = append(stats, model.LossStats{MaxLogRatio: float64(actor.weights['m'*width])})
		return nil
	}
	m := step(t, trainer, actor, "a", "b", "c").Metrics
	for _, row := range actor.rows() {
		old, ref := start.logProbs(row.IDs), reference.logProbs(row.IDs)
		for k, position := range row.Positions {
			if row.OldLogProbs[k] != old[position] || row.RefLogProbs[k] != ref[position] {
				t.Fatalf("old and ref of a token are %v and %v, want %v and %v", row.OldLogProbs[k], row.RefLogProbs[k], old[position], ref[position])
			}
		}
	}
	if updates := len(actor.gradients); updates != 9 || trainer.Counters.OptimizerSteps != 9 || m[metrics.TrainOptimizerSteps] != 9 {
		t.Errorf("%d updates, counted %d, want 3 epochs of 3", updates, trainer.Counters.OptimizerSteps)
	}
	if m[metrics.LossClipFraction] <= 0 || m[metrics.LossClipFraction] >= 1 {
		t.Errorf("clip fraction %v after large updates", m[metrics.LossClipFraction])
	}
	if stats[0].MaxLogRatio != 0 || stats[len(stats)-1].MaxLogRatio == 0 {
		t.Error("the weights did not move between the mini-batches")
	}
}

func TestTheFirstUpdateHasRatioOne(t *testing.T) {
	for _, tokens := range []int{1, 200, 100000} {
		o := toyOptions(4)
		o.Update.MicroBatchTokens = tokens
		o.Update.Loss.ClipLow, o.Update.Loss.ClipHigh = 0, 0 // any other ratio is clipped
		trainer, actor := newToyTrainer(t, o, mixed)
		trainer.reference = actor.frozen(0)
		m := step(t, trainer, actor, "a", "b").Metrics
		if m[metrics.LossClipFraction] != 0 || m[metrics.LossKL] != 0 || m[metrics.LossGradNorm] == 0 {
			t.Errorf("micro-batches of %d tokens: clip fraction %v, KL to a reference of the same weights %v", tokens, m[metrics.LossClipFraction], m[metrics.LossKL])
		}
		if old := actor.calls[len(actor.calls)-1]; old.temperature != 0.7 {
			t.Errorf("scored at temperature %v, sampled at 0.7", old.temperature)
		}
		for _, call := range trainer.reference.(*toyScorer).calls {
			if call.temperature != 0.7 {
				t.Errorf("the reference scored at temperature %v", call.temperature)
			}
		}
	}
}

func TestOldLogProbsOfTheRollout(t *testing.T) {
	noise := func(id int32) float32 { return 0.125 * float32(2*(id%2)-1) } // up and down
	for _, fromRollout := range []bool{true, false} {
		o := toyOptions(2)
		o.Scoring.RolloutOldLogProbs = fromRollout
		trainer, actor := newToyTrainer(t, o, mixed)
		exact := actor.frozen(0)
		actor.logProb = func(ids []int32) float32 { return exact.last(ids) + noise(ids[len(ids)-1]) }
		m := step(t, trainer, actor, "a").Metrics
		for _, row := range actor.rows() {
			logProbs := exact.logProbs(row.IDs)
			for k, position := range row.Positions {
				want := logProbs[position]
				if fromRollout {
					want += noise(row.IDs[position])
				}
				if row.OldLogProbs[k] != want {
					t.Fatalf("rollout %v: old is %v, want %v", fromRollout, row.OldLogProbs[k], want)
				}
			}
		}
		if !near(m[metrics.LossRolloutDifference], 0.125) {
			t.Errorf("difference of sampler and trainer %v, want 0.125", m[metrics.LossRolloutDifference])
		}
	}
}

func TestMinibatchesHoldWholeQuestionsInSeededOrder(t *testing.T) {
	order := func(seed uint64, step int) string {
		o := toyOptions(3)
		o.Rollout.Seed, o.Update.QuestionsPerMinibatch, o.Update.PPOEpochs, o.Update.MicroBatchTokens = seed, 2, 2, 1
		trainer, actor := newToyTrainer(t, o, mixed)
		if _, err := trainer.Step(context.Background(), step, drawn("a", "b", "c", "d")); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(actor.sizes, []int{6, 6, 6, 6}) {
			t.Errorf("updates of %v rows, want 4 of 2 questions with 3 trajectories", actor.sizes)
		}
		var text strings.Builder
		for at := 0; at < 24; at += 3 {
			names := map[byte]bool{}
			for _, micro := range actor.micro[at : at+3] {
				names[decode(micro[0].IDs)[len("Q: who is ")]] = true
			}
			if len(names) != 1 {
				t.Fatalf("trajectories of %v side by side", names)
			}
			for name := range names {
				text.WriteByte(name)
			}
		}
		sum := 0.0
		for _, micro := range actor.micro[:6] {
			for _, weight := range micro[0].Weights {
				sum += float64(weight)
			}
		}
		if !near(sum, 1) {
			t.Errorf("the weights of a mini-batch add up to %v", sum)
		}
		return text.String()
	}
	seen, moved, anew := map[string]bool{}, false, false
	for seed := range uint64(6) {
		first := order(seed, 1)
		if again := order(seed, 1); again != first {
			t.Errorf("seed %d gives %s, then %s", seed, first, again)
		}
		for _, epoch := range []string{first[:4], first[4:]} {
			if sorted := []byte(epoch); !slices.Equal(slices.Sorted(slices.Values(sorted)), []byte("abcd")) {
				t.Errorf("an epoch holds %s", epoch)
			}
			seen[epoch] = true
		}
		second := order(seed, 2)[:4]
		seen[second] = true
		moved = moved || second != first[:4]
		anew = anew || first[:4] != first[4:]
	}
	if len(seen) < 8 || !moved || !anew {
		t.Errorf("only %d orders of 18 differ; from step to step %v, from epoch to epoch %v", len(seen), moved, anew)
	}
}

// The loss of a step is the mean of its mini-batches, whatever their size.
func TestTheLossOfAStepIsTheMeanOfItsMinibatches(t *testing.T) {
	o := toyOptions(3)
	o.Update.QuestionsPerMinibatch, o.Update.MicroBatchTokens, o.Update.LearningRate = 1, 100000, func(int) float64 { return 0 }
	trainer, actor := newToyTrainer(t, o, uneven)
	m := step(t, trainer, actor, "a", "c", "d").Metrics
	if len(actor.micro) != 3 {
		t.Fatalf("%d micro-batches, want 3", len(actor.micro))
	}
	policy, kl, norms := 0.0, 0.0, 0.0
	for k, micro := range actor.micro {
		for _, row := range micro {
			for n := range row.Positions { // the ratio is 1
				d := float64(row.RefLogProbs[n]) - float64(row.OldLogProbs[n])
				policy -= float64(row.Weights[n]) * float64(row.Advantages[n]) / 3
				kl += float64(row.Weights[n]) * 0.1 * (math.Exp(d) - d - 1) / 3
			}
		}
		norms += norm(actor.gradients[k]) / 3
	}
	for name, want := range map[string]float64{metrics.LossPolicy: policy, metrics.LossKL: kl, metrics.LossTotal: policy + kl, metrics.LossGradNorm: norms} {
		if math.Abs(m[name]-want) > 1e-6 || want == 0 {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
}

func TestWithoutKLNoReferenceIsNeeded(t *testing.T) {
	o := toyOptions(4)
	o.Update.Loss.KLCoef = 0
	actor := newToyActor(t, mixed)
	actor.expect(o, []string{"a"}, 1, 1)
	trainer, err := New(actor, nil, o, Watch{})
	if err != nil {
		t.Fatal(err)
	}
	m := step(t, trainer, actor, "a").Metrics
	if _, timed := m[metrics.Time(stageRef)]; timed || m[metrics.LossKL] != 0 || m[metrics.LossPolicy] != m[metrics.LossTotal] {
		t.Errorf("reference timed %v, KL %v", timed, m[metrics.LossKL])
	}
	if m[metrics.LossGradNorm] == 0 {
		t.Error("nothing was learned")
	}
	o.Update.Loss.KLCoef = 0.1
	if _, err := New(actor, nil, o, Watch{}); err == nil || !strings.Contains(err.Error(), "0.1") {
		t.Errorf("a KL term without a reference: %v", err)
	}
}
