package bench

import (
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer"
)

// tally is work and the time it took.
type tally struct {
	Work
	passes int
	took   time.Duration
}

func (t *tally) count(w Work, begun time.Time) {
	t.add(w)
	t.passes++
	t.took += time.Since(begun)
}

// meter counts what goes through models. Passes in which a row takes several tokens are prefill, those
// in which every row goes on by one are decode.
type meter struct {
	prefill, decode, scored tally
	trained                 tally // of micro-batches as one tree each
	learned                 int   // tokens of micro-batches that went through the model: see model.LossStats
}

// work is everything that was computed without a gradient.
func (m *meter) work() Work {
	w := m.prefill.Work
	w.add(m.decode.Work)
	w.add(m.scored.Work)
	return w
}

// meteredScorer counts what a model generates and scores. Where the seed of a draw is decided, that
// token takes the place of the sampled one; its log-probability stays the sampled one's.
type meteredScorer struct {
	model   trainer.Reference
	meter   *meter
	decided map[uint64]int32
}

// NewSession implements model.Policy.
func (m *meteredScorer) NewSession(options model.SessionOptions) (model.Session, error) {
	session, err := m.model.NewSession(options)
	if err != nil {
		return nil, err
	}
	return &meteredSession{Session: session, of: m, lengths: map[int]int{}}, nil
}

// Score implements model.Scorer.
func (m *meteredScorer) Score(rows []model.ScoreRow, temperature float64) ([]model.RowScores, error) {
	var work Work
	for _, row := range rows {
		work.add(stretch(0, len(row.IDs), len(row.Positions)))
	}
	defer m.meter.scored.count(work, time.Now())
	return m.model.Score(rows, temperature)
}

// meteredActor counts what a model learns from, too.
type meteredActor struct {
	meteredScorer
	model.Memory
	model.Learner
}

var _ trainer.Actor = (*meteredActor)(nil)

func meterActor(actor trainer.Actor, m *meter, decided map[uint64]int32) *meteredActor {
	return &meteredActor{meteredScorer{actor, m, decided}, actor, actor}
}

// ForwardBackward implements model.Learner.
func (m *meteredActor) ForwardBackward(rows []model.TrainRow, loss model.LossOptions) (model.LossStats, error) {
	defer m.meter.trained.count(trainWork(rows), time.Now())
	stats, err := m.Learner.ForwardBackward(rows, loss)
	m.meter.learned += int(stats.Computed)
	return stats, err
}

// meteredSession counts what goes through a session. It knows the length of every row.
type meteredSession struct {
	model.Session
	of      *meteredScorer
	lengths map[int]int
}

func (s *meteredSession) Open() (int, error) {
	row, err := s.Session.Open()
	if err == nil {
		s.lengths[row] = 0
	}
	return row, err
}

func (s *meteredSession) Fork(row, length int) (int, error) {
	forked, err := s.Session.Fork(row, length)
	if err == nil {
		s.lengths[forked] = length
	}
	return forked, err
}

// Step counts a pass that went well and sets the tokens that the script decides.
func (s *meteredSession) Step(inputs []model.RowInput) ([]model.Sampled, error) {
	begun := time.Now()
	sampled, err := s.Session.Step(inputs)
	if err != nil {
		return nil, err
	}
	var work Work
	part := &s.of.meter.decode
	for k, input := range inputs {
		heads := 0
		if input.Sample {
			heads = 1
			if id, decided := s.of.decided[input.Seed]; decided {
				sampled[k].ID = id
			}
		}
		if len(input.IDs) > 1 {
			part = &s.of.meter.prefill
		}
		work.add(stretch(s.lengths[input.Row], len(input.IDs), heads))
		s.lengths[input.Row] += len(input.IDs)
	}
	part.count(work, begun)
	return sampled, nil
}

func (s *meteredSession) Score(pieces []model.Piece) ([]model.RowScores, error) {
	begun := time.Now()
	scores, err := s.Session.Score(pieces)
	if err != nil {
		return nil, err
	}
	var work Work
	for _, p := range pieces {
		work.add(stretch(p.Length, len(p.IDs), len(p.Positions)))
		if p.Keep {
			s.lengths[p.Row] += len(p.IDs)
		}
	}
	s.of.meter.scored.count(work, begun)
	return scores, nil
}
