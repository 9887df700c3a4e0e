package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// The stages of a step in the order in which they run, and the whole step. Forms of one stage differ
// behind the slash: in the naive form every row goes through the model whole, in the shared form each
// token once, in the cached form against caches that a rollout leaves behind.
const (
	stageRollout      = "rollout"
	stageMemoryNaive  = "memory_score/naive"
	stageMemoryShared = "memory_score/shared"
	stageMemoryCached = "memory_score/cached"
	stageOldNaive     = "old_log_prob/naive"
	stageOldShared    = "old_log_prob/shared"
	stageScoresNaive  = "scores/naive"  // memories and old log-probs, one pass after the other
	stageScoresShared = "scores/shared" // both as one tree
	stageRefNaive     = "ref_log_prob/naive"
	stageRefShared    = "ref_log_prob/shared"
	stageUpdate       = "update"
	stageStep         = "step" // trainer.Step, with the settings of [scoring]
)

// partMemory is the part of a step that measures memories.
const partMemory = "memory_score"

// stepParts are the parts of a step, by their names in the trainer's metrics.
var stepParts = []string{stageRollout, partMemory, "old_log_prob", "ref_log_prob", stageUpdate}

// StageNames lists every stage.
func StageNames() []string {
	return []string{
		stageRollout, stageMemoryNaive, stageMemoryShared, stageMemoryCached, stageOldNaive, stageOldShared,
		stageScoresNaive, stageScoresShared, stageRefNaive, stageRefShared, stageUpdate, stageStep,
	}
}

// NeedsReference reports whether stages of given names score with the reference.
func NeedsReference(names []string, klCoef float64) bool {
	return Selected(names, stageRefNaive) || Selected(names, stageRefShared) || Selected(names, stageStep) && klCoef != 0
}

// stages lists every stage; the forms in one list run in turns.
func (b *Bench) stages() [][]stage {
	memory, responses := b.memoryRows(), b.responseRows()
	all := append(slices.Clone(memory), responses...)
	actor, reference := &meteredScorer{b.actor, b.meter, nil}, &meteredScorer{b.reference, b.meter, nil}
	return [][]stage{
		{b.rolloutStage()},
		{b.naive(stageMemoryNaive, actor, memory), b.shared(stageMemoryShared, actor, memory)},
		{b.cached()},
		{b.naive(stageOldNaive, actor, responses), b.shared(stageOldShared, actor, responses)},
		{b.naive(stageScoresNaive, actor, memory, responses), b.shared(stageScoresShared, actor, all)},
		{b.naive(stageRefNaive, reference, responses), b.shared(stageRefShared, reference, responses)},
		{b.updateStage()},
		{b.stepStage()}, // behind the update, which has made the moments by then
	}
}

// few is a small step, to warm up with.
func (b *Bench) few() (*script, error) {
	s := b.Shape
	s.Questions, s.GroupSize = 1, min(2, s.GroupSize)
	s.Turns, s.TurnTokens = min(2, s.Turns), min(s.TurnTokens, s.MemoryTokens+2)
	return newScript(s, b.architecture.VocabSize, b.Trainer.Rollout.Seed)
}

// scripted is the actor, whose draws a script decides.
func (b *Bench) scripted(s *script) *meteredActor {
	return meterActor(b.actor, b.meter, s.seeds(b.Trainer.Rollout.Seed, scriptStep))
}

// warmed makes a warm function of what can be done with a small step.
func (b *Bench) warmed(run func(context.Context, *script) ([]timing, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		small, err := b.few()
		if err == nil {
			_, err = run(ctx, small)
		}
		return err
	}
}

func (b *Bench) rolloutStage() stage {
	return stage{
		name: stageRollout, naive: b.Shape.naiveRollout(), warm: b.warmed(b.rollout),
		run: func(ctx context.Context) ([]timing, error) { return b.rollout(ctx, b.script) },
	}
}

// rollout generates all trajectories of a script.
func (b *Bench) rollout(ctx context.Context, s *script) ([]timing, error) {
	actor := b.scripted(s)
	timings, err := b.timed(stageRollout, func() error {
		_, stats, err := rollout.Run(ctx, actor, s.questions(), s.options(b.Trainer.Rollout), s.tools())
		if err == nil && stats.GeneratedTokens != s.shape.sampled() {
			err = unscripted(stats.GeneratedTokens, s.shape.sampled())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	timings[0].sampled = s.shape.sampled()
	prefill, decode := b.meter.prefill, b.meter.decode
	decoding := b.timing(stageRollout+"/decode", &meter{decode: decode}, decode.took)
	decoding.bytes = decode.Bytes(b.architecture, decode.passes, b.ElementBytes)
	return append(timings, b.timing(stageRollout+"/prefill", &meter{prefill: prefill}, prefill.took), decoding), nil
}

func (b *Bench) updateStage() stage {
	var rows []model.TrainRow
	lengths := make([]int, len(b.trajectories))
	for k, t := range b.trajectories {
		lengths[k] = len(t.PromptIDs) + len(t.ResponseIDs)
	}
	parts := batch.Split(lengths, b.Shape.MicroBatchTokens)
	update := func(ctx context.Context, parts []batch.Part) ([]timing, error) {
		return b.timed(stageUpdate, func() error { return b.update(ctx, rows, parts) })
	}
	return stage{
		name: stageUpdate, naive: b.Shape.Trajectories() * b.Shape.TrajectoryTokens(),
		warm: func(ctx context.Context) (err error) {
			if rows, err = b.trainRows(ctx); err == nil {
				_, err = update(ctx, parts[:1]) // it also makes the moments
			}
			return err
		},
		run: func(ctx context.Context) ([]timing, error) { return update(ctx, parts) },
	}
}

// update is one optimiser step over micro-batches.
func (b *Bench) update(ctx context.Context, rows []model.TrainRow, parts []batch.Part) error {
	actor, options := meterActor(b.actor, b.meter, nil), b.Trainer.Update
	for _, part := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := actor.ForwardBackward(rows[part.Start:part.End], options.Loss); err != nil {
			return err
		}
	}
	_, err := actor.Update(options.LearningRate(scriptStep), options.Optimizer)
	return err
}

// trainRows puts random advantages on the trajectories; the reference is the model as it was.
func (b *Bench) trainRows(ctx context.Context) ([]model.TrainRow, error) {
	scored := b.responseRows()
	old, err := b.score(ctx, b.actor, scored)
	if err != nil {
		return nil, err
	}
	counts := slices.Repeat([]int{b.Shape.Turns * b.Shape.TurnTokens}, len(scored))
	weights, err := batch.Weights(b.Trainer.Update.Aggregation, b.Trainer.Update.Divisor, counts)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(b.Trainer.Rollout.Seed, 2))
	var rows []model.TrainRow
	for k, row := range scored {
		rows = append(rows, model.TrainRow{
			IDs: row.IDs, Positions: row.Positions, OldLogProbs: old[k], RefLogProbs: old[k],
			Advantages: slices.Repeat([]float32{float32(random.NormFloat64())}, counts[k]),
			Weights:    slices.Repeat([]float32{float32(weights[k])}, counts[k]),
		})
	}
	return rows, nil
}

func (b *Bench) stepStage() stage {
	tokens := b.Shape.Trajectories() * b.Shape.TrajectoryTokens()
	naive := b.Shape.naiveRollout() + b.memoryTokens() + tokens*(1+b.Trainer.Update.PPOEpochs)
	if b.Trainer.Update.Loss.KLCoef != 0 {
		naive += tokens
	}
	return stage{
		name: stageStep, naive: naive, warm: b.warmed(b.step),
		run: func(ctx context.Context) ([]timing, error) { return b.step(ctx, b.script) },
	}
}

// step is a whole step of the trainer on the questions of a script. Its parts have the times and tokens
// that the trainer tells.
func (b *Bench) step(ctx context.Context, s *script) ([]timing, error) {
	options := b.Trainer
	options.Rollout, options.Tools = s.options(options.Rollout), s.tools()
	options.Advantage.DropEqualGroups = false // what is made up may well be equal
	options.Advantage.MinGroup = 1
	options.Update.QuestionsPerMinibatch = min(options.Update.QuestionsPerMinibatch, s.shape.Questions)
	options.Decode = func([]int32) string { return "" }
	var reference trainer.Reference
	if b.reference != nil && options.Update.Loss.KLCoef != 0 { // it may be there for its own stage alone
		reference = &meteredScorer{b.reference, b.meter, nil}
	}
	t, err := trainer.New(b.scripted(s), reference, options, trainer.Watch{})
	if err != nil {
		return nil, err
	}
	var told map[string]float64
	timings, err := b.timed(stageStep, func() error {
		result, err := t.Step(ctx, scriptStep, s.questions())
		if err == nil {
			told = result.Metrics
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, part := range stepParts {
		if seconds, there := told[metrics.Time(part)]; there {
			took := time.Duration(seconds * float64(time.Second))
			timings = append(timings, timing{name: stageStep + "/" + part, tokens: int(told[metrics.Tokens(part)]), took: took})
		}
	}
	return timings, nil
}
