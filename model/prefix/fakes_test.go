package prefix

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// fakeSession holds rows as tokens. The log-probability of a token is a hash of all tokens up to it
// and of the temperature.
type fakeSession struct {
	t      testing.TB
	rows   map[int][]*int32 // rows that are forked share tokens
	opened int

	room     int                    // tokens of a call beyond which there is no memory; 0 is no bound
	rowLimit int                    // rows beyond which there is no memory; 0 is no bound
	refuse   func(action int) error // may refuse an action, counted from 1
	actions  int
	calls    int
	computed int   // tokens
	largest  int   // tokens of a call
	mostKept int   // tokens of all rows at a time, those that are shared counted once
	tightest int   // tokens of the largest call without memory
	perCall  []int // pieces
}

func newFakeSession(t testing.TB) *fakeSession {
	return &fakeSession{t: t, rows: map[int][]*int32{}}
}

func (s *fakeSession) act() error {
	s.actions++
	if s.refuse != nil {
		return s.refuse(s.actions)
	}
	return nil
}

func (s *fakeSession) Open() (int, error) { return s.add(nil) }

func (s *fakeSession) Fork(row, length int) (int, error) {
	ids, open := s.rows[row]
	if !open || length < 1 || length > len(ids) {
		s.t.Fatalf("%d tokens of row %d, which has %d, are forked", length, row, len(ids))
	}
	return s.add(ids[:length])
}

func (s *fakeSession) add(ids []*int32) (int, error) {
	if err := s.act(); err != nil {
		return 0, err
	}
	if s.rowLimit > 0 && len(s.rows) >= s.rowLimit {
		return 0, fmt.Errorf("%d rows: %w", len(s.rows), model.ErrOutOfMemory)
	}
	s.opened++
	s.rows[s.opened] = slices.Clone(ids)
	return s.opened, nil
}

func (s *fakeSession) Step([]model.RowInput) ([]model.Sampled, error) {
	s.t.Fatal("nothing is to be sampled")
	return nil, nil
}

// Score checks every rule of a model.Piece.
func (s *fakeSession) Score(pieces []model.Piece) ([]model.RowScores, error) {
	if err := s.act(); err != nil {
		return nil, err
	}
	uses, keeps := map[int]int{}, map[int]int{}
	tokens := 0
	for _, p := range pieces {
		row, open := s.rows[p.Row]
		if !open || p.Length < 0 || p.Length > len(row) || p.Keep && p.Length != len(row) || len(p.IDs) == 0 || p.Temperature <= 0 {
			s.t.Fatalf("piece %+v behind row %d of %d tokens", p, p.Row, len(row))
		}
		for k, position := range p.Positions {
			if position < 1 || int(position) >= len(p.IDs) || k > 0 && position <= p.Positions[k-1] {
				s.t.Fatalf("positions %v of %d tokens", p.Positions, len(p.IDs))
			}
		}
		uses[p.Row]++
		if p.Keep {
			keeps[p.Row]++
		}
		tokens += len(p.IDs)
	}
	for row := range keeps {
		if uses[row] > 1 {
			s.t.Fatalf("%d pieces stand behind row %d, which one is kept in", uses[row], row)
		}
	}
	if len(pieces) == 0 {
		s.t.Fatal("a call without pieces")
	}
	if s.room > 0 && tokens > s.room {
		s.tightest = tokens
		return nil, fmt.Errorf("%d tokens: %w", tokens, model.ErrOutOfMemory)
	}
	s.calls, s.computed, s.largest, s.perCall = s.calls+1, s.computed+tokens, max(s.largest, tokens), append(s.perCall, len(pieces))
	scores := make([]model.RowScores, len(pieces))
	for k, p := range pieces {
		var whole []int32
		for _, id := range s.rows[p.Row][:p.Length] {
			whole = append(whole, *id)
		}
		whole = append(whole, p.IDs...)
		for _, position := range p.Positions {
			logProb, entropy := hashed(whole[:p.Length+int(position)+1], p.Temperature)
			scores[k].LogProbs, scores[k].Entropy = append(scores[k].LogProbs, logProb), append(scores[k].Entropy, entropy)
		}
		for k := range p.IDs {
			if p.Keep {
				id := p.IDs[k] // a token of its own, whatever the rows that IDs comes from share
				s.rows[p.Row] = append(s.rows[p.Row], &id)
			}
		}
	}
	s.mostKept = max(s.mostKept, s.kept())
	return scores, nil
}

// kept is the number of tokens in the cache.
func (s *fakeSession) kept() int {
	distinct := map[*int32]bool{}
	for _, ids := range s.rows {
		for _, id := range ids {
			distinct[id] = true
		}
	}
	return len(distinct)
}

func (s *fakeSession) Release(row int) error {
	if _, open := s.rows[row]; !open {
		s.t.Fatalf("row %d is released, but not open", row)
	}
	delete(s.rows, row)
	return s.act()
}

func (s *fakeSession) Usage() model.CacheUsage { return model.CacheUsage{PageTokens: 1} }

func (s *fakeSession) Close() error { return nil }

// hashed are a log-probability and an entropy of the last of ids.
func hashed(ids []int32, temperature float64) (logProb, entropy float32) {
	hash := uint32(2166136261) ^ uint32(temperature*1000)
	for _, id := range ids {
		hash = (hash ^ uint32(id)) * 16777619
	}
	return -float32(hash%99991) / 997, float32(hash%89) / 8
}

// alone are the scores of rows that run one by one.
func alone(rows []Row) []model.RowScores {
	all := make([]model.RowScores, len(rows))
	for k, row := range rows {
		for _, position := range row.Positions {
			logProb, entropy := hashed(row.IDs[:position+1], row.Temperature)
			all[k].LogProbs, all[k].Entropy = append(all[k].LogProbs, logProb), append(all[k].Entropy, entropy)
		}
	}
	return all
}
