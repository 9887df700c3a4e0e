package trainer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
)

// script says what a model writes in a turn. Of the key, Position is 0.
type script func(rollout.SeedKey) string

// fakeWriter is a policy that writes by a script. It tells turns apart by the seeds of their first
// tokens.
type fakeWriter struct {
	t       testing.TB
	script  script
	keys    map[uint64]rollout.SeedKey
	logProb func(ids []int32) float32     // of the last of ids, given those before
	onStep  func([]rollout.SeedKey) error // sees the turns that begin in a forward pass; may refuse it
	scorer  *toyScorer                    // what stands behind rows is scored by
	along   int                           // pieces scored in sessions of generations
	noRoom  bool                          // there is no memory for them
	mutex   sync.Mutex
	open    int // sessions
}

// expect makes the keys of all turns in steps 1 to steps, whichever question comes at which place.
func (w *fakeWriter) expect(o Options, questions []string, steps, draws int) {
	w.keys = map[uint64]rollout.SeedKey{}
	for step := 1; step <= steps; step++ {
		for _, question := range questions {
			for draw := range draws {
				for member := range o.Rollout.GroupSize {
					for turn := range o.Rollout.MaxTurns {
						key := rollout.SeedKey{Run: o.Rollout.Seed, Step: step, Question: question, Draw: draw, Member: member, Turn: turn}
						w.keys[key.Seed()] = key
					}
				}
			}
		}
	}
}

func (w *fakeWriter) NewSession(options model.SessionOptions) (model.Session, error) {
	if valid := options.Valid; valid != nil && len(valid) != endID+1 { // none is needed to score
		return nil, fmt.Errorf("a vocabulary of %d ids", len(valid))
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.open++
	return &fakeSession{writer: w, scorer: w.scorer, samples: options.Valid != nil, rows: map[int]*fakeRow{}, began: map[rollout.SeedKey]bool{}}, nil
}

type fakeSession struct {
	writer  *fakeWriter // nil in a session of a frozen model
	scorer  *toyScorer
	samples bool // else it only scores
	rows    map[int]*fakeRow
	opened  int
	began   map[rollout.SeedKey]bool // turns
}

type fakeRow struct {
	ids   []int32
	queue []int32 // rest of the turn
}

func (s *fakeSession) Open() (int, error) { return s.add(&fakeRow{}), nil }

func (s *fakeSession) Fork(row, length int) (int, error) {
	return s.add(&fakeRow{ids: slices.Clone(s.rows[row].ids[:length])}), nil
}

func (s *fakeSession) add(row *fakeRow) int {
	s.opened++
	s.rows[s.opened] = row
	return s.opened
}

func (s *fakeSession) Step(inputs []model.RowInput) ([]model.Sampled, error) {
	if !s.samples {
		return nil, errors.New("the session was opened to score")
	}
	var beginning []rollout.SeedKey
	for _, in := range inputs {
		if key, begins := s.writer.keys[in.Seed]; in.Sample && begins {
			beginning = append(beginning, key)
		}
	}
	if s.writer.onStep != nil {
		if err := s.writer.onStep(beginning); err != nil {
			return nil, err
		}
	}
	sampled := make([]model.Sampled, len(inputs))
	for k, in := range inputs {
		row := s.rows[in.Row]
		row.ids = append(row.ids, in.IDs...)
		sampled[k].ID = -1
		if in.Sample {
			sampled[k] = s.sample(row, in.Seed)
		}
	}
	return sampled, nil
}

func (s *fakeSession) sample(row *fakeRow, seed uint64) model.Sampled {
	if key, begins := s.writer.keys[seed]; begins {
		if s.began[key] {
			s.writer.t.Errorf("turn %+v is sampled twice", key)
		}
		s.began[key] = true
		row.queue = byteVocabulary{}.EncodePlain(s.writer.script(key))
	}
	id := int32(endID)
	if len(row.queue) > 0 {
		id, row.queue = row.queue[0], row.queue[1:]
	}
	return model.Sampled{ID: id, LogProb: s.writer.logProb(append(slices.Clone(row.ids), id))}
}

func (s *fakeSession) Release(row int) error {
	if s.rows[row] == nil {
		return fmt.Errorf("row %d is not open", row)
	}
	delete(s.rows, row)
	return nil
}

// Score scores each piece as the whole row that it is the end of.
func (s *fakeSession) Score(pieces []model.Piece) ([]model.RowScores, error) {
	if err := s.scorer.mayScore(); err != nil {
		return nil, err
	}
	if s.samples && s.writer.noRoom {
		return nil, fmt.Errorf("behind the rollout: %w", model.ErrOutOfMemory)
	}
	if s.samples {
		s.writer.along += len(pieces)
	}
	scores := make([]model.RowScores, len(pieces))
	for k, p := range pieces {
		row := s.rows[p.Row]
		if p.Length > len(row.ids) || p.Keep && p.Length != len(row.ids) {
			return nil, fmt.Errorf("piece of %d tokens behind %d of %d", len(p.IDs), p.Length, len(row.ids))
		}
		whole := model.ScoreRow{IDs: slices.Concat(row.ids[:p.Length], p.IDs)}
		for _, position := range p.Positions {
			whole.Positions = append(whole.Positions, int32(p.Length)+position)
		}
		if len(p.Positions) > 0 {
			scores[k] = s.scorer.scoreRow(whole, p.Temperature)
		}
		if p.Keep {
			row.ids = whole.IDs
		}
	}
	return scores, nil
}

func (s *fakeSession) Usage() model.CacheUsage { return model.CacheUsage{PageTokens: 1} }

func (s *fakeSession) Close() error {
	if s.writer == nil {
		return nil
	}
	s.writer.mutex.Lock()
	defer s.writer.mutex.Unlock()
	s.writer.open--
	return nil
}
