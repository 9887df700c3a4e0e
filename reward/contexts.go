package reward

import (
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
)

// MemoryPair are the two contexts that a turn's memory is measured in, each followed by the
// answer prefix and the golden answer, whose tokens are the scored positions.
type MemoryPair struct {
	Turn   int            // from 0; the first turn has no memory reward
	Full   model.ScoreRow // every token before the turn
	Memory model.ScoreRow // the prompt and the turn's memory alone
}

// MemoryPairs lists the pairs of a trajectory: one for each turn after the first that wrote a
// closed memory. prefix and answer are token ids; answer must not be empty.
func MemoryPairs(t *rollout.Trajectory, prefix, answer []int32) []MemoryPair {
	var pairs []MemoryPair
	for k, turn := range t.Turns {
		if k == 0 || !turn.HasMemory {
			continue
		}
		pairs = append(pairs, MemoryPair{
			Turn:   k,
			Full:   answerRow(answer, t.PromptIDs, t.ResponseIDs[:turn.Tokens.Start], prefix),
			Memory: answerRow(answer, t.PromptIDs, turn.MemoryIDs, prefix),
		})
	}
	return pairs
}

// answerRow puts the answer behind a context and marks its tokens.
func answerRow(answer []int32, context ...[]int32) model.ScoreRow {
	var row model.ScoreRow
	for _, part := range context {
		row.IDs = append(row.IDs, part...)
	}
	for range answer {
		row.Positions = append(row.Positions, int32(len(row.IDs)+len(row.Positions)))
	}
	row.IDs = append(row.IDs, answer...)
	return row
}
