package trainer

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
)

// searchFunc is a search engine made of a function.
type searchFunc func(ctx context.Context, query string) ([]retrieval.Passage, error)

func (f searchFunc) Search(ctx context.Context, query string, _ int) ([]retrieval.Passage, error) {
	return f(ctx, query)
}

// echo finds one passage, which names the query.
func echo(_ context.Context, query string) ([]retrieval.Passage, error) {
	return []retrieval.Passage{{ID: "1", Contents: "\"T\"\nabout " + query}}, nil
}

// drawn makes questions; the golden answer of question "a" is "A".
func drawn(ids ...string) []rollout.Drawn {
	var all []rollout.Drawn
	for k, id := range ids {
		all = append(all, rollout.Drawn{Question: question(id), Draw: k})
	}
	return all
}

func question(id string) dataset.Question {
	return dataset.Question{ID: id, Text: "who is " + id + "?", Objectives: [][]string{{strings.ToUpper(id)}}}
}

// toyOptions train groups of the given size, all their questions in one mini-batch.
func toyOptions(group int) Options {
	return Options{
		Rollout: rollout.Options{
			Rules: byteRules(), GroupSize: group, Sampling: model.Sampling{Temperature: 0.7}, Seed: 7,
			Schedule: rollout.Fixed, BatchTokens: 4096,
		},
		Tools:     rollout.Tools{Search: searchFunc(echo), TopK: 1, Concurrency: 16},
		Reward:    RewardOptions{FormatReward: "gate", MemoryReward: "mem_minus_full", AnswerProb: "geometric", Truncated: "score"},
		Scoring:   ScoringOptions{Form: FormNaive},
		Advantage: advantage.Default(),
		Update: UpdateOptions{
			Loss:        model.LossOptions{ClipLow: 0.2, ClipHigh: 0.2, KLEstimator: "low_var_kl", KLCoef: 0.1, Temperature: 0.7},
			Aggregation: "token-mean", LearningRate: func(step int) float64 { return 0.5 / float64(step) },
			PPOEpochs: 1, QuestionsPerMinibatch: 100, MicroBatchTokens: 300, MaxNonfinite: 3,
		},
		Decode: decode,
	}
}

// forms are all forms of scoring.
var forms = []string{FormNaive, FormShared, FormCached}

// newToyTrainer trains an actor that writes by a script, against a reference of other weights.
func newToyTrainer(t testing.TB, o Options, s script) (*Trainer, *toyActor) {
	t.Helper()
	actor := newToyActor(t, s)
	actor.expect(o, []string{"a", "b", "c", "d"}, 3, 4)
	trainer, err := New(actor, actor.frozen(0.1), o, Watch{})
	if err != nil {
		t.Fatal(err)
	}
	return trainer, actor
}

// step takes step 1 and checks that no session was left open.
func step(t testing.TB, trainer *Trainer, actor *toyActor, questions ...string) *Result {
	t.Helper()
	result, err := trainer.Step(context.Background(), 1, drawn(questions...))
	if err != nil {
		t.Fatal(err)
	}
	if actor.open != 0 {
		t.Errorf("%d sessions were left open", actor.open)
	}
	return result
}

// near compares numbers that went through float32.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-5*max(1, math.Abs(b)) }

// advantagesOf lists the outcome advantages in the order of the records.
func advantagesOf(result *Result) []float64 {
	var all []float64
	for _, record := range result.Records {
		all = append(all, float64(record.Rewards["outcome_advantage"]))
	}
	return all
}

// scripted gives member m the m-th list of turns, whatever the question.
func scripted(members ...[]string) script {
	return func(key rollout.SeedKey) string { return members[key.Member%len(members)][key.Turn] }
}
