package trainer

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// handmade is one question with trajectories of so many sampled tokens, behind a prompt of two and
// with a token of a tool in the middle. The first sampled token of trajectory i is 10·i + 10.
func handmade(sampled ...int) Graded {
	group := Graded{Group: &rollout.Group{Question: question("a")}, Outcomes: make([]Outcome, len(sampled))}
	for i, count := range sampled {
		t := &rollout.Trajectory{Member: i, PromptIDs: []int32{1, 2}, Stop: rollout.Answered}
		for k := range count {
			if k == count/2 {
				t.ResponseIDs, t.ResponseMask = append(t.ResponseIDs, 250), append(t.ResponseMask, false)
			}
			t.ResponseIDs, t.ResponseMask = append(t.ResponseIDs, int32(10*i+10+k)), append(t.ResponseMask, true)
		}
		t.LogProbs = make([]float32, len(t.ResponseIDs))
		group.Trajectories = append(group.Trajectories, t)
	}
	return group
}

// learnFrom runs everything behind the advantages, which are given by trajectory.
func learnFrom(t *testing.T, trainer *Trainer, group Graded, outcome ...float64) map[string]float64 {
	t.Helper()
	a := GroupAdvantages{Advantages: advantage.Advantages{Outcome: outcome, Memory: make([][]float64, len(outcome))}}
	for i := range group.Trajectories {
		if err := trainer.spread(&a, group, i); err != nil {
			t.Fatal(err)
		}
	}
	graded, all, clock := []Graded{group}, []GroupAdvantages{a}, newClock()
	plan := trainer.plan(1, graded, all)
	scores, err := trainer.scoreResponses(context.Background(), plan, clock)
	if err != nil {
		t.Fatal(err)
	}
	losses, err := trainer.update(context.Background(), 1, plan, scores, clock)
	if err != nil {
		t.Fatal(err)
	}
	result, err := trainer.report(1, &stepData{graded: graded, memories: noMemories(graded), advantages: all, plan: plan, scores: scores, losses: losses, clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return result.Metrics
}

// withoutKL is a trainer whose loss has no KL term, and so no reference.
func withoutKL(t *testing.T, change func(*Options)) (*Trainer, *toyActor) {
	t.Helper()
	o := toyOptions(1)
	o.Update.Loss.KLCoef = 0
	change(&o)
	actor := newToyActor(t, nil)
	trainer, err := New(actor, nil, o, Watch{})
	if err != nil {
		t.Fatal(err)
	}
	return trainer, actor
}

func TestTheLossIsThatOfTheWholeMinibatch(t *testing.T) {
	tests := []struct {
		aggregation string
		want        float64
	}{
		{batch.TokenMean, 28.0 / 12}, {batch.SeqMeanTokenSum, 28.0 / 3}, {batch.SeqMeanTokenMean, 2}, {batch.SeqMeanTokenSumNorm, 28.0 / 24},
	}
	for _, test := range tests {
		var whole []float64
		for tokens, micro := range map[int]int{1000: 1, 13: 2, 1: 3} { // rows of 5, 7 and 9 tokens
			trainer, actor := withoutKL(t, func(o *Options) {
				o.Update.Aggregation, o.Update.Divisor, o.Update.MicroBatchTokens = test.aggregation, 8, tokens
			})
			m := learnFrom(t, trainer, handmade(2, 4, 6), -1, -2, -3) // a ratio of 1: token losses 1, 2, 3
			if !near(m[metrics.LossPolicy], test.want) || !near(m[metrics.LossTotal], test.want) || m[metrics.LossKL] != 0 {
				t.Errorf("%s in %d micro-batches: loss %v, want %v", test.aggregation, micro, m[metrics.LossPolicy], test.want)
			}
			if !slices.Equal(actor.sizes, []int{micro}) {
				t.Errorf("updates of %v micro-batches, want one of %d", actor.sizes, micro)
			}
			if whole == nil {
				whole = actor.gradients[0]
			}
			for id, g := range actor.gradients[0] {
				if math.Abs(g-whole[id]) > 1e-9 {
					t.Errorf("%s in %d micro-batches: gradient of token %d is %v, and %v in another split", test.aggregation, micro, id, g, whole[id])
				}
			}
			if !near(m[metrics.LossGradNorm], norm(actor.gradients[0])) {
				t.Errorf("gradient norm %v, want %v", m[metrics.LossGradNorm], norm(actor.gradients[0]))
			}
		}
	}
}

func norm(values []float64) float64 {
	squares := 0.0
	for _, value := range values {
		squares += value * value
	}
	return math.Sqrt(squares)
}

func TestAMaskedTrajectoryLeavesSumAndDivisor(t *testing.T) {
	for _, aggregation := range []string{batch.TokenMean, batch.SeqMeanTokenMean} {
		trainer, actor := withoutKL(t, func(o *Options) { o.Update.Aggregation, o.Reward.Truncated = aggregation, "mask" })
		group := handmade(4, 4)
		group.Trajectories[1].Stop = rollout.MaxResponse
		if m := learnFrom(t, trainer, group, -1, -1); m[metrics.LossPolicy] != 1 {
			t.Errorf("%s: the loss is %v, want 1", aggregation, m[metrics.LossPolicy])
		}
		group.Trajectories[0].Stop = rollout.ContextFull
		m := learnFrom(t, trainer, group, -1, -1)
		if len(actor.micro) != 1 || len(actor.gradients) != 1 || trainer.Counters.OptimizerSteps != 1 {
			t.Errorf("%s: all masked, and yet %d micro-batches, %d updates", aggregation, len(actor.micro), len(actor.gradients))
		}
		for _, name := range []string{metrics.LossPolicy, metrics.LossKL, metrics.LossTotal, metrics.LossClipFraction, metrics.LossGradNorm} {
			if m[name] != 0 {
				t.Errorf("%s: all masked, and %s is %v", aggregation, name, m[name])
			}
		}
		if m[metrics.TrainGroupsLeftOut] != 1 || m[metrics.TrainOptimizerSteps] != 1 {
			t.Errorf("%s: %v groups left out, %v optimiser steps", aggregation, m[metrics.TrainGroupsLeftOut], m[metrics.TrainOptimizerSteps])
		}
	}
}

func TestAdvantagesTravelWithTheirTrajectories(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(20) {
		trainer, actor := withoutKL(t, func(o *Options) {
			o.Rollout.Seed, o.Update.MicroBatchTokens, o.Update.QuestionsPerMinibatch = seed, 24, 2
		})
		var graded []Graded
		var all []GroupAdvantages
		for g := range 4 { // of two trajectories each, told apart by their first sampled token
			group := handmade(2+random.IntN(8), 2+random.IntN(8))
			a := GroupAdvantages{Advantages: advantage.Advantages{Outcome: []float64{float64(2 * g), float64(2*g + 1)}, Memory: make([][]float64, 2)}}
			for i, trajectory := range group.Trajectories {
				for k := range trajectory.ResponseIDs {
					trajectory.ResponseIDs[k] = int32(20 * (2*g + i))
					trajectory.LogProbs[k] = float32(2*g + i)
				}
				if err := trainer.spread(&a, group, i); err != nil {
					t.Fatal(err)
				}
			}
			graded, all = append(graded, group), append(all, a)
		}
		trainer.Update.RolloutOldLogProbs = true
		plan := trainer.plan(1, graded, all)
		scores, err := trainer.scoreResponses(context.Background(), plan, newClock())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trainer.update(context.Background(), 1, plan, scores, newClock()); err != nil {
			t.Fatal(err)
		}
		var seen []int
		for _, row := range actor.rows() {
			id := int(row.IDs[row.Positions[0]]) / 20
			seen = append(seen, id)
			for k := range row.Positions {
				if row.Advantages[k] != float32(id) || row.OldLogProbs[k] != float32(id) {
					t.Fatalf("trajectory %d has advantage %v and log-prob %v", id, row.Advantages[k], row.OldLogProbs[k])
				}
			}
		}
		slices.Sort(seen)
		if !slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
			t.Fatalf("the loss saw trajectories %v", seen)
		}
	}
}

// mixed answers some right and some wrong, after searches.
func mixed(key rollout.SeedKey) string {
	if key.Turn < key.Member%3 {
		return searches(fmt.Sprint("notes of ", key.Question, key.Member), "x")
	}
	return answers(strings.Repeat("m", key.Member+1), map[bool]string{true: strings.ToUpper(key.Question), false: "no"}[key.Member%2 == 0])
}

// What tools and templates wrote is nowhere: not among the positions that are scored, nor among
// those that are trained, nor in the divisor.
func TestOnlySampledTokensReachTheLearner(t *testing.T) {
	o := toyOptions(4)
	o.Rollout.Prefill = "<mem>"
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string { return strings.TrimPrefix(mixed(key), "<mem>") })
	result := step(t, trainer, actor, "a", "b")
	if toolTurns := result.Metrics[metrics.RolloutToolCalls]; toolTurns != 6 {
		t.Fatalf("%v tool calls, want 6", toolTurns)
	}
	byID := map[string]*rollout.Record{}
	trained := 0
	for _, record := range result.Records {
		byID[fmt.Sprint(slices.Concat(record.PromptIDs, record.ResponseIDs))] = record
		for _, sampled := range record.ResponseMask {
			trained += sampled
		}
	}
	rows := actor.rows()
	if len(rows) != 8 {
		t.Errorf("%d rows, want 8", len(rows))
	}
	checkTokenMean(t, rows, trained)
	for _, row := range rows {
		record := byID[fmt.Sprint(row.IDs)]
		if record == nil {
			t.Fatalf("a row holds %q, which is no trajectory", decode(row.IDs))
		}
		checkPositions(t, record, row.Positions)
		var text, written strings.Builder
		for _, position := range row.Positions {
			text.WriteString(decode(row.IDs[position : position+1]))
		}
		for _, turn := range record.Turns {
			written.WriteString(strings.TrimPrefix(turn.Text, "<mem>"))
		}
		if text.String() != written.String() {
			t.Errorf("trained on %q, the model wrote %q", text.String(), written.String())
		}
	}
	for _, call := range append(actor.calls, trainer.reference.(*toyScorer).calls...) {
		for _, row := range call.rows {
			if record := byID[fmt.Sprint(row.IDs)]; record != nil {
				checkPositions(t, record, row.Positions)
			}
		}
	}
}

func TestLogProbsOfToolTokensDoNotMatter(t *testing.T) {
	mask := []bool{true, true, true, true, false, false, false, true, true, true}
	run := func(outside float32) (float64, []float64) {
		trainer, actor := withoutKL(t, func(o *Options) { o.Update.RolloutOldLogProbs = true })
		trajectory := &rollout.Trajectory{PromptIDs: []int32{1, 2}, ResponseMask: mask, Stop: rollout.Answered}
		for k, sampled := range mask {
			trajectory.ResponseIDs = append(trajectory.ResponseIDs, int32(10+k))
			trajectory.LogProbs = append(trajectory.LogProbs, map[bool]float32{true: -0.5, false: outside}[sampled])
		}
		group := Graded{Group: &rollout.Group{Question: question("a"), Trajectories: []*rollout.Trajectory{trajectory}}, Outcomes: make([]Outcome, 1)}
		m := learnFrom(t, trainer, group, 1)
		checkTokenMean(t, actor.rows(), 7)
		return m[metrics.LossTotal], actor.gradients[0]
	}
	loss, gradient := run(0)
	for _, outside := range []float32{-3, 4, float32(math.NaN())} {
		if again, changed := run(outside); again != loss || !slices.Equal(changed, gradient) || loss == 0 {
			t.Errorf("with %v at tokens of tools the loss is %v, not %v", outside, again, loss)
		}
	}
}

func checkPositions(t *testing.T, record *rollout.Record, got []int32) {
	t.Helper()
	var want []int32
	for k, sampled := range record.ResponseMask {
		if sampled == 1 {
			want = append(want, int32(len(record.PromptIDs)+k))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("positions %v, sampled are %v", got, want)
	}
}

// With equal scores the policy gradient is exactly zero, but the KL term still pulls.
func TestGroupsOfEqualScores(t *testing.T) {
	allRight := func(key rollout.SeedKey) string {
		return answers(strings.Repeat("m", key.Member), strings.ToUpper(key.Question))
	}
	kept := toyOptions(4)
	trainer, actor := newToyTrainer(t, kept, allRight)
	before := slices.Clone(actor.weights)
	result := step(t, trainer, actor, "a", "b")
	if m := result.Metrics; m[metrics.LossPolicy] != 0 || m[metrics.LossKL] <= 0 || m[metrics.ScoreZeroStdGroups] != 1 || m[metrics.TrainGroupsLeftOut] != 0 {
		t.Errorf("policy loss %v, KL %v, equal groups %v, left out %v", m[metrics.LossPolicy], m[metrics.LossKL], m[metrics.ScoreZeroStdGroups], m[metrics.TrainGroupsLeftOut])
	}
	scorer := &toyScorer{weights: before}
	want := make([]float64, endID+1)
	for _, row := range actor.rows() {
		current := scorer.logProbs(row.IDs)
		for k, position := range row.Positions {
			if row.Advantages[k] != 0 {
				t.Fatalf("advantage %v in a group of equal scores", row.Advantages[k])
			}
			d := float64(row.RefLogProbs[k]) - float64(current[position])
			want[row.IDs[position]] += float64(row.Weights[k]) * 0.1 * (1 - math.Exp(d))
		}
	}
	for id, g := range actor.gradients[0] {
		if !near(g, want[id]) {
			t.Errorf("gradient of token %d is %v, the KL term's %v", id, g, want[id])
		}
	}
	dropping := toyOptions(4)
	dropping.Advantage.DropEqualGroups = true
	trainer, actor = newToyTrainer(t, dropping, allRight)
	m := step(t, trainer, actor, "a", "b").Metrics
	if len(actor.micro) != 0 || len(actor.gradients) != 0 || m[metrics.LossTotal] != 0 || m[metrics.ScoreZeroStdGroups] != 1 || m[metrics.TrainGroupsLeftOut] != 2 {
		t.Errorf("dropped: %d micro-batches, loss %v, equal groups %v, left out %v", len(actor.micro), m[metrics.LossTotal], m[metrics.ScoreZeroStdGroups], m[metrics.TrainGroupsLeftOut])
	}
}

func TestADroppedGroupIsNotInTheDivisor(t *testing.T) {
	o := toyOptions(2)
	o.Advantage.DropEqualGroups = true
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string {
		return answers("m", map[bool]string{true: "A", false: "no"}[key.Question == "a" && key.Member == 0])
	})
	m := step(t, trainer, actor, "a", "b").Metrics
	checkTokenMean(t, actor.rows(), len(answers("m", "A"))+len(answers("m", "no")))
	if m[metrics.ScoreZeroStdGroups] != 0.5 || m[metrics.TrainGroupsLeftOut] != 1 {
		t.Errorf("equal groups %v, left out %v", m[metrics.ScoreZeroStdGroups], m[metrics.TrainGroupsLeftOut])
	}
}

// In the first optimiser step of a step the ratio is exactly 1, whatever the split; later ones
// are held against the weights at the start of the step.
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
		o.Update.RolloutOldLogProbs = fromRollout
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
	seen, moved := map[string]bool{}, false
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
	}
	if len(seen) < 8 || !moved {
		t.Errorf("only %d orders of 18 differ, from step to step %v", len(seen), moved)
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
