package trainer

import (
	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/rollout"
)

// GroupAdvantages are the advantages of one question's trajectories, spread over tokens too.
type GroupAdvantages struct {
	advantage.Advantages
	Tokens [][]float32 // [trajectory][response token]
}

// advantages normalises per question, over whole trajectories, before anything is cut into turns
// or batches.
func (t *Trainer) advantages(graded []Graded, memories Memories) ([]GroupAdvantages, error) {
	all := make([]GroupAdvantages, len(graded))
	for g, group := range graded {
		scores, failed := group.outcomes()
		rewards := make([][]float64, len(group.Trajectories))
		for i := range group.Trajectories {
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
	spans := make([]advantage.Span, len(trajectory.Turns))
	for k, turn := range trajectory.Turns {
		if turn.HasMemory {
			spans[k] = advantage.Span(turn.Memory)
		}
	}
	tokens, err := advantage.Broadcast(t.mask(trajectory), spans, a.Outcome[i], a.Memory[i], t.Advantage.MemoryWeight)
	a.Tokens = append(a.Tokens, tokens)
	return err
}

// mask is true on the trained tokens of a trajectory's response.
func (t *Trainer) mask(trajectory *rollout.Trajectory) []bool {
	if t.Reward.Truncated == "mask" && trajectory.Truncated() {
		return make([]bool, len(trajectory.ResponseMask))
	}
	return trajectory.ResponseMask
}

// outcomes are the scores of the trajectories, and which of them failed.
func (g Graded) outcomes() (scores []float64, failed []bool) {
	for i, trajectory := range g.Trajectories {
		scores = append(scores, g.Outcomes[i].Score)
		failed = append(failed, trajectory.Stop.Failed())
	}
	return scores, failed
}
