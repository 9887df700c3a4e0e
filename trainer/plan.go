package trainer

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/batch"
)

// trainedRow is one sequence of the update, with everything that belongs to it: a whole trajectory,
// or in limited context one turn of it.
type trainedRow struct {
	group, member int
	ids           []int32
	positions     []int32 // of the trained tokens in ids
	advantages    []float32
	sampled       []float32 // log-probs seen when sampling
}

// Plan says which rows meet in which mini-batch (one optimiser step) of which epoch.
type Plan struct {
	rows   []trainedRow
	epochs [][]minibatch
}

// minibatch lists rows by index, cut into micro-batches.
type minibatch struct{ micro [][]int }

// shuffleStream keeps the shuffles of mini-batches apart from other uses of the run's seed.
const shuffleStream = 0x6d696e69

// plan draws the mini-batches: whole questions, shuffled anew in each epoch by the run's seed.
func (t *Trainer) plan(step int, graded []Graded, advantages []GroupAdvantages) *Plan {
	plan := &Plan{}
	byQuestion := make([][]int, len(graded))
	for g, group := range graded {
		if advantages[g].LeftOut {
			continue
		}
		for i, trajectory := range group.Trajectories {
			for _, row := range trainedRows(trajectory, advantages[g].Masks[i], advantages[g].Tokens[i]) {
				row.group, row.member = g, i
				byQuestion[g] = append(byQuestion[g], len(plan.rows))
				plan.rows = append(plan.rows, row)
			}
		}
	}
	for epoch := range t.Update.PPOEpochs {
		random := rand.New(rand.NewPCG(t.Rollout.Seed^shuffleStream, uint64(step)<<16|uint64(epoch)))
		plan.epochs = append(plan.epochs, t.cut(plan.rows, byQuestion, random.Perm(len(graded))))
	}
	return plan
}

// trainedRows are the sequences of a trajectory that have a trained token; a failed trajectory has
// none. mask and advantages are aligned with the response.
func trainedRows(t *rollout.Trajectory, mask []bool, advantages []float32) []trainedRow {
	var rows []trainedRow
	for _, s := range sequences(t) {
		row := trainedRow{ids: slices.Concat(s.context, t.ResponseIDs[s.Start:s.End])}
		for k := s.Start; k < s.End; k++ {
			if mask[k] {
				row.positions = append(row.positions, int32(len(s.context)+k-s.Start))
				row.advantages = append(row.advantages, advantages[k])
				row.sampled = append(row.sampled, t.LogProbs[k])
			}
		}
		if len(row.positions) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// sequence is a stretch of a response behind what the model was conditioned on when it wrote it.
type sequence struct {
	context []int32
	rollout.Span
}

// sequences lists what goes through the model: the whole trajectory once, or in limited context
// each turn behind its own context.
func sequences(t *rollout.Trajectory) []sequence {
	if len(t.Turns) == 0 || t.Turns[0].ContextIDs == nil {
		return []sequence{{t.PromptIDs, rollout.Span{End: len(t.ResponseIDs)}}}
	}
	var all []sequence
	for _, turn := range t.Turns {
		all = append(all, sequence{turn.ContextIDs, turn.Tokens})
	}
	return all
}

// cut makes the mini-batches of one epoch from questions in the given order.
func (t *Trainer) cut(rows []trainedRow, byQuestion [][]int, order []int) []minibatch {
	var all []minibatch
	for at := 0; at < len(order); at += t.Update.QuestionsPerMinibatch {
		var chosen []int
		for _, g := range order[at:min(at+t.Update.QuestionsPerMinibatch, len(order))] {
			chosen = append(chosen, byQuestion[g]...)
		}
		if len(chosen) == 0 {
			continue // every question of it is left out: no optimiser step
		}
		lengths := make([]int, len(chosen))
		for k, row := range chosen {
			lengths[k] = len(rows[row].ids)
		}
		var m minibatch
		for _, part := range batch.Split(lengths, t.Update.MicroBatchTokens) {
			m.micro = append(m.micro, chosen[part.Start:part.End])
		}
		all = append(all, m)
	}
	return all
}

// ResponseScores are aligned with the rows of a plan; each is aligned with the row's positions.
type ResponseScores struct {
	Old, Ref, Entropy [][]float32
}

// scoreResponses computes the log-probs of the trained tokens under the actor as it is now and
// under the reference, in the micro-batches of the first epoch: in the first update the ratio is
// then exactly 1.
func (t *Trainer) scoreResponses(ctx context.Context, plan *Plan, clock *clock) (*ResponseScores, error) {
	scores := &ResponseScores{Old: make([][]float32, len(plan.rows)), Entropy: make([][]float32, len(plan.rows)), Ref: make([][]float32, len(plan.rows))}
	old, err := t.scorePlan(ctx, t.actor, stageOld, plan, clock)
	if err != nil {
		return nil, err
	}
	for k := range plan.rows {
		scores.Old[k], scores.Entropy[k] = old[k].LogProbs, old[k].Entropy
		scores.Ref[k] = scores.Old[k] // without a KL term nothing else is needed
	}
	if t.reference == nil {
		return scores, nil
	}
	ref, err := t.scorePlan(ctx, t.reference, stageRef, plan, clock)
	if err != nil {
		return nil, err
	}
	for k := range plan.rows {
		scores.Ref[k] = ref[k].LogProbs
	}
	return scores, nil
}

func (t *Trainer) scorePlan(ctx context.Context, scorer model.Scorer, stage string, plan *Plan, clock *clock) ([]model.RowScores, error) {
	defer clock.start(stage)()
	add, done := t.stage(stage, len(plan.rows))
	defer done()
	all := make([]model.RowScores, len(plan.rows))
	for _, mini := range plan.epochs[0] {
		for _, micro := range mini.micro {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			rows := make([]model.ScoreRow, len(micro))
			for k, row := range micro {
				rows[k] = model.ScoreRow{IDs: plan.rows[row].ids, Positions: plan.rows[row].positions}
				clock.tokens(stage, len(rows[k].IDs))
			}
			scores, err := scorer.Score(rows, t.Update.Loss.Temperature)
			if err != nil {
				return nil, err
			}
			for k, row := range micro {
				all[row] = scores[k]
			}
			add(len(micro))
		}
	}
	return all, nil
}
