package engine

import "github.com/mempo-train/mempo-train/model"

// Base is a model without its adapters, as it was before training: it shares the weights.
type Base struct{ model *Model }

var (
	_ model.Policy = Base{}
	_ model.Scorer = Base{}
)

// Base is good for as long as m is open.
func (m *Model) Base() Base { return Base{m} }

// NewSession implements model.Policy.
func (b Base) NewSession(options model.SessionOptions) (model.Session, error) {
	options.Base = true
	return b.model.NewSession(options)
}

// Score implements model.Scorer.
func (b Base) Score(rows []model.ScoreRow, temperature float64) ([]model.RowScores, error) {
	return b.model.score(rows, temperature, true)
}
