package advantage

import "math"

// summary describes the finite values of a pool.
type summary struct {
	count     int
	mean, std float64 // std is unbiased; 0 for fewer than two values
	largest   float64 // −∞ for an empty pool
	equal     bool    // all values are the same
}

func finite(x float64) bool { return math.Abs(x) <= largest }

// summarize looks at the finite values only. Two passes: the one-pass formula loses all digits
// where the spread is small against the mean.
func summarize(values []float64) summary {
	s := summary{largest: math.Inf(-1), equal: true}
	smallest, sum := math.Inf(1), 0.0
	for _, x := range values {
		if finite(x) {
			s.count++
			sum += x
			s.largest, smallest = max(s.largest, x), min(smallest, x)
		}
	}
	if s.count == 0 {
		return s
	}
	s.mean = sum / float64(s.count)
	s.equal = s.largest == smallest
	if s.equal {
		return s
	}
	squares := 0.0
	for _, x := range values {
		if finite(x) {
			squares += (x - s.mean) * (x - s.mean)
		}
	}
	s.std = math.Sqrt(squares / float64(s.count-1))
	return s
}

// standardize gives (x − mean) / (max(std, minStd) + Epsilon), without the division for "none";
// exactly 0 for values that are not finite and for a pool of equal values, whose mean may be one
// rounding away from each of them.
func (s summary) standardize(values []float64, normalize string, minStd float64) []float64 {
	out := make([]float64, len(values))
	if s.equal {
		return out
	}
	divisor := 1.0
	if normalize == "std" {
		divisor = max(s.std, minStd) + Epsilon
	}
	for i, x := range values {
		if finite(x) {
			out[i] = (x - s.mean) / divisor
		}
	}
	return out
}

// pool holds memory rewards that are standardised together, and where their advantages go.
type pool struct {
	values []float64
	slots  []*float64
}

// gather collects the rewards of trajectories that did not fail into one pool, or one per turn
// number; slots point into advantages, which has the shape of rewards.
func gather(rewards, advantages [][]float64, failed []bool, perTurn bool) []pool {
	var pools []pool
	for i := range rewards {
		if failed[i] {
			continue
		}
		for t, reward := range rewards[i] {
			k := 0
			if perTurn {
				k = t
			}
			for len(pools) <= k {
				pools = append(pools, pool{})
			}
			pools[k].values = append(pools[k].values, reward)
			pools[k].slots = append(pools[k].slots, &advantages[i][t])
		}
	}
	return pools
}
