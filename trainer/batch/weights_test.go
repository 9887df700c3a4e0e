package batch

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// loss adds up token losses that are the same within each trajectory.
func loss(t *testing.T, aggregation string, divisor float64, counts []int, perToken []float64) float64 {
	t.Helper()
	weights, err := Weights(aggregation, divisor, counts)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for k, count := range counts {
		sum += weights[k] * float64(count) * perToken[k]
	}
	return sum
}

func TestWeightsAddUpToTheLoss(t *testing.T) {
	tests := []struct {
		name        string
		aggregation string
		divisor     float64
		counts      []int
		perToken    []float64
		want        float64
	}{
		{"token mean", TokenMean, 0, []int{2, 6}, []float64{1, 3}, 2.5},
		{"mean of sums", SeqMeanTokenSum, 0, []int{2, 6}, []float64{1, 3}, 10},
		{"mean of means", SeqMeanTokenMean, 0, []int{2, 6}, []float64{1, 3}, 2},
		{"fixed divisor", SeqMeanTokenSumNorm, 8, []int{2, 6}, []float64{1, 3}, 1.25},
		{"token mean is no mean of means", TokenMean, 0, []int{2, 4, 6}, []float64{1, 2, 3}, 28.0 / 12},
		{"token mean without a masked trajectory", TokenMean, 0, []int{4, 0}, []float64{1, 1}, 1},
		{"mean of sums without a masked trajectory", SeqMeanTokenSum, 0, []int{4, 0}, []float64{1, 1}, 4},
		{"mean of means without a masked trajectory", SeqMeanTokenMean, 0, []int{4, 0}, []float64{1, 1}, 1},
		{"fixed divisor counts a masked trajectory", SeqMeanTokenSumNorm, 8, []int{4, 0}, []float64{1, 1}, 0.25},
	}
	for _, test := range tests {
		if got := loss(t, test.aggregation, test.divisor, test.counts, test.perToken); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestNothingTrainedWeighsNothing(t *testing.T) {
	for _, aggregation := range []string{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm} {
		weights, err := Weights(aggregation, 8, []int{0, 0})
		if err != nil || !slices.Equal(weights, []float64{0, 0}) {
			t.Errorf("%s: %v, %v", aggregation, weights, err)
		}
		if weights, err = Weights(aggregation, 8, nil); err != nil || len(weights) != 0 {
			t.Errorf("%s without rows: %v, %v", aggregation, weights, err)
		}
	}
}

func TestUnknownAggregationIsRefused(t *testing.T) {
	if _, err := Weights("mean", 1, []int{1}); err == nil || !strings.Contains(err.Error(), `aggregation is "mean"`) {
		t.Errorf("got %v", err)
	}
}
