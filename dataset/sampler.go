package dataset

import (
	"errors"
	"fmt"
)

// Sampler hands out questions: those of one set epoch by epoch, or those of several sources by their
// weights. Not safe for concurrent use.
type Sampler struct {
	parts []mixed
	drawn uint64
	size  int // questions of all parts
}

// mixed is a source of a sampler.
type mixed struct {
	order     *Order
	questions []Question
	share     float64 // of the draws
}

// Share is what a sampler draws from with a weight.
type Share struct {
	Questions []Question // at least one
	Weight    float64    // above 0; its part of the sum of all weights is its share of the draws
}

// NewSampler starts at the first question of the first epoch. Without shuffle every epoch keeps
// the order of the files. An empty set is an error.
func NewSampler(questions []Question, seed uint64, shuffle bool) (*Sampler, error) {
	return NewMix([]Share{{questions, 1}}, seed, shuffle)
}

// NewMix starts a sampler of several sources. Each draw goes to the source that is furthest behind
// its share of the draws, the first of equals: after any number of draws n, a source of share s has
// been drawn less than s·n + 1 times, and with two sources more than s·n − 1 times. Within a source
// the questions come epoch by epoch in an Order of its own. So what is drawn is a function of
// sources, weights, seed and position.
func NewMix(shares []Share, seed uint64, shuffle bool) (*Sampler, error) {
	if len(shares) == 0 {
		return nil, errors.New("no source to draw from")
	}
	s := &Sampler{parts: make([]mixed, len(shares))}
	total := 0.0
	for _, share := range shares {
		total += share.Weight
	}
	for k, share := range shares {
		if len(share.Questions) == 0 {
			return nil, errors.New("no question to draw from")
		}
		if above := share.Weight > 0; !above {
			return nil, fmt.Errorf("a source has the weight %v, want one above 0", share.Weight)
		}
		stream := "question order"
		if k > 0 {
			stream = fmt.Sprintf("question order of source %d", k)
		}
		order, err := NewOrder(stream, len(share.Questions), seed, shuffle)
		if err != nil {
			return nil, err
		}
		s.parts[k] = mixed{order, share.Questions, share.Weight / total}
		s.size += len(share.Questions)
	}
	return s, nil
}

// Next draws the next n questions. Every question of a source comes once in an epoch of it; a draw
// that reaches the end of one goes on with the next, and may then hold a question twice.
func (s *Sampler) Next(n int) []Question {
	drawn := make([]Question, 0, max(n, 0))
	for range n {
		s.drawn++
		part := s.parts[s.behind()]
		drawn = append(drawn, part.questions[part.order.Next(1)[0]])
	}
	return drawn
}

// behind is the place of the source that is furthest behind its share.
func (s *Sampler) behind() int {
	furthest, most := 0, 0.0
	for k, part := range s.parts {
		if missing := part.share*float64(s.drawn) - float64(part.order.drawn); missing > most {
			furthest, most = k, missing
		}
	}
	return furthest
}

// State is the position from which a sampler of the same sources, seed and shuffle continues.
func (s *Sampler) State() OrderState {
	state := OrderState{Drawn: s.drawn, Size: s.size}
	if len(s.parts) > 1 {
		for _, part := range s.parts {
			state.Parts = append(state.Parts, part.order.State())
		}
	}
	return state
}

// Restore goes to a saved position. A position in other sources is refused.
func (s *Sampler) Restore(state OrderState) error {
	parts := state.Parts
	if len(s.parts) == 1 && len(parts) == 0 {
		parts = []OrderState{state}
	}
	if len(parts) != len(s.parts) {
		return fmt.Errorf("the saved position lies in %d sources, here are %d", max(len(parts), 1), len(s.parts))
	}
	drawn := uint64(0)
	for k, part := range s.parts {
		if err := part.order.Restore(parts[k]); err != nil {
			return err
		}
		drawn += parts[k].Drawn
	}
	if drawn != state.Drawn {
		return fmt.Errorf("the saved position is that of %d draws, but its sources have %d", state.Drawn, drawn)
	}
	s.drawn = drawn
	return nil
}
