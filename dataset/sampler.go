package dataset

import "errors"

// Sampler hands out the questions of a set epoch by epoch, in an Order. Not safe for concurrent use.
type Sampler struct {
	*Order
	questions []Question
}

// SamplerState is the position of a sampler, for checkpoints.
type SamplerState = OrderState

// NewSampler starts at the first question of the first epoch. Without shuffle every epoch keeps
// the order of the files. An empty set is an error.
func NewSampler(questions []Question, seed uint64, shuffle bool) (*Sampler, error) {
	if len(questions) == 0 {
		return nil, errors.New("no question to draw from")
	}
	order, err := NewOrder("question order", len(questions), seed, shuffle)
	return &Sampler{Order: order, questions: questions}, err
}

// Next draws the next n questions, as Order.Next does places.
func (s *Sampler) Next(n int) []Question {
	drawn := make([]Question, 0, max(n, 0))
	for _, place := range s.Order.Next(n) {
		drawn = append(drawn, s.questions[place])
	}
	return drawn
}
