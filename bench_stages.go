package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// The stages of a step, in the order in which they run; forms of one stage differ behind the slash.
const (
	stageRollout     = "rollout"
	stageOldLogProb  = "old_log_prob"
	stageMemoryNaive = "memory_score/naive"
	stageRefLogProb  = "ref_log_prob"
	stageUpdate      = "update"
)

var benchStageNames = []string{stageRollout, stageOldLogProb, stageMemoryNaive, stageRefLogProb, stageUpdate}

// bench is a model and the made-up trajectories of one step.
type bench struct {
	config    *config.Config
	shape     benchShape
	progress  metrics.Progress
	runtime   *engine.Runtime
	actor     *engine.Model
	reference *engine.Model // nil where its stage is not timed
	dtype     string

	trajectories []*rollout.Trajectory // question by question
	answers      [][]int32             // of each question
	old          [][]float32           // log-probs of the trajectories' own tokens, once they are known
}

func (b *bench) close() error {
	var err error
	for _, m := range []*engine.Model{b.actor, b.reference} {
		if m != nil {
			err = firstError(err, m.Close())
		}
	}
	b.runtime.Close()
	return err
}

// makeTrajectories draws every token; the rollout, if it is timed, replaces those of the model.
func (b *bench) makeTrajectories(vocabulary int) {
	random := rand.New(rand.NewPCG(uint64(b.config.Run.Seed), 0))
	draw := func(n int) []int32 {
		ids := make([]int32, n)
		for k := range ids {
			ids[k] = int32(random.IntN(vocabulary))
		}
		return ids
	}
	s := b.shape
	for range s.Questions {
		prompt := draw(s.PromptTokens)
		b.answers = append(b.answers, draw(s.AnswerTokens))
		for member := range s.GroupSize {
			t := &rollout.Trajectory{Member: member, PromptIDs: prompt, ResponseIDs: draw(s.trajectoryTokens() - s.PromptTokens)}
			t.ResponseMask = make([]bool, len(t.ResponseIDs))
			for k := range s.Turns {
				start := k * (s.TurnTokens + s.ToolTokens)
				for n := range s.TurnTokens {
					t.ResponseMask[start+n] = true
				}
				t.Turns = append(t.Turns, rollout.Turn{
					Tokens: rollout.Span{Start: start, End: start + s.TurnTokens}, HasMemory: s.MemoryTokens > 0,
					Memory: rollout.Span{Start: start, End: start + s.MemoryTokens}, MemoryIDs: t.ResponseIDs[start : start+s.MemoryTokens],
				})
			}
			b.trajectories = append(b.trajectories, t)
		}
	}
}

// benchStage is one stage: what is done once before it is timed, and the stage itself.
type benchStage struct {
	name      string
	warm, run func(context.Context) ([]timing, error)
}

// timing is a stage, or a part of it that is named behind a slash.
type timing struct {
	name   string
	tokens int
	took   time.Duration
}

func (b *bench) stages() []benchStage {
	few := min(2, b.shape.TurnTokens)
	return []benchStage{
		{
			stageRollout,
			func(ctx context.Context) ([]timing, error) { return b.rollout(ctx, 1, few) },
			func(ctx context.Context) ([]timing, error) { return b.rollout(ctx, b.shape.Turns, b.shape.TurnTokens) },
		},
		b.scoring(stageOldLogProb, func() *engine.Model { return b.actor }, b.responseRows, b.config.Rollout.Temperature),
		b.scoring(stageMemoryNaive, func() *engine.Model { return b.actor }, b.memoryRows, 1),
		b.scoring(stageRefLogProb, func() *engine.Model { return b.reference }, b.responseRows, b.config.Rollout.Temperature),
		{stageUpdate, b.update, b.update}, // the first one also makes the moments
	}
}

// scoring is a stage that scores rows with a model; one row warms it up.
func (b *bench) scoring(name string, scorer func() *engine.Model, rows func() []model.ScoreRow, temperature float64) benchStage {
	run := func(ctx context.Context, rows []model.ScoreRow) ([]timing, error) {
		begun := time.Now()
		_, tokens, err := b.score(ctx, scorer(), rows, temperature)
		return []timing{{name, tokens, time.Since(begun)}}, err
	}
	return benchStage{
		name,
		func(ctx context.Context) ([]timing, error) { return run(ctx, rows()[:min(1, len(rows()))]) },
		func(ctx context.Context) ([]timing, error) { return run(ctx, rows()) },
	}
}

// measure repeats a stage. The peak of the memory is that of all repeats.
func (b *bench) measure(ctx context.Context, stage benchStage, repeats int) ([]benchResult, error) {
	shown := b.progress.Stage(stage.name, repeats)
	defer shown.Done()
	if _, err := stage.warm(ctx); err != nil {
		return nil, err
	}
	if err := b.actor.ResetPeak(); err != nil {
		return nil, err
	}
	var results []benchResult
	for range repeats {
		timings, err := stage.run(ctx)
		if err != nil {
			return nil, err
		}
		for k, t := range timings {
			if len(results) == k {
				results = append(results, benchResult{Stage: t.name, Tokens: t.tokens})
			}
			results[k].Seconds = append(results[k].Seconds, t.took.Seconds())
		}
		shown.Add(1)
	}
	usage, err := b.actor.MemoryUsage()
	if err != nil {
		return nil, err
	}
	for k := range results {
		results[k].PeakMemoryBytes = usage.Peak
		results[k].sum()
	}
	return results, nil
}

// sum computes the figures that follow from the repeats.
func (r *benchResult) sum() {
	sorted := slices.Sorted(slices.Values(r.Seconds))
	n := len(sorted)
	r.MinSeconds, r.MedianSeconds = sorted[0], (sorted[(n-1)/2]+sorted[n/2])/2
	r.TokensPerSecond = float64(r.Tokens) / r.MedianSeconds
}

func (b *bench) responseRows() []model.ScoreRow {
	var rows []model.ScoreRow
	for _, t := range b.trajectories {
		rows = append(rows, model.ScoreRow{IDs: t.FullIDs(), Positions: t.ModelPositions()})
	}
	return rows
}

// memoryRows are the contexts of the extra forward pass, each whole.
func (b *bench) memoryRows() []model.ScoreRow {
	var rows []model.ScoreRow
	for k, t := range b.trajectories {
		for _, pair := range reward.MemoryPairs(t, nil, b.answers[k/b.shape.GroupSize]) {
			rows = append(rows, pair.Full, pair.Memory)
		}
	}
	return rows
}

// score scores rows in micro-batches and counts the tokens that go through the model.
func (b *bench) score(ctx context.Context, scorer model.Scorer, rows []model.ScoreRow, temperature float64) (scores []model.RowScores, tokens int, err error) {
	lengths := make([]int, len(rows))
	for k, row := range rows {
		lengths[k] = len(row.IDs)
		tokens += len(row.IDs)
	}
	for _, part := range batch.Split(lengths, b.shape.MicroBatchTokens) {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		some, err := scorer.Score(rows[part.Start:part.End], temperature)
		if err != nil {
			return nil, 0, err
		}
		scores = append(scores, some...)
	}
	return scores, tokens, nil
}

// update is one optimiser step over all trajectories.
func (b *bench) update(ctx context.Context) ([]timing, error) {
	rows, lengths, err := b.trainRows(ctx)
	if err != nil {
		return nil, err
	}
	options := updateOptions(b.config)
	begun, tokens := time.Now(), 0
	for _, part := range batch.Split(lengths, b.shape.MicroBatchTokens) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := b.actor.ForwardBackward(rows[part.Start:part.End], options.Loss); err != nil {
			return nil, err
		}
		for _, length := range lengths[part.Start:part.End] {
			tokens += length
		}
	}
	_, err = b.actor.Update(options.LearningRate(1), options.Optimizer)
	return []timing{{stageUpdate, tokens, time.Since(begun)}}, err
}

// trainRows puts random advantages on the trajectories; the reference is the model as it was.
func (b *bench) trainRows(ctx context.Context) (rows []model.TrainRow, lengths []int, err error) {
	scored := b.responseRows()
	if b.old == nil {
		scores, _, err := b.score(ctx, b.actor, scored, b.config.Rollout.Temperature)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range scores {
			b.old = append(b.old, s.LogProbs)
		}
	}
	counts := make([]int, len(scored))
	for k, row := range scored {
		counts[k] = len(row.Positions)
	}
	weights, err := batch.Weights(b.config.Loss.Aggregation, b.config.Loss.Divisor, counts)
	if err != nil {
		return nil, nil, err
	}
	random := rand.New(rand.NewPCG(uint64(b.config.Run.Seed), 1))
	for k, row := range scored {
		lengths = append(lengths, len(row.IDs))
		rows = append(rows, model.TrainRow{
			IDs: row.IDs, Positions: row.Positions, OldLogProbs: b.old[k], RefLogProbs: b.old[k],
			Advantages: slices.Repeat([]float32{float32(random.NormFloat64())}, counts[k]),
			Weights:    slices.Repeat([]float32{float32(weights[k])}, counts[k]),
		})
	}
	return rows, lengths, nil
}

// liveRow is a sequence that is being generated.
type liveRow struct {
	row     int
	feed    []int32 // to go in before the next token is sampled
	seed    rollout.SeedKey
	sampled int32
}

// rollout generates all trajectories together: each prompt once, copied for the members of its
// group, then turn after turn, and behind each turn but the last a tool result.
func (b *bench) rollout(ctx context.Context, turns, turnTokens int) (timings []timing, err error) {
	session, err := b.actor.NewSession(model.SessionOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = firstError(err, session.Close()) }()
	prefill, decode := timing{name: stageRollout + "/prefill"}, timing{name: stageRollout + "/decode"}
	rows, err := b.openRows(session, &prefill)
	if err != nil {
		return nil, err
	}
	for turn := range turns {
		start := turn * (b.shape.TurnTokens + b.shape.ToolTokens)
		for position := range turnTokens {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			part := &decode
			if position == 0 {
				part = &prefill
			}
			if err := b.pass(session, rows, true, part); err != nil {
				return nil, err
			}
			for k, r := range rows {
				b.trajectories[k].ResponseIDs[start+position] = r.sampled
				r.feed = []int32{r.sampled}
				r.seed.Position++
			}
		}
		for k, r := range rows {
			if turn+1 < turns {
				r.feed = append(r.feed, b.trajectories[k].ResponseIDs[start+turnTokens:][:b.shape.ToolTokens]...)
			}
			r.seed.Turn, r.seed.Position = turn+1, 0
		}
	}
	whole := timing{stageRollout, turns * turnTokens * len(rows), prefill.took + decode.took}
	return []timing{whole, prefill, decode}, nil
}

// openRows puts each prompt but for its last token into a row and copies the row for each member.
func (b *bench) openRows(session model.Session, prefill *timing) ([]*liveRow, error) {
	var prompts, rows []*liveRow
	for question := range b.shape.Questions {
		row, err := session.Open()
		if err != nil {
			return nil, err
		}
		prompt := b.trajectories[question*b.shape.GroupSize].PromptIDs
		prompts = append(prompts, &liveRow{row: row, feed: prompt[:len(prompt)-1]})
	}
	if err := b.pass(session, prompts, false, prefill); err != nil {
		return nil, err
	}
	begun := time.Now()
	for k, t := range b.trajectories {
		question := k / b.shape.GroupSize
		row := prompts[question].row // the last member's own
		if t.Member < b.shape.GroupSize-1 {
			var err error
			if row, err = session.Fork(row, len(t.PromptIDs)-1); err != nil {
				return nil, err
			}
		}
		rows = append(rows, &liveRow{
			row: row, feed: t.PromptIDs[len(t.PromptIDs)-1:],
			seed: rollout.SeedKey{Run: uint64(b.config.Run.Seed), Question: strconv.Itoa(question), Draw: question, Member: t.Member},
		})
	}
	prefill.took += time.Since(begun)
	return rows, nil
}

// pass puts the feed of every row into its cache, in forward passes of at most rollout.batch_tokens
// tokens, and samples behind each.
func (b *bench) pass(session model.Session, rows []*liveRow, sample bool, part *timing) error {
	begun := time.Now()
	for {
		var inputs []model.RowInput
		var taking []*liveRow
		left := b.config.Rollout.BatchTokens
		for _, r := range rows {
			if ids := r.feed[:min(left, len(r.feed))]; len(ids) > 0 {
				inputs = append(inputs, model.RowInput{
					Row: r.row, IDs: ids, Sample: sample && len(ids) == len(r.feed),
					Sampling: model.Sampling{Temperature: b.config.Rollout.Temperature}, Seed: r.seed.Seed(),
				})
				taking = append(taking, r)
				left -= len(ids)
				r.feed = r.feed[len(ids):]
			}
		}
		if len(inputs) == 0 {
			part.took += time.Since(begun)
			return nil
		}
		sampled, err := session.Step(inputs)
		if err != nil {
			return err
		}
		for k, r := range taking {
			r.sampled = sampled[k].ID
			part.tokens += len(inputs[k].IDs)
		}
	}
}
