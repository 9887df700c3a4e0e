package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// Sampler hands out the questions of a set epoch by epoch. The order of an epoch is a function of
// the seed, the number of the epoch and the size of the set alone, so that the position says
// everything about what comes next. Not safe for concurrent use.
type Sampler struct {
	questions []Question
	seed      uint64
	shuffle   bool
	drawn     uint64
	epoch     uint64 // that order belongs to
	order     []int
}

// SamplerState is the position of a sampler, for checkpoints.
type SamplerState struct {
	Drawn uint64 `json:"drawn"` // questions handed out since the start of the run
	Size  int    `json:"size"`  // of the set that they came from
}

// NewSampler starts at the first question of the first epoch. Without shuffle every epoch keeps
// the order of the files. An empty set is an error.
func NewSampler(questions []Question, seed uint64, shuffle bool) (*Sampler, error) {
	if len(questions) == 0 {
		return nil, errors.New("no question to draw from")
	}
	s := &Sampler{questions: questions, seed: seed, shuffle: shuffle}
	s.order = s.epochOrder(0)
	return s, nil
}

// Next draws the next n questions. Every question comes once in an epoch; a draw that reaches the
// end of one goes on with the next, and may then hold a question twice.
func (s *Sampler) Next(n int) []Question {
	drawn := make([]Question, 0, max(n, 0))
	size := uint64(len(s.questions))
	for range n {
		if epoch := s.drawn / size; epoch != s.epoch {
			s.epoch, s.order = epoch, s.epochOrder(epoch)
		}
		drawn = append(drawn, s.questions[s.order[s.drawn%size]])
		s.drawn++
	}
	return drawn
}

// State is the position from which a sampler over the same set, seed and shuffle continues.
func (s *Sampler) State() SamplerState {
	return SamplerState{Drawn: s.drawn, Size: len(s.questions)}
}

// Restore goes to a saved position. A position in a set of another size is refused.
func (s *Sampler) Restore(state SamplerState) error {
	if state.Size != len(s.questions) {
		return fmt.Errorf("the saved position lies in a set of %d questions, this one has %d", state.Size, len(s.questions))
	}
	s.drawn = state.Drawn // the next draw sees whether the order is another epoch's
	return nil
}

// Epoch is the number, from 0, of the epoch that the next question belongs to.
func (s *Sampler) Epoch() uint64 { return s.drawn / uint64(len(s.questions)) }

// epochOrder is the order of one epoch: Fisher-Yates from a generator keyed by seed and epoch.
func (s *Sampler) epochOrder(epoch uint64) []int {
	order := make([]int, len(s.questions))
	for k := range order {
		order[k] = k
	}
	if !s.shuffle {
		return order
	}
	label := binary.LittleEndian.AppendUint64([]byte("question order"), s.seed)
	key := sha256.Sum256(binary.LittleEndian.AppendUint64(label, epoch))
	generator := rand.New(rand.NewChaCha8(key))
	for k := len(order) - 1; k > 0; k-- {
		other := generator.Uint64N(uint64(k) + 1)
		order[k], order[other] = order[other], order[k]
	}
	return order
}
