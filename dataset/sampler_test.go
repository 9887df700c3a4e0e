package dataset

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"testing"
)

func numbered(n int) []Question {
	questions := make([]Question, n)
	for k := range questions {
		questions[k] = Question{ID: strconv.Itoa(k), Text: "q", Objectives: one("a")}
	}
	return questions
}

func sampler(t *testing.T, n int, seed uint64, shuffle bool) *Sampler {
	t.Helper()
	s, err := NewSampler(numbered(n), seed, shuffle)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ids(questions []Question) []string {
	names := make([]string, len(questions))
	for k, q := range questions {
		names[k] = q.ID
	}
	return names
}

func TestOrderIsAFunctionOfTheSeed(t *testing.T) {
	first, again := sampler(t, 50, 42, true), sampler(t, 50, 42, true)
	other := sampler(t, 50, 43, true)
	var a, b, c []string
	for range 30 { // 120 draws, into the third epoch
		a = append(a, ids(first.Next(4))...)
		b = append(b, ids(again.Next(4))...)
		c = append(c, ids(other.Next(4))...)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs with one seed differ")
	}
	if reflect.DeepEqual(a, c) || reflect.DeepEqual(a[:50], c[:50]) {
		t.Error("another seed gives the same order")
	}
	if reflect.DeepEqual(a[:50], a[50:100]) {
		t.Error("two epochs have the same order")
	}
	if reflect.DeepEqual(a[:50], ids(numbered(50))) {
		t.Error("not shuffled")
	}
}

// TestOrderIsFixed guards resumed runs against a change of the algorithm.
func TestOrderIsFixed(t *testing.T) {
	got := ids(sampler(t, 8, 42, true).Next(16))
	want := []string{"3", "2", "1", "0", "5", "4", "7", "6", "4", "5", "7", "0", "1", "3", "6", "2"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEveryQuestionOnceAnEpoch(t *testing.T) {
	s := sampler(t, 13, 1, true)
	drawn := ids(s.Next(13 * 3))
	for epoch := range slices.Chunk(drawn, 13) {
		seen := map[string]bool{}
		for _, id := range epoch {
			seen[id] = true
		}
		if len(seen) != 13 {
			t.Errorf("epoch %q", epoch)
		}
	}
}

// TestOrderIsUniform: over 4000 epochs each of 5 questions comes about 800 times at each position
// (standard deviation 25).
func TestOrderIsUniform(t *testing.T) {
	s := sampler(t, 5, 9, true)
	var counts [5]map[string]int
	for position := range counts {
		counts[position] = map[string]int{}
	}
	for range 4000 {
		for position, id := range ids(s.Next(5)) {
			counts[position][id]++
		}
	}
	for position, byID := range counts {
		for id, n := range byID {
			if n < 675 || n > 925 {
				t.Errorf("question %s came %d times at position %d", id, n, position)
			}
		}
	}
}

func TestFileOrderWithoutShuffle(t *testing.T) {
	got := ids(sampler(t, 3, 42, false).Next(7))
	if want := []string{"0", "1", "2", "0", "1", "2", "0"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestRestoreContinuesExactly(t *testing.T) {
	for drawn := range 25 {
		whole := sampler(t, 10, 7, true)
		whole.Next(drawn)
		saved, err := json.Marshal(whole.State())
		if err != nil {
			t.Fatal(err)
		}
		var state OrderState
		if err := json.Unmarshal(saved, &state); err != nil {
			t.Fatal(err)
		}
		resumed := sampler(t, 10, 7, true)
		if err := resumed.Restore(state); err != nil {
			t.Fatal(err)
		}
		if a, b := ids(whole.Next(24)), ids(resumed.Next(24)); !reflect.DeepEqual(a, b) {
			t.Errorf("after %d: %q, resumed %q", drawn, a, b)
		}
		if !reflect.DeepEqual(whole.State(), resumed.State()) {
			t.Errorf("after %d: state %+v, resumed %+v", drawn, whole.State(), resumed.State())
		}
	}
}

func TestSamplerRefuses(t *testing.T) {
	if _, err := NewSampler(nil, 1, true); err == nil {
		t.Error("an empty set was taken")
	}
	s := sampler(t, 10, 7, true)
	if err := s.Restore(OrderState{Drawn: 3, Size: 11}); err == nil {
		t.Error("a position in another set was taken")
	}
	if got := s.Next(0); len(got) != 0 {
		t.Errorf("a draw of none gave %d", len(got))
	}
}
