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
	plan, scores, losses := updated(t, trainer, graded, all, clock)
	result, err := trainer.report(1, &stepData{graded: graded, memories: noMemories(graded), advantages: all, plan: plan, scores: scores, losses: losses, clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return result.Metrics
}

// updated scores groups and trains on them, with the given advantages.
func updated(t *testing.T, trainer *Trainer, graded []Graded, all []GroupAdvantages, clock *clock) (*Plan, *ResponseScores, *Losses) {
	t.Helper()
	rows, err := trainer.rows(graded)
	if err != nil {
		t.Fatal(err)
	}
	_, scores, err := trainer.scoreActor(context.Background(), 1, graded, nil, rows, clock)
	if err != nil {
		t.Fatal(err)
	}
	plan := trainer.plan(1, rows, all)
	losses, err := trainer.update(context.Background(), 1, plan, scores, clock)
	if err != nil {
		t.Fatal(err)
	}
	return plan, scores, losses
}

// withoutKL is a trainer whose loss has no KL term, and so no reference.
func withoutKL(t *testing.T, change func(*Options)) (*Trainer, *toyActor) {
	t.Helper()
	o := toyOptions(1)
	o.Update.Loss.KLCoef, o.Advantage.MinGroup = 0, 1
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
		trainer.Scoring.RolloutOldLogProbs = true
		updated(t, trainer, graded, all, newClock())
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
		trainer, actor := withoutKL(t, func(o *Options) { o.Scoring.RolloutOldLogProbs = true })
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
