package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/jsonl"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/batch"
)

func (p *program) lossCommand() *cli.Command {
	return &cli.Command{
		Name:  "loss",
		Usage: "compute the policy and KL loss of given log-probabilities, with its gradient",
		Description: `Reads one mini-batch a line, {"new":[[…]],"old":[[…]],"ref":[[…]],"advantage":[[…]],"mask":[[…]]}, one
list per trajectory with one entry per token, and any key of [loss], and writes {"policy_loss","kl_loss",
"total","clip_fraction","grad_new"} for each. What stands where the mask is 0 is not looked at and may be
null. kl_loss includes kl_coef; clip_fraction is the share of tokens whose clipped term is strictly the
larger loss; grad_new is the gradient of total. The code is that of a training step.`,
		Action: func(*cli.Context) error {
			return p.badInput(jsonl.Transform(p.in, p.out, func(line []byte) (any, error) { return lossOfLine(line) }))
		},
	}
}

// lossLine is one line; keys of [loss] that it does not set have their defaults.
type lossLine struct {
	New         [][]*float64 `json:"new"`
	Old         [][]*float64 `json:"old"`
	Ref         [][]*float64 `json:"ref"`
	Advantage   [][]*float64 `json:"advantage"`
	Mask        [][]maskBit  `json:"mask"`
	ClipLow     float64      `json:"clip_low"`
	ClipHigh    float64      `json:"clip_high"`
	DualClip    float64      `json:"dual_clip"`
	Aggregation string       `json:"aggregation"`
	Divisor     float64      `json:"divisor"`
	KLEstimator string       `json:"kl_estimator"`
	KLCoef      float64      `json:"kl_coef"`
}

// maskBit is 0 or 1, or false or true.
type maskBit bool

// UnmarshalJSON implements json.Unmarshaler.
func (m *maskBit) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "1", "true":
		*m = true
	case "0", "false":
		*m = false
	default:
		return fmt.Errorf("mask: found %.20s, want 0 or 1", text)
	}
	return nil
}

// lossResult is the answer to one line. A number that is not finite is null.
type lossResult struct {
	Policy       *float64     `json:"policy_loss"`
	KL           *float64     `json:"kl_loss"`
	Total        *float64     `json:"total"`
	ClipFraction float64      `json:"clip_fraction"`
	Gradient     [][]*float32 `json:"grad_new"`
}

func lossOfLine(line []byte) (*lossResult, error) {
	d := config.Default().Loss
	q := lossLine{
		ClipLow: d.ClipLow, ClipHigh: d.ClipHigh, DualClip: d.DualClip, Aggregation: d.Aggregation, Divisor: d.Divisor,
		KLEstimator: d.KLEstimator, KLCoef: d.KLCoef,
	}
	if err := jsonl.Decode(line, &q); err != nil {
		return nil, err
	}
	settings := config.Loss{
		ClipLow: q.ClipLow, ClipHigh: q.ClipHigh, DualClip: q.DualClip, Aggregation: q.Aggregation, Divisor: q.Divisor,
		KLEstimator: q.KLEstimator, KLCoef: q.KLCoef,
	}
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	tokens, err := q.trained(settings)
	if err != nil {
		return nil, err
	}
	stats, gradient, err := engine.TokenLoss(tokens.new, tokens.TrainRow, model.LossOptions{
		ClipLow: q.ClipLow, ClipHigh: q.ClipHigh, DualClip: q.DualClip, KLEstimator: q.KLEstimator, KLCoef: q.KLCoef,
	})
	if err != nil {
		return nil, err
	}
	sums := orNull([]float64{stats.Policy, stats.KL, stats.Policy + stats.KL})
	return &lossResult{
		Policy: sums[0], KL: sums[1], Total: sums[2], ClipFraction: stats.Clipped / max(1, stats.Tokens),
		Gradient: q.spread(gradient),
	}, nil
}

// trainedTokens are the tokens of a mini-batch with mask 1, one behind the other.
type trainedTokens struct {
	new []float32
	model.TrainRow
}

func (q *lossLine) trained(settings config.Loss) (*trainedTokens, error) {
	if err := q.checkShapes(); err != nil {
		return nil, err
	}
	t := &trainedTokens{}
	var counts []int
	for r, row := range q.Mask {
		counts = append(counts, 0)
		for k, trained := range row {
			if !trained {
				continue
			}
			counts[r]++
			for _, column := range []struct {
				key    string
				values [][]*float64
				to     *[]float32
			}{
				{"new", q.New, &t.new},
				{"old", q.Old, &t.OldLogProbs},
				{"ref", q.Ref, &t.RefLogProbs},
				{"advantage", q.Advantage, &t.Advantages},
			} {
				value := column.values[r][k]
				if value == nil || math.Abs(*value) > math.MaxFloat32 {
					return nil, fmt.Errorf("%s[%d][%d] is %s where the mask is 1, want a number of float32", column.key, r, k, shown(value))
				}
				*column.to = append(*column.to, float32(*value))
			}
		}
	}
	weights, err := batch.Weights(settings.Aggregation, settings.Divisor, counts)
	for r, count := range counts {
		for range count {
			t.Weights = append(t.Weights, float32(weights[r]))
		}
	}
	return t, err
}

func shown(value *float64) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// checkShapes checks that all lists are aligned.
func (q *lossLine) checkShapes() error {
	if q.Mask == nil {
		return errors.New(`no "mask", want one list per trajectory`)
	}
	for _, column := range []struct {
		key    string
		values [][]*float64
	}{{"new", q.New}, {"old", q.Old}, {"ref", q.Ref}, {"advantage", q.Advantage}} {
		if column.values == nil {
			return fmt.Errorf("no %q, want one list per trajectory", column.key)
		}
		if len(column.values) != len(q.Mask) {
			return fmt.Errorf("%s has %d trajectories, mask has %d", column.key, len(column.values), len(q.Mask))
		}
		for r, row := range column.values {
			if len(row) != len(q.Mask[r]) {
				return fmt.Errorf("%s[%d] has %d tokens, mask[%d] has %d", column.key, r, len(row), r, len(q.Mask[r]))
			}
		}
	}
	return nil
}

// spread puts the gradient of the trained tokens where they stand, 0 elsewhere.
func (q *lossLine) spread(gradient []float32) [][]*float32 {
	all := orNull(gradient)
	zero := new(float32)
	rows := make([][]*float32, len(q.Mask))
	for r, row := range q.Mask {
		rows[r] = make([]*float32, len(row))
		for k, trained := range row {
			rows[r][k] = zero
			if trained {
				rows[r][k], all = all[0], all[1:]
			}
		}
	}
	return rows
}
