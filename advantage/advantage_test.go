package advantage

import (
	"math"
	"slices"
	"strings"
	"testing"
)

var nan = math.NaN()

func close4(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-4 })
}

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		name   string
		scores []float64
		failed []bool
		change func(*Options)
		want   []float64
	}{
		{"unbiased deviation", []float64{1, 0, 0, 0}, nil, nil, []float64{1.5, -0.5, -0.5, -0.5}},
		{"one question at a time, first", []float64{1, 1, 1, 0}, nil, nil, []float64{0.5, 0.5, 0.5, -1.5}},
		{"one question at a time, second", []float64{0, 0, 0, 1}, nil, nil, []float64{-0.5, -0.5, -0.5, 1.5}},
		{"a failed trajectory enters no statistic", []float64{1, 0, 9, 1}, []bool{false, false, true, false}, nil, []float64{0.57735, -1.1547, 0, 0.57735}},
		{"a score that is not a number", []float64{1, nan, 0, 1}, nil, nil, []float64{0.57735, 0, -1.1547, 0.57735}},
		{"an infinite score", []float64{1, math.Inf(-1), 0, 1}, nil, nil, []float64{0.57735, 0, -1.1547, 0.57735}},
		{"no score at all", []float64{nan, nan}, nil, nil, []float64{0, 0}},
		{"no trajectory", nil, nil, nil, nil},
		{"group of one", []float64{0.7}, nil, func(o *Options) { o.MinGroup = 1 }, []float64{0}},
		{"group of one keeps its score", []float64{0.7}, nil, func(o *Options) { o.MinGroup, o.Single = 1, "score" }, []float64{0.7}},
		{"a single valid one is left out", []float64{0.7, 1}, []bool{false, true}, func(o *Options) { o.Single = "score" }, []float64{0, 0}},
		{"too few valid ones are left out", []float64{1, 0, nan}, nil, func(o *Options) { o.MinGroup = 3 }, []float64{0, 0, 0}},
		{"no division", []float64{1, 0, 0, 0}, nil, func(o *Options) { o.Normalize = "none" }, []float64{0.75, -0.25, -0.25, -0.25}},
		{"floor above the deviation", []float64{1, 0, 0, 0}, nil, func(o *Options) { o.OutcomeMinStd = 1 }, []float64{0.75, -0.25, -0.25, -0.25}},
		{"floor below the deviation", []float64{1, 0, 0, 0}, nil, func(o *Options) { o.OutcomeMinStd = 0.4 }, []float64{1.5, -0.5, -0.5, -0.5}},
	} {
		o := Default()
		if test.change != nil {
			test.change(&o)
		}
		a, err := Compute(test.scores, nil, test.failed, o)
		if err != nil {
			t.Fatal(err)
		}
		if !close4(a.Outcome, test.want) {
			t.Errorf("%s: %v, want %v", test.name, a.Outcome, test.want)
		}
	}
}

// Splitting a trajectory into rows must not let it count more than once: the statistics of a
// question come from its trajectories whatever their number of turns.
func TestTurnsDoNotWeighOnTheOutcome(t *testing.T) {
	memory := [][]float64{{nan}, {nan, 0.1, 0.2, 0.3}, {nan, 0.2}, {nan}}
	a, err := Compute([]float64{1, 0, 0, 0}, memory, nil, Default())
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{1.5, -0.5, -0.5, -0.5}; !close4(a.Outcome, want) {
		t.Errorf("%v, want %v", a.Outcome, want)
	}
}

// The mean of equal values can be one rounding away from them: 0 must be exact all the same.
func TestEqualScoresGiveExactlyZero(t *testing.T) {
	for _, score := range []float64{0, 0.1, 0.3, 0.7, 1, 1.1, -0.3, 1e50} {
		for n := 2; n <= 16; n++ {
			scores, memory := make([]float64, n), make([][]float64, n)
			for i := range scores {
				scores[i], memory[i] = score, []float64{nan, score}
			}
			a, err := Compute(scores, memory, nil, Default())
			if err != nil {
				t.Fatal(err)
			}
			if !a.allZero(1) || !a.Equal || a.OutcomeStd != 0 || a.MemoryStd != 0 || a.LeftOut {
				t.Errorf("%d scores of %v: %+v", n, score, a)
			}
		}
	}
}

func TestMemory(t *testing.T) {
	for _, test := range []struct {
		name   string
		scores []float64
		memory [][]float64
		failed []bool
		change func(*Options)
		want   [][]float64
	}{
		{"all trajectories and turns in one pool", []float64{1, 0}, [][]float64{{nan, 0, 1}, {nan, 2}}, nil, nil, [][]float64{{0, -1, 0}, {0, 1}}},
		{"a pool per turn", []float64{1, 0}, [][]float64{{nan, 0, 1}, {nan, 2}}, nil, func(o *Options) { o.MemoryPool = "turn" }, [][]float64{{0, -0.70711, 0}, {0, 0.70711}}},
		{"pool of one", []float64{1, 0}, [][]float64{{nan, 0.4}, {nan}}, nil, func(o *Options) { o.Single = "score" }, [][]float64{{0, 0}, {0}}},
		{"failed trajectories do not count", []float64{1, 0, 1}, [][]float64{{nan, 0}, {nan, 50}, {nan, 1}}, []bool{false, true, false}, nil, [][]float64{{0, -0.70711}, {0, 0}, {0, 0.70711}}},
		{"values that are not finite do not count", []float64{1, 0}, [][]float64{{nan, 0, math.Inf(1)}, {nan, 1}}, nil, nil, [][]float64{{0, -0.70711, 0}, {0, 0.70711}}},
		{"noise is blown up without a floor", []float64{0, 0, 0, 0}, [][]float64{{0.02}, {0.01}, {0.03}, {0.02}}, nil, nil, [][]float64{{0}, {-1.22459}, {1.22459}, {0}}},
		{"a floor keeps noise small", []float64{0, 0, 0, 0}, [][]float64{{0.02}, {0.01}, {0.03}, {0.02}}, nil, func(o *Options) { o.MemoryMinStd = 0.05 }, [][]float64{{0}, {-0.2}, {0.2}, {0}}},
		{"gate without a success", []float64{0, 0, 0, 0}, [][]float64{{0.02}, {0.01}, {0.03}, {0.02}}, nil, func(o *Options) { o.MemoryGate = "any_success" }, [][]float64{{0}, {0}, {0}, {0}}},
		{"gate with a success", []float64{0, 1}, [][]float64{{0}, {1}}, nil, func(o *Options) { o.MemoryGate = "any_success" }, [][]float64{{-0.70711}, {0.70711}}},
		{"gate: the success of a failed trajectory does not count", []float64{0, 0, 1}, [][]float64{{0}, {1}, {2}}, []bool{false, false, true}, func(o *Options) { o.MemoryGate = "any_success" }, [][]float64{{0}, {0}, {0}}},
		{"no division", []float64{1, 0}, [][]float64{{0.2}, {0.4}}, nil, func(o *Options) { o.Normalize = "none" }, [][]float64{{-0.1}, {0.1}}},
		{"left out", []float64{1, nan}, [][]float64{{0.2, 0.4}, nil}, nil, nil, [][]float64{{0, 0}, {}}},
		{"the weight does not touch the value", []float64{1, 0}, [][]float64{{0}, {1}}, nil, func(o *Options) { o.MemoryWeight = 0.3 }, [][]float64{{-0.70711}, {0.70711}}},
	} {
		o := Default()
		if test.change != nil {
			test.change(&o)
		}
		a, err := Compute(test.scores, test.memory, test.failed, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(a.Memory, test.want, close4) {
			t.Errorf("%s: %v, want %v", test.name, a.Memory, test.want)
		}
	}
}

func TestStatistics(t *testing.T) {
	memory := [][]float64{{nan, 0, 1}, {nan, 2, 5}, {nan, 4}}
	o := Default()
	a, err := Compute([]float64{1, 0, nan}, memory, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	if a.Valid != 2 || a.Equal || a.LeftOut || a.MemoryCount != 5 || !close4([]float64{a.OutcomeStd, a.MemoryStd}, []float64{0.70711, 2.07364}) {
		t.Errorf("%+v", a)
	}
	o.MemoryPool = "turn"
	if a, err = Compute([]float64{1, 0, nan}, memory, nil, o); err != nil {
		t.Fatal(err)
	}
	// deviations 2 of three values and 2.8284 of two
	if a.MemoryCount != 5 || math.Abs(a.MemoryStd-(3*2+2*2.828427)/5) > 1e-6 {
		t.Errorf("%+v", a)
	}
}

func TestDropEqualGroups(t *testing.T) {
	for _, test := range []struct {
		name   string
		memory [][]float64
		weight float64
		want   bool
	}{
		{"nothing to learn", [][]float64{{nan}, {nan}}, 1, true},
		{"memory to learn", [][]float64{{nan, 0.1}, {nan, 0.2}}, 1, false},
		{"memory without weight", [][]float64{{nan, 0.1}, {nan, 0.2}}, 0, true},
	} {
		o := Default()
		o.MemoryWeight = test.weight
		for _, o.DropEqualGroups = range []bool{false, true} {
			a, err := Compute([]float64{1, 1}, test.memory, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			if a.LeftOut != (test.want && o.DropEqualGroups) || !a.Equal {
				t.Errorf("%s, drop %v: %+v", test.name, o.DropEqualGroups, a)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		want   string
		scores []float64
		memory [][]float64
		failed []bool
		change func(*Options)
	}{
		{"2 scores, 1 lists of memory rewards, 2 failed marks: want one of each per trajectory", []float64{1, 0}, [][]float64{{}}, nil, nil},
		{"2 scores, 2 lists of memory rewards, 1 failed marks: want one of each per trajectory", []float64{1, 0}, nil, []bool{true}, nil},
		{`normalize is "mean", allowed: "std" or "none"`, nil, nil, nil, func(o *Options) { o.Normalize = "mean" }},
		{`single is "", allowed: "zero" or "score"`, nil, nil, nil, func(o *Options) { o.Single = "" }},
		{`memory.gate is "all", allowed: "none" or "any_success"`, nil, nil, nil, func(o *Options) { o.MemoryGate = "all" }},
		{`memory.pool is "batch", allowed: "question" or "turn"`, nil, nil, nil, func(o *Options) { o.MemoryPool = "batch" }},
		{"min_group is 0, allowed: 1 or more", nil, nil, nil, func(o *Options) { o.MinGroup = 0 }},
		{"memory_weight is NaN, allowed: 0 or more", nil, nil, nil, func(o *Options) { o.MemoryWeight = nan }},
		{"outcome.min_std is -1, allowed: 0 or more", nil, nil, nil, func(o *Options) { o.OutcomeMinStd = -1 }},
		{"memory.min_std is +Inf, allowed: 0 or more", nil, nil, nil, func(o *Options) { o.MemoryMinStd = math.Inf(1) }},
	} {
		o := Default()
		if test.change != nil {
			test.change(&o)
		}
		if _, err := Compute(test.scores, test.memory, test.failed, o); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

func TestBroadcast(t *testing.T) {
	mask := []bool{true, true, true, true, false, false, true, true}
	spans := []Span{{0, 2}, {}, {5, 7}}
	got, err := Broadcast(mask, spans, -1, []float64{4, 9, 2}, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	// the memory advantage is added inside a span only, and nothing lands off the mask
	if want := []float32{1, 1, -1, -1, 0, 0, 0, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, test := range []struct {
		spans []Span
		want  string
	}{
		{[]Span{{0, 9}}, "memory of turn 1 covers tokens 0 to 9 of 8"},
		{[]Span{{-1, 2}}, "memory of turn 1 covers tokens -1 to 2 of 8"},
		{[]Span{{3, 2}}, "memory of turn 1 covers tokens 3 to 2 of 8"},
		{nil, "0 memory spans for 1 memory advantages"},
	} {
		if _, err := Broadcast(mask, test.spans, 0, []float64{1}, 1); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.spans, err, test.want)
		}
	}
}
