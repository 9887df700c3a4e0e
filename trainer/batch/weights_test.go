package batch

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// loss adds up token losses that are the same within each row.
func loss(t *testing.T, aggregation string, divisor float64, rows []Row, perToken []float64) float64 {
	t.Helper()
	weights, err := Weights(aggregation, divisor, rows)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for k, row := range rows {
		sum += weights[k] * float64(row.Tokens) * perToken[k]
	}
	return sum
}

func rowsOf(tokens ...int) []Row {
	rows := make([]Row, len(tokens))
	for k, n := range tokens {
		rows[k] = Row{Trajectory: k, Tokens: n}
	}
	return rows
}

func TestWeightsAddUpToTheLoss(t *testing.T) {
	tests := []struct {
		name        string
		aggregation string
		divisor     float64
		rows        []Row
		perToken    []float64
		want        float64
	}{
		{"token mean", TokenMean, 0, rowsOf(2, 6), []float64{1, 3}, 2.5},
		{"mean of sums", SeqMeanTokenSum, 0, rowsOf(2, 6), []float64{1, 3}, 10},
		{"mean of means", SeqMeanTokenMean, 0, rowsOf(2, 6), []float64{1, 3}, 2},
		{"fixed divisor", SeqMeanTokenSumNorm, 8, rowsOf(2, 6), []float64{1, 3}, 1.25},
		{"token mean is no mean of means", TokenMean, 0, rowsOf(2, 4, 6), []float64{1, 2, 3}, 28.0 / 12},
		{"token mean without a masked trajectory", TokenMean, 0, rowsOf(4, 0), []float64{1, 1}, 1},
		{"mean of sums without a masked trajectory", SeqMeanTokenSum, 0, rowsOf(4, 0), []float64{1, 1}, 4},
		{"mean of means without a masked trajectory", SeqMeanTokenMean, 0, rowsOf(4, 0), []float64{1, 1}, 1},
		{"fixed divisor counts a masked trajectory", SeqMeanTokenSumNorm, 8, rowsOf(4, 0), []float64{1, 1}, 0.25},
	}
	for _, test := range tests {
		if got := loss(t, test.aggregation, test.divisor, test.rows, test.perToken); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTrajectoryMaySpanRows(t *testing.T) {
	parts := []Row{{Trajectory: 7, Tokens: 1}, {Trajectory: 3, Tokens: 6}, {Trajectory: 7, Tokens: 1}, {Trajectory: 7}}
	for _, aggregation := range []string{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm} {
		whole := loss(t, aggregation, 8, rowsOf(2, 6), []float64{1, 3})
		if got := loss(t, aggregation, 8, parts, []float64{1, 3, 1, 1}); math.Abs(got-whole) > 1e-12 {
			t.Errorf("%s: %v in parts, %v whole", aggregation, got, whole)
		}
	}
}

func TestNothingTrainedWeighsNothing(t *testing.T) {
	for _, aggregation := range []string{TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm} {
		weights, err := Weights(aggregation, 8, rowsOf(0, 0))
		if err != nil || !slices.Equal(weights, []float64{0, 0}) {
			t.Errorf("%s: %v, %v", aggregation, weights, err)
		}
		if weights, err = Weights(aggregation, 8, nil); err != nil || len(weights) != 0 {
			t.Errorf("%s without rows: %v, %v", aggregation, weights, err)
		}
	}
}

func TestWeightsRefuses(t *testing.T) {
	tests := []struct {
		aggregation string
		divisor     float64
		want        string
	}{
		{"mean", 1, `aggregation is "mean"`},
		{SeqMeanTokenSumNorm, 0, "divisor is 0"},
		{SeqMeanTokenSumNorm, math.NaN(), "divisor is NaN"},
	}
	for _, test := range tests {
		if _, err := Weights(test.aggregation, test.divisor, rowsOf(1)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %v: %v, want %s", test.aggregation, test.divisor, err, test.want)
		}
	}
}
