package bench

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// fakeModel continues and scores sequences by a hash of all that stands before. It counts the tokens
// that go through it, and keeps what was sampled.
type fakeModel struct {
	tokens  int
	trained int
	updates int
	open    int // sessions
	failing error
	closing error     // of sessions
	sampled [][]int32 // of every row ever released: all its tokens
}

func hash(ids []int32) uint64 {
	h := fnv.New64a()
	for _, id := range ids {
		fmt.Fprint(h, id, " ")
	}
	return h.Sum64()
}

// likelihood is the log-prob of the last of ids behind the others.
func likelihood(ids []int32) float32 { return -float32(hash(ids)%1000+1) / 100 }

func (f *fakeModel) Score(rows []model.ScoreRow, _ float64) (scores []model.RowScores, err error) {
	for _, row := range rows {
		f.tokens += len(row.IDs)
		scores = append(scores, scored(row.IDs, row.Positions))
	}
	return scores, f.failing
}

func scored(ids, positions []int32) (s model.RowScores) {
	for _, p := range positions {
		s.LogProbs = append(s.LogProbs, likelihood(ids[:p+1]))
		s.Entropy = append(s.Entropy, 1)
	}
	return s
}

func (f *fakeModel) ForwardBackward(rows []model.TrainRow, _ model.LossOptions) (model.LossStats, error) {
	f.trained += len(rows)
	var stats model.LossStats
	for _, row := range rows {
		stats.Computed += float64(len(row.IDs))
	}
	return stats, f.failing
}

func (f *fakeModel) Update(float64, model.OptimizerOptions) (model.UpdateStats, error) {
	f.updates++
	return model.UpdateStats{GradNorm: 1}, f.failing
}

func (f *fakeModel) DropGradient() error { return nil }

func (f *fakeModel) MemoryUsage() (model.MemoryUsage, error) {
	return model.MemoryUsage{Current: 1 << 20, Peak: 3 << 20}, nil
}

func (f *fakeModel) ResetPeak() error { return nil }

func (f *fakeModel) NewSession(o model.SessionOptions) (model.Session, error) {
	f.open++
	return &fakeSession{of: f, valid: o.Valid, rows: map[int][]int32{}}, f.failing
}

type fakeSession struct {
	of    *fakeModel
	valid []bool
	rows  map[int][]int32
	next  int
}

func (s *fakeSession) Open() (int, error) {
	s.next++
	s.rows[s.next] = nil
	return s.next, nil
}

func (s *fakeSession) Fork(row, length int) (int, error) {
	if length > len(s.rows[row]) {
		return 0, errors.New("forked behind the end")
	}
	s.next++
	s.rows[s.next] = slices.Clone(s.rows[row][:length])
	return s.next, nil
}

func (s *fakeSession) Step(inputs []model.RowInput) (sampled []model.Sampled, err error) {
	for _, in := range inputs {
		s.of.tokens += len(in.IDs)
		s.rows[in.Row] = append(s.rows[in.Row], in.IDs...)
		one := model.Sampled{ID: -1}
		if in.Sample {
			one.ID = int32((hash(s.rows[in.Row]) ^ in.Seed) % uint64(len(s.valid)))
			for !s.valid[one.ID] {
				one.ID = (one.ID + 1) % int32(len(s.valid))
			}
			one.LogProb = -1
		}
		sampled = append(sampled, one)
	}
	return sampled, nil
}

func (s *fakeSession) Score(pieces []model.Piece) (scores []model.RowScores, err error) {
	for _, p := range pieces {
		row := s.rows[p.Row]
		if p.Length > len(row) || p.Keep && p.Length < len(row) || len(p.IDs) == 0 {
			return nil, fmt.Errorf("piece %+v of a row of %d tokens", p, len(row))
		}
		whole := slices.Concat(row[:p.Length], p.IDs)
		positions := make([]int32, len(p.Positions))
		for k, position := range p.Positions {
			if position < 1 {
				return nil, errors.New("the first token of a piece is scored")
			}
			positions[k] = position + int32(p.Length)
		}
		s.of.tokens += len(p.IDs)
		scores = append(scores, scored(whole, positions))
		if p.Keep {
			s.rows[p.Row] = whole
		}
	}
	return scores, s.of.failing
}

func (s *fakeSession) Release(row int) error {
	s.of.sampled = append(s.of.sampled, s.rows[row])
	delete(s.rows, row)
	return nil
}

func (s *fakeSession) Usage() model.CacheUsage { return model.CacheUsage{PageTokens: 16} }

func (s *fakeSession) Close() error {
	s.of.open--
	return s.of.closing
}

// closed checks that no session is left open.
func (f *fakeModel) closed(t *testing.T) {
	t.Helper()
	if f.open != 0 {
		t.Errorf("%d sessions are left open", f.open)
	}
}
