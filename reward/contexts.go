package reward

import (
	"slices"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
)

// MemoryPair are the two contexts that a turn's memory is measured in, each followed by the
// answer prefix and the golden answer, whose tokens are the scored positions.
type MemoryPair struct {
	Turn   int       // from 0; the first turn has no memory reward
	Full   AnswerRow // every token before the turn
	Memory AnswerRow // the prompt and the turn's memory alone
}

// AnswerRow is a context with the answer behind it. Its first Shared tokens are the first of the
// trajectory's prompt and response.
type AnswerRow struct {
	model.ScoreRow
	Shared int
}

// Branch is the row as a branch of its trajectory: what follows the shared tokens, and the last of
// them if nothing stands between it and the answer, as that is what predicts the answer.
func (r AnswerRow) Branch(turn int) rollout.Branch {
	b := rollout.Branch{Turn: turn, Length: min(r.Shared, int(r.Positions[0])-1)}
	b.IDs = r.IDs[b.Length:]
	for _, position := range r.Positions {
		b.Positions = append(b.Positions, position-int32(b.Length))
	}
	return b
}

// MemoryPairs lists the pairs of a trajectory: one for each turn after the first that wrote a
// closed memory. prefix and answer are token ids; answer must not be empty.
func MemoryPairs(t *rollout.Trajectory, prefix, answer []int32) []MemoryPair {
	var pairs []MemoryPair
	for k, turn := range t.Turns {
		if k == 0 || !turn.HasMemory {
			continue
		}
		full := slices.Concat(t.PromptIDs, t.ResponseIDs[:turn.Tokens.Start])
		pairs = append(pairs, MemoryPair{
			Turn:   k,
			Full:   answerRow(full, prefix, answer),
			Memory: answerRow(t.PromptIDs, slices.Concat(turn.MemoryIDs, prefix), answer),
		})
	}
	return pairs
}

// answerRow puts the answer behind what the trajectory has and what it has not, and marks its tokens.
func answerRow(shared, between, answer []int32) AnswerRow {
	row := AnswerRow{Shared: len(shared)}
	row.IDs = slices.Concat(shared, between, answer)
	for k := range answer {
		row.Positions = append(row.Positions, int32(len(shared)+len(between)+k))
	}
	return row
}
