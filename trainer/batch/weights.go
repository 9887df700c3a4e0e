// Package batch cuts trajectories into batches of bounded size and spreads a loss's normaliser
// over their tokens.
package batch

import "fmt"

// The ways of adding token losses up to one number; "seq" means trajectory. The results are those
// of two trajectories with 2 and 6 trained tokens and losses of 1 and 3 per token.
const (
	TokenMean           = "token-mean"              // sum / trained tokens: (2·1 + 6·3) / 8 = 2.5
	SeqMeanTokenSum     = "seq-mean-token-sum"      // mean over trajectories of their sums: (2 + 18) / 2 = 10
	SeqMeanTokenMean    = "seq-mean-token-mean"     // mean over trajectories of their means: (1 + 3) / 2 = 2
	SeqMeanTokenSumNorm = "seq-mean-token-sum-norm" // sum / (trajectories · divisor): with divisor 8, 20 / (2 · 8) = 1.25
)

// Weights gives, for each trajectory of a mini-batch, the weight of each of its trained tokens
// (counts of them), so that the loss is Σ weight · token loss however the mini-batch is cut. Means
// over trajectories run over those with a trained token; those of seq-mean-token-sum-norm over
// all, by a constant divisor. Without a trained token all weights are 0.
func Weights(aggregation string, divisor float64, counts []int) ([]float64, error) {
	total, trained := 0, 0
	for _, count := range counts {
		total += count
		if count > 0 {
			trained++
		}
	}
	weights := make([]float64, len(counts))
	for k, count := range counts {
		if count == 0 {
			continue
		}
		switch aggregation {
		case TokenMean:
			weights[k] = 1 / float64(total)
		case SeqMeanTokenSum:
			weights[k] = 1 / float64(trained)
		case SeqMeanTokenMean:
			weights[k] = 1 / (float64(trained) * float64(count))
		case SeqMeanTokenSumNorm:
			weights[k] = 1 / (float64(len(counts)) * divisor)
		default:
			return nil, fmt.Errorf("aggregation is %q; allowed are %s, %s, %s and %s", aggregation, TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm)
		}
	}
	return weights, nil
}
