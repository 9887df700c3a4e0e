package trainer

import (
	"github.com/mempo-train/mempo-train/advantage"
)

// GroupAdvantages are the advantages of one question's trajectories, spread over tokens too.
type GroupAdvantages struct {
	advantage.Advantages
	Tokens [][]float32 // [trajectory][response token]
	Masks  [][]bool    // [trajectory][response token]: trained tokens
}

// advantages normalises per question, over whole trajectories, before anything is cut into turns
// or batches.
func (t *Trainer) advantages(graded []Graded, memories Memories) ([]GroupAdvantages, error) {
	all := make([]GroupAdvantages, len(graded))
	for g, group := range graded {
		scores := make([]float64, len(group.Trajectories))
		failed := make([]bool, len(group.Trajectories))
		rewards := make([][]float64, len(group.Trajectories))
		for i, trajectory := range group.Trajectories {
			scores[i], failed[i] = group.Outcomes[i].Score, trajectory.Stop.Failed()
			for _, turn := range memories[g][i] {
				rewards[i] = append(rewards[i], turn.Reward)
			}
		}
		computed, err := advantage.Compute(scores, rewards, failed, t.Advantage)
		if err != nil {
			return nil, err
		}
		all[g].Advantages = computed
		for i := range group.Trajectories {
			if err := t.spread(&all[g], group, i); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// spread lays a trajectory's advantages over its tokens.
func (t *Trainer) spread(a *GroupAdvantages, group Graded, i int) error {
	trajectory := group.Trajectories[i]
	mask := trajectory.ResponseMask
	if t.Reward.Truncated == "mask" && trajectory.Truncated() {
		mask = make([]bool, len(mask))
	}
	spans := make([]advantage.Span, len(trajectory.Turns))
	for k, turn := range trajectory.Turns {
		if turn.HasMemory {
			spans[k] = advantage.Span(turn.Memory)
		}
	}
	tokens, err := advantage.Broadcast(mask, spans, a.Outcome[i], a.Memory[i], t.Advantage.MemoryWeight)
	a.Tokens, a.Masks = append(a.Tokens, tokens), append(a.Masks, mask)
	return err
}
