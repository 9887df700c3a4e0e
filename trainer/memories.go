package trainer

import (
	"context"
	"math"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/batch"
)

// TurnMemory is the measure of one turn's memory; NaN everywhere for a turn without a reward.
type TurnMemory struct{ PFull, PMem, Reward float64 }

// Memories holds the measures of every turn: [group][trajectory][turn].
type Memories [][][]TurnMemory

// scoreMemories is the extra forward pass, in its plain form: the golden answer is scored after
// the full context and after the memory alone, each sequence run whole.
func (t *Trainer) scoreMemories(ctx context.Context, graded []Graded, clock *clock) (Memories, error) {
	memories := noMemories(graded)
	if t.Reward.MemoryReward == "off" {
		return memories, nil
	}
	defer clock.start(stageMemory)()
	rows, turns := t.memoryRows(graded, memories)
	scores, err := t.scoreInBatches(ctx, t.actor, stageMemory, rows, 1, clock)
	if err != nil {
		return nil, err
	}
	for k, turn := range turns {
		if turn.PFull, err = reward.AnswerProbability(scores[2*k].LogProbs, t.Reward.AnswerProb); err != nil {
			return nil, err
		}
		if turn.PMem, err = reward.AnswerProbability(scores[2*k+1].LogProbs, t.Reward.AnswerProb); err != nil {
			return nil, err
		}
		if turn.Reward, err = reward.MemoryReward(turn.PMem, turn.PFull, t.Reward.MemoryReward); err != nil {
			return nil, err
		}
	}
	return memories, nil
}

func noMemories(graded []Graded) Memories {
	memories := make(Memories, len(graded))
	for g := range graded {
		for _, trajectory := range graded[g].Trajectories {
			turns := make([]TurnMemory, len(trajectory.Turns))
			for k := range turns {
				turns[k] = TurnMemory{math.NaN(), math.NaN(), math.NaN()}
			}
			memories[g] = append(memories[g], turns)
		}
	}
	return memories
}

// memoryRows lists two rows for each turn that is measured, full context first.
func (t *Trainer) memoryRows(graded []Graded, memories Memories) (rows []model.ScoreRow, turns []*TurnMemory) {
	prefix := t.Rollout.Vocabulary.Encode(tokenizer.Segment{Text: t.Rollout.AnswerPrefix, Trusted: true})
	for g, group := range graded {
		answer := t.Rollout.Vocabulary.EncodePlain(rollout.AnswerText(group.Question))
		for i, trajectory := range group.Trajectories {
			if trajectory.Stop.Failed() {
				continue
			}
			for _, pair := range reward.MemoryPairs(trajectory, prefix, answer) {
				if longest := t.Reward.ContextLength; longest > 0 && len(pair.Full.IDs) > longest {
					continue
				}
				rows = append(rows, pair.Full.ScoreRow, pair.Memory.ScoreRow)
				turns = append(turns, &memories[g][i][pair.Turn])
			}
		}
	}
	return rows, turns
}

// scoreInBatches scores rows in batches of bounded size and shows the progress.
func (t *Trainer) scoreInBatches(ctx context.Context, scorer model.Scorer, stage string, rows []model.ScoreRow, temperature float64, clock *clock) ([]model.RowScores, error) {
	lengths := make([]int, len(rows))
	for k, row := range rows {
		lengths[k] = len(row.IDs)
		clock.tokens(stage, len(row.IDs))
	}
	add, done := t.stage(stage, len(rows))
	defer done()
	var all []model.RowScores
	for _, part := range batch.Split(lengths, t.Update.MicroBatchTokens) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		scores, err := scorer.Score(rows[part.Start:part.End], temperature)
		if err != nil {
			return nil, err
		}
		all = append(all, scores...)
		add(part.End - part.Start)
	}
	return all, nil
}

func (t *Trainer) stage(name string, total int) (add func(int), done func()) {
	if t.watch.Stage == nil || total == 0 {
		return func(int) {}, func() {}
	}
	return t.watch.Stage(name, total)
}
