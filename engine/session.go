package engine

import "github.com/mempo-train/mempo-train/model"

// session implements model.Session.
type session struct {
	runtime *Runtime
	handle  sessionHandle
}

// NewSession implements model.Policy.
func (m *Model) NewSession(options model.SessionOptions) (model.Session, error) {
	s := &session{runtime: m.Runtime}
	err := m.do(func() (err error) {
		s.handle, err = sessionNew(m.handle, options)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *session) Open() (row int, err error) {
	err = s.runtime.do(func() (err error) {
		row, err = sessionOpen(s.handle)
		return err
	})
	return row, err
}

func (s *session) Fork(row, length int) (forked int, err error) {
	err = s.runtime.do(func() (err error) {
		forked, err = sessionFork(s.handle, row, length)
		return err
	})
	return forked, err
}

func (s *session) Step(inputs []model.RowInput) (sampled []model.Sampled, err error) {
	err = s.runtime.do(func() (err error) {
		sampled, err = sessionStep(s.handle, inputs)
		return err
	})
	return sampled, err
}

func (s *session) Score(pieces []model.Piece) ([]model.RowScores, error) {
	if len(pieces) == 0 {
		return nil, nil
	}
	for _, p := range pieces {
		if err := checkPositions(p.IDs, p.Positions); err != nil {
			return nil, err
		}
	}
	var logProbs, entropies []float32
	err := s.runtime.do(func() (err error) {
		logProbs, entropies, err = sessionScore(s.handle, pieces)
		return err
	})
	if err != nil {
		return nil, err
	}
	scores := make([]model.RowScores, len(pieces))
	for k, p := range pieces {
		scores[k], logProbs, entropies = cutScores(len(p.Positions), logProbs, entropies)
	}
	return scores, nil
}

func (s *session) Usage() (usage model.CacheUsage) {
	_ = s.runtime.do(func() error { usage = sessionUsage(s.handle); return nil })
	return usage
}

func (s *session) Release(row int) error {
	return s.runtime.do(func() error { return sessionRelease(s.handle, row) })
}

func (s *session) Close() error {
	return s.runtime.do(func() error {
		sessionFree(s.handle)
		s.handle = nil
		return nil
	})
}
