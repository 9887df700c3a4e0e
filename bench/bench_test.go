package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer"
)

// 2 questions × 4 trajectories of 20 + 3·6 + 2·9 = 56 tokens.
var testShape = Shape{
	Questions: 2, GroupSize: 4, PromptTokens: 20, Turns: 3, TurnTokens: 6, ToolTokens: 9, MemoryTokens: 4, AnswerTokens: 2,
	MicroBatchTokens: 256,
}

var testArchitecture = model.Architecture{
	VocabSize: 320, HiddenSize: 8, IntermediateSize: 16, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, MaxPositions: 512,
}

func testOptions() Options {
	return Options{
		Shape: testShape, Repeats: 2, ElementBytes: 2, Progress: func(string) func() { return func() {} },
		Trainer: trainer.Options{
			Rollout: rollout.Options{Schedule: rollout.Fixed, BatchTokens: 4096, Sampling: model.Sampling{Temperature: 1}, Seed: 7},
			Reward: trainer.RewardOptions{
				FormatReward: "gate", MemoryReward: "mem_minus_full", AnswerProb: "geometric", Truncated: "score", ContextLength: 512,
			},
			Scoring:   trainer.ScoringOptions{Form: trainer.FormCached},
			Advantage: advantage.Options{MemoryWeight: 1, Normalize: "std", Single: "zero", MinGroup: 2, MemoryGate: "none", MemoryPool: "question"},
			Update: trainer.UpdateOptions{
				Loss: model.LossOptions{KLEstimator: "low_var_kl", KLCoef: 0.001, Temperature: 1}, Aggregation: "token-mean",
				LearningRate: func(int) float64 { return 1e-6 }, PPOEpochs: 1, QuestionsPerMinibatch: 2, MicroBatchTokens: 256, MaxNonfinite: 10,
			},
		},
	}
}

func newTestBench(t *testing.T, o Options) (b *Bench, actor, reference *fakeModel) {
	t.Helper()
	actor, reference = &fakeModel{}, &fakeModel{}
	b, err := New(testArchitecture, actor, reference, o)
	if err != nil {
		t.Fatal(err)
	}
	return b, actor, reference
}

// What each stage computes, counted by hand. In a tree of one question the prompt's first 19 tokens are
// computed once; its last, which predicts a scored token, by each trajectory (19 + 4·37). Behind a
// trajectory each full context has its last token and the answer (3 tokens), each memory, whose opening
// tag is that of the first turn, 3 tokens and the answer (5). Where memories stand alone, the trajectory's
// first 35 tokens are those of the context of turn 2, whose answer needs the last of them once more, and
// the next 15 those of turn 3. Cached, a memory has all its tokens and the answer (6).
var wantTokens = map[string][2]int{ // computed, of the naive form
	stageRollout:              {2*19 + 8*(1+18+18-1), 8 * (26 + 41 + 56)},
	stageRollout + "/prefill": {2*19 + 8*2*10, 0}, stageRollout + "/decode": {8 * (1 + 5 + 5 + 5), 0},
	stageMemoryNaive: {8 * (37 + 52 + 2*26), 1128}, stageMemoryShared: {2 * (21 + 4*(14+3+15+2+2*5)), 1128}, stageMemoryCached: {8 * (2*3 + 2*6), 1128},
	stageOldNaive: {448, 448}, stageOldShared: {2 * (19 + 4*37), 448}, stageRefNaive: {448, 448}, stageRefShared: {334, 448},
	stageScoresNaive: {1576, 1576}, stageScoresShared: {2 * (19 + 4*(37+2*3+2*5)), 1576},
	stageUpdate: {448, 448}, // as the fake model says: it shares nothing
}

// What decoding reads. 16 passes, each over the 2 · 576 weights of the layers and 8 · 320 of the head; a trajectory's tokens see
// 20, then 21 … 25, 36 … 40 and 51 … 55 keys, each of 2 layers · (key and value) · 4 numbers.
const wantDecodeBytes = 2 * (16*(2*576+8*320) + 16*8*(20+115+190+265))

func TestStagesComputeWhatTheySay(t *testing.T) {
	b, actor, reference := newTestBench(t, testOptions())
	results, err := b.Measure(context.Background(), StageNames())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range results {
		seen[r.Stage] = true
		if want, known := wantTokens[r.Stage]; known && want != [2]int{r.Tokens, r.NaiveTokens} {
			t.Errorf("%s: %d tokens, naive %d; want %v", r.Stage, r.Tokens, r.NaiveTokens, want)
		}
		if len(r.Seconds) != 2 || r.MedianSeconds < r.MinSeconds || r.PeakMemoryBytes != 3<<20 {
			t.Errorf("figures that cannot be: %+v", r)
		}
		if decode := r.Stage == stageRollout+"/decode"; decode != (r.BytesRead > 0) || decode && r.BytesRead != wantDecodeBytes {
			t.Errorf("%s reads %g bytes, want %d of decoding alone", r.Stage, r.BytesRead, wantDecodeBytes)
		}
		if part := strings.HasPrefix(r.Stage, stageStep+"/"); (r.Operations > 0) == part {
			t.Errorf("%s: %g operations", r.Stage, r.Operations)
		}
	}
	for stage := range wantTokens {
		if !seen[stage] {
			t.Errorf("%s was not measured", stage)
		}
	}
	for _, part := range append(slices.Clone(stepParts), "") {
		if name := strings.TrimSuffix(stageStep+"/"+part, "/"); !seen[name] {
			t.Errorf("%s was not measured", name)
		}
	}
	if actor.updates == 0 || actor.trained == 0 || reference.updates != 0 || reference.trained != 0 {
		t.Errorf("the actor was updated %d times, the reference %d times", actor.updates, reference.updates)
	}
	actor.closed(t)
	reference.closed(t)
}

// The meter counts what the model is given, whatever the form.
func TestMeterCountsWhatTheModelComputes(t *testing.T) {
	for _, stage := range StageNames() {
		b, actor, reference := newTestBench(t, testOptions())
		var forms []string
		for _, list := range b.stages() {
			for _, s := range list {
				if s.name != stage || stage == stageUpdate || stage == stageStep {
					continue
				}
				forms = append(forms, s.name)
				if err := s.warm(context.Background()); err != nil {
					t.Fatal(err)
				}
				actor.tokens, reference.tokens = 0, 0
				timings, err := s.run(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if got := actor.tokens + reference.tokens; got != timings[0].tokens {
					t.Errorf("%s: %d tokens counted, %d computed", stage, timings[0].tokens, got)
				}
				if s.close != nil {
					_ = s.close()
				}
			}
		}
		if len(forms) > 1 {
			t.Errorf("%s is there %d times", stage, len(forms))
		}
	}
}

// A whole step computes what its stages do: the trainer's own counts are the meter's, in every form.
func TestStepComputesItsParts(t *testing.T) {
	for form, memory := range map[string]int{trainer.FormNaive: 1128, trainer.FormShared: 462 - 334, trainer.FormCached: 144} {
		o := testOptions()
		o.Trainer.Scoring.Form = form
		b, _, _ := newTestBench(t, o)
		results, err := b.Measure(context.Background(), []string{stageStep})
		if err != nil {
			t.Fatal(err)
		}
		tokens := map[string]int{}
		for _, r := range results {
			tokens[strings.TrimPrefix(r.Stage, stageStep+"/")] = r.Tokens
		}
		if sum := tokens[stageRollout] + tokens[partMemory] + tokens["old_log_prob"] + tokens["ref_log_prob"] + 448; tokens[partMemory] != memory || tokens[stageStep] != sum {
			t.Errorf("%s: %v, want %d for memories and %d in all", form, tokens, memory, sum)
		}
	}
}

// Rollouts follow the script: the shape's lengths, memories and actions at their places, and tokens of
// the model everywhere else, whatever the batches.
func TestRolloutsFollowTheScript(t *testing.T) {
	var first []*rollout.Trajectory
	for _, schedule := range []rollout.Schedule{rollout.Fixed, rollout.Eager} {
		for _, batchTokens := range []int{4096, 7} {
			o := testOptions()
			o.Trainer.Rollout.Schedule, o.Trainer.Rollout.BatchTokens = schedule, batchTokens
			b, actor, _ := newTestBench(t, o)
			groups, _, err := rollout.Run(context.Background(), b.scripted(b.script), b.script.questions(), b.script.options(o.Trainer.Rollout), b.script.tools())
			if err != nil {
				t.Fatal(err)
			}
			var all []*rollout.Trajectory
			for _, g := range groups {
				all = append(all, g.Trajectories...)
			}
			sameShape(t, all, b.trajectories)
			if first == nil {
				first = all
			}
			for k := range all {
				if !slices.Equal(all[k].ResponseIDs, first[k].ResponseIDs) {
					t.Errorf("%s, passes of %d: trajectory %d is another", schedule, batchTokens, k)
				}
			}
			actor.closed(t)
		}
	}
	if slices.Equal(first[0].ResponseIDs, first[1].ResponseIDs) {
		t.Error("two trajectories are the same")
	}
}

// sameShape compares sampled trajectories with made-up ones in all but the tokens of the model's choice.
func sameShape(t *testing.T, sampled, madeUp []*rollout.Trajectory) {
	t.Helper()
	for k, got := range sampled {
		want := madeUp[k]
		if got.Stop != rollout.Answered || got.Member != want.Member || !slices.Equal(got.PromptIDs, want.PromptIDs) || !slices.Equal(got.ResponseMask, want.ResponseMask) {
			t.Fatalf("trajectory %d ended as %s, with %d tokens; the script has %d", k, got.Stop, len(got.ResponseIDs), len(want.ResponseIDs))
		}
		for j, id := range want.ResponseIDs {
			if scripted := !want.ResponseMask[j] || id < firstFiller; scripted && got.ResponseIDs[j] != id || !scripted && got.ResponseIDs[j] < firstFiller {
				t.Errorf("trajectory %d has token %d at %d, the script %d", k, got.ResponseIDs[j], j, id)
			}
		}
		for turn, made := range want.Turns {
			if g := got.Turns[turn]; g.Tokens != made.Tokens || g.HasMemory != made.HasMemory || g.Memory != made.Memory && made.HasMemory {
				t.Errorf("turn %d of trajectory %d is %+v, in the script %+v", turn+1, k, g, made)
			}
		}
	}
}

func TestShapesAtTheEdge(t *testing.T) {
	for name, change := range map[string]func(*Shape){
		"no memory":             func(s *Shape) { s.MemoryTokens = 0 },
		"a memory of one token": func(s *Shape) { s.MemoryTokens = 1 },
		"one turn":              func(s *Shape) { s.Turns = 1 },
		"no results":            func(s *Shape) { s.ToolTokens = 0 },
		"turns of one token":    func(s *Shape) { s.TurnTokens, s.MemoryTokens = 1, 0 },
		"a memory to the end":   func(s *Shape) { s.MemoryTokens = s.TurnTokens - 1 },
		"one trajectory":        func(s *Shape) { s.Questions, s.GroupSize = 1, 1 },
		"short micro-batches":   func(s *Shape) { s.MicroBatchTokens = 9 },
		"a prompt of one token": func(s *Shape) { s.PromptTokens = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions()
			change(&o.Shape)
			b, actor, _ := newTestBench(t, o)
			results, err := b.Measure(context.Background(), StageNames())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if math.IsNaN(r.TokensPerSecond) || math.IsInf(r.TokensPerSecond, 0) || r.NaiveTokens > 0 && r.Tokens > r.NaiveTokens {
					t.Errorf("figures that cannot be: %+v", r)
				}
			}
			actor.closed(t)
		})
	}
}

// Tokens of the update are those that the model tells; its operations are those of a tree for each micro-batch:
// a prompt's first 19 tokens, and behind them four times 37 of which 18 are trained.
func TestWorkOfTheUpdate(t *testing.T) {
	b, _, _ := newTestBench(t, testOptions())
	results, err := b.Measure(context.Background(), []string{stageUpdate})
	if err != nil {
		t.Fatal(err)
	}
	want := Work{Tokens: 2 * (19 + 4*37), Pairs: 2 * (19*20/2 + 4*(19*37+37*38/2)), Heads: 8 * 18}.Training(testArchitecture, false)
	if results[0].Tokens != 448 || results[0].Operations != want {
		t.Errorf("%d tokens and %g operations, want 448 and %g", results[0].Tokens, results[0].Operations, want)
	}
}

// A reference that is there for its own stage has no part in a step without a KL term.
func TestAStepWithoutKLHasNoReference(t *testing.T) {
	tokens := map[float64]int{}
	for _, klCoef := range []float64{0, 0.001} {
		o := testOptions()
		o.Trainer.Update.Loss.KLCoef = klCoef
		b, _, reference := newTestBench(t, o)
		results, err := b.Measure(context.Background(), []string{stageStep})
		if err != nil {
			t.Fatal(err)
		}
		if ran := reference.tokens > 0; ran != (klCoef != 0) {
			t.Errorf("KL coefficient %g: %d tokens of the reference", klCoef, reference.tokens)
		}
		tokens[klCoef] = results[0].NaiveTokens
	}
	if tokens[0.001]-tokens[0] != 448 {
		t.Errorf("naive tokens %v, want 448 more with a reference", tokens)
	}
}

func TestFailuresNameTheStage(t *testing.T) {
	for _, name := range []string{stageMemoryNaive, stageScoresShared, stageMemoryCached, stageUpdate, stageStep} {
		b, actor, _ := newTestBench(t, testOptions())
		actor.failing = model.ErrOutOfMemory
		_, err := b.Measure(context.Background(), []string{name})
		var failed *Error
		if !errors.As(err, &failed) || failed.Stage != name || !errors.Is(err, model.ErrOutOfMemory) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s failed with %v", name, err)
		}
	}
	b, actor, _ := newTestBench(t, testOptions())
	actor.closing = errors.New("stuck")
	var failed *Error
	if _, err := b.Measure(context.Background(), []string{stageMemoryCached}); !errors.As(err, &failed) || failed.Stage != stageMemoryCached || !errors.Is(err, actor.closing) {
		t.Errorf("a session that cannot be closed: %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range StageNames() {
		b, actor, _ := newTestBench(t, testOptions())
		if _, err := b.Measure(ended, []string{name}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s went on after the end: %v", name, err)
		}
		actor.closed(t)
	}
	tiny := testArchitecture
	tiny.VocabSize = 5
	if _, err := New(tiny, &fakeModel{}, nil, testOptions()); err == nil {
		t.Error("a model of 5 tokens has nothing to write")
	}
	o := testOptions()
	o.Shape.Turns = 100
	if _, err := New(testArchitecture, &fakeModel{}, nil, o); err == nil || !strings.Contains(err.Error(), "512") {
		t.Errorf("a step that outgrows the context: %v", err)
	}
}
