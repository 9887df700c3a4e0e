package trainer

import (
	"math"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
)

// memoryTemperature is that of the probabilities of golden answers.
const memoryTemperature = 1

// TurnMemory is the measure of one turn's memory; NaN everywhere for a turn without a reward.
type TurnMemory struct{ PFull, PMem, Reward float64 }

// Memories holds the measures of every turn: [group][trajectory][turn].
type Memories [][][]TurnMemory

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

// Measured holds, by trajectory, the scores of the golden answer behind the two contexts of each of
// its memories, in the order of memoryPairs: those that were measured when the trajectory ended.
type Measured map[*rollout.Trajectory][]model.RowScores

// measureAlong has the memories of each trajectory measured against the cache of its generation.
func (t *Trainer) measureAlong(options *rollout.Options) Measured {
	measured := Measured{}
	if t.Scoring.Form != FormCached {
		return measured
	}
	options.Measure = func(g *rollout.Group, trajectory *rollout.Trajectory) []rollout.Branch {
		var branches []rollout.Branch
		for _, pair := range t.memoryPairs(g, trajectory) {
			branches = append(branches, pair.Full.Branch(pair.Turn), pair.Memory.Branch(pair.Turn))
		}
		return branches
	}
	options.Measured = func(_ *rollout.Group, trajectory *rollout.Trajectory, _ []rollout.Branch, scores []model.RowScores) {
		measured[trajectory] = scores
	}
	return measured
}

// memoryPairs lists what the memories of a trajectory are measured in. Nothing is measured by an answer
// of no tokens.
func (t *Trainer) memoryPairs(g *rollout.Group, trajectory *rollout.Trajectory) []reward.MemoryPair {
	if t.Reward.MemoryReward == "off" || trajectory.Stop.Failed() {
		return nil
	}
	prefix := t.Rollout.Vocabulary.Encode(tokenizer.Segment{Text: t.Rollout.AnswerPrefix, Trusted: true})
	answer := t.Rollout.Vocabulary.EncodePlain(rollout.AnswerText(g.Question))
	if len(answer) == 0 {
		return nil
	}
	var pairs []reward.MemoryPair
	for _, pair := range reward.MemoryPairs(trajectory, prefix, answer) {
		if longest := t.Reward.ContextLength; longest == 0 || len(pair.Full.IDs) <= longest {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// memoryRows lists the two rows of each memory that is still to be measured, full context first,
// and where the measure goes.
func (t *Trainer) memoryRows(graded []Graded, measured Measured, memories Memories) (rows []model.ScoreRow, turns []*TurnMemory, err error) {
	for g, group := range graded {
		for i, trajectory := range group.Trajectories {
			scores := measured[trajectory]
			for k, pair := range t.memoryPairs(group.Group, trajectory) {
				turn := &memories[g][i][pair.Turn]
				if len(scores) == 0 {
					rows = append(rows, pair.Full.ScoreRow, pair.Memory.ScoreRow)
					turns = append(turns, turn)
					continue
				}
				if *turn, err = t.measure(scores[2*k], scores[2*k+1]); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	return rows, turns, nil
}

// measure turns the scores of the golden answer behind the two contexts of a memory into its worth.
func (t *Trainer) measure(full, memory model.RowScores) (turn TurnMemory, err error) {
	if turn.PFull, err = reward.AnswerProbability(full.LogProbs, t.Reward.AnswerProb); err != nil {
		return turn, err
	}
	if turn.PMem, err = reward.AnswerProbability(memory.LogProbs, t.Reward.AnswerProb); err != nil {
		return turn, err
	}
	turn.Reward, err = reward.MemoryReward(turn.PMem, turn.PFull, t.Reward.MemoryReward)
	return turn, err
}
