// Package batch cuts trajectories into batches of bounded size and spreads a loss's normaliser
// over their tokens.
package batch

import "fmt"

// The ways in which token losses add up to the loss of a mini-batch. "Trained" are the tokens with
// response mask 1; a sequence is a whole trajectory, however many rows it spans. For two
// trajectories of 2 and 6 trained tokens with losses of 1 and 3 per token:
//
//	token-mean                sum over all tokens / number of trained tokens: (2·1 + 6·3) / 8 = 2.5
//	seq-mean-token-sum        mean over trajectories of their sums: (2 + 18) / 2 = 10
//	seq-mean-token-mean       mean over trajectories of their means: (1 + 3) / 2 = 2
//	seq-mean-token-sum-norm   sum over all tokens / (trajectories · divisor); divisor 8: 20 / 16 = 1.25
//
// A mean over trajectories runs over those with a trained token; seq-mean-token-sum-norm divides by
// a constant, the number of all trajectories given.
const (
	TokenMean           = "token-mean"
	SeqMeanTokenSum     = "seq-mean-token-sum"
	SeqMeanTokenMean    = "seq-mean-token-mean"
	SeqMeanTokenSumNorm = "seq-mean-token-sum-norm"
)

// Row is a row of a mini-batch. Rows with the same Trajectory are parts of one.
type Row struct {
	Trajectory int
	Tokens     int // trained ones
}

// Weights gives, for each row, the weight of each of its trained tokens: the mini-batch's loss is
// the sum over tokens of weight · token loss. The weights are those of the whole mini-batch, so
// they hold for any split into micro-batches. Without a trained token all are 0. divisor is read
// by seq-mean-token-sum-norm only, which needs it above 0.
func Weights(aggregation string, divisor float64, rows []Row) ([]float64, error) {
	total := 0
	tokens := map[int]int{} // of each trajectory
	for _, row := range rows {
		total += row.Tokens
		tokens[row.Trajectory] += row.Tokens
	}
	trained := 0 // trajectories
	for _, n := range tokens {
		if n > 0 {
			trained++
		}
	}
	weight, err := rule(aggregation, divisor, float64(total), float64(trained), float64(len(tokens)))
	if err != nil {
		return nil, err
	}
	weights := make([]float64, len(rows))
	for k, row := range rows {
		if row.Tokens > 0 {
			weights[k] = weight(float64(tokens[row.Trajectory]))
		}
	}
	return weights, nil
}

// rule gives the weight of a token as a function of its trajectory's trained tokens.
func rule(aggregation string, divisor, total, trained, all float64) (func(tokens float64) float64, error) {
	switch aggregation {
	case TokenMean:
		return func(float64) float64 { return 1 / total }, nil
	case SeqMeanTokenSum:
		return func(float64) float64 { return 1 / trained }, nil
	case SeqMeanTokenMean:
		return func(tokens float64) float64 { return 1 / (trained * tokens) }, nil
	case SeqMeanTokenSumNorm:
		if !(divisor > 0) {
			return nil, fmt.Errorf("divisor is %v; %s needs one above 0", divisor, aggregation)
		}
		return func(float64) float64 { return 1 / (all * divisor) }, nil
	}
	return nil, fmt.Errorf("aggregation is %q; allowed are %q, %q, %q and %q",
		aggregation, TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm)
}
