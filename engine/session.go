package engine

import "github.com/mempo-train/mempo-train/model"

// session implements model.Session.
type session struct {
	runtime *Runtime
	handle  sessionHandle
}

// NewSession implements model.Policy.
func (m *Model) NewSession(valid []bool) (model.Session, error) {
	s := &session{runtime: m.Runtime}
	err := m.do(func() (err error) {
		s.handle, err = sessionNew(m.handle, valid)
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

func (s *session) Fork(row int) (copied int, err error) {
	err = s.runtime.do(func() (err error) {
		copied, err = sessionFork(s.handle, row)
		return err
	})
	return copied, err
}

func (s *session) Step(inputs []model.RowInput) (sampled []model.Sampled, err error) {
	err = s.runtime.do(func() (err error) {
		sampled, err = sessionStep(s.handle, inputs)
		return err
	})
	return sampled, err
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
