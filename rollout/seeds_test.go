package rollout

import (
	"fmt"
	"math/bits"
	"testing"
)

func TestSeedsAreDistinctWithinAStep(t *testing.T) {
	seen := map[uint64]SeedKey{}
	for draw := range 4 {
		for _, question := range []string{"", "a", "b", "ab"} {
			for member := range 16 {
				for turn := range 8 {
					for position := range 64 {
						key := SeedKey{0, 1, question, draw, member, turn, position}
						if other, ok := seen[key.Seed()]; ok {
							t.Fatalf("%+v and %+v share a seed", key, other)
						}
						seen[key.Seed()] = key
					}
				}
			}
		}
	}
}

func TestSeedDependsOnEveryField(t *testing.T) {
	base := SeedKey{1, 2, "q", 3, 4, 5, 6}
	for _, other := range []SeedKey{
		{2, 2, "q", 3, 4, 5, 6},
		{1, 3, "q", 3, 4, 5, 6},
		{1, 2, "r", 3, 4, 5, 6},
		{1, 2, "q", 4, 4, 5, 6},
		{1, 2, "q", 3, 5, 5, 6},
		{1, 2, "q", 3, 4, 6, 6},
		{1, 2, "q", 3, 4, 5, 7},
		{2, 1, "q", 3, 4, 5, 6},
		{1, 2, "q", 4, 3, 5, 6},
	} {
		if other.Seed() == base.Seed() {
			t.Errorf("%+v and %+v share a seed", base, other)
		}
	}
	if base.Seed() != (SeedKey{1, 2, "q", 3, 4, 5, 6}).Seed() {
		t.Error("a seed is not a function of its key")
	}
}

// Resumed runs replay only as long as the function stays what it is. The values come from a second
// program.
func TestSeedsStayWhatTheyAre(t *testing.T) {
	got := fmt.Sprintf("%016x %016x", SeedKey{}.Seed(), SeedKey{7, 3, "q0", 1, 2, 3, 4}.Seed())
	if want := "ae3f49d7227c9823 a3536b64a458d562"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSeedBitsAreFair(t *testing.T) {
	const n = 1 << 12
	var ones [64]int
	flips := 0
	for k := range n {
		a, b := SeedKey{Position: k}.Seed(), SeedKey{Position: k ^ 1}.Seed()
		flips += bits.OnesCount64(a ^ b)
		for bit := range ones {
			ones[bit] += int(a >> bit & 1)
		}
	}
	for bit, count := range ones {
		if count < n*45/100 || count > n*55/100 {
			t.Errorf("bit %d is set in %d of %d seeds", bit, count, n)
		}
	}
	if mean := float64(flips) / n; mean < 31 || mean > 33 {
		t.Errorf("neighbours differ in %.2f bits", mean)
	}
}
