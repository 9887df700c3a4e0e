package eval

import (
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/rollout"
)

// By its definition: of all ways to take k of n samples, the share that takes one of the right ones.
func TestPassAtKIsTheShareOfDraws(t *testing.T) {
	for n := 1; n <= 8; n++ {
		for right := 0; right <= n; right++ {
			for k := 1; k <= n; k++ {
				draws, passing := 0, 0
				for draw := range 1 << n {
					if bits.OnesCount(uint(draw)) == k {
						draws++
						if draw&(1<<right-1) != 0 { // the first ones are right
							passing++
						}
					}
				}
				if got, want := passAt(k, n, right), float64(passing)/float64(draws); math.Abs(got-want) > 1e-12 {
					t.Errorf("pass@%d of %d right among %d is %v, want %v", k, right, n, got, want)
				}
			}
		}
	}
}

// answersTo makes an answer for each of ems; NaN is a failed one.
func answersTo(q dataset.Question, ems ...float64) []Answer {
	var all []Answer
	for k, em := range ems {
		a := Answer{QuestionID: q.ID, Source: q.Source, Hops: q.Hops, Objectives: max(1, len(q.Objectives)), Sample: k, EM: rollout.Number(em), Stop: rollout.Answered}
		if math.IsNaN(em) {
			a.Stop = rollout.FailedTool
		}
		all = append(all, a)
	}
	return all
}

func same(a rollout.Number, b float64) bool {
	return math.Abs(float64(a)-b) < 1e-12 || math.IsNaN(float64(a)) && math.IsNaN(b)
}

// Each question weighs the same, however many of its samples failed.
func TestMeansAreOverQuestions(t *testing.T) {
	failed := math.NaN()
	q := dataset.Question{}
	f := summarise(slices.Concat(
		answersTo(q, 1, 0, 0),
		answersTo(q, failed, 1, failed),
		answersTo(q, failed, failed, failed),
		answersTo(q, 0.5, failed, 1), // half of its objectives is not solved
	), 3)
	if f.N != 4 || f.Trajectories != 12 || f.Failed != 6 {
		t.Errorf("%+v", f)
	}
	if want := (1.0/3 + 1 + 0.75) / 3; !same(f.EM, want) {
		t.Errorf("EM %v, want %v", f.EM, want)
	}
	want := []float64{(1.0/3 + 1 + 0.5) / 3, (2.0/3 + 1) / 2, 1}
	for k, pass := range f.PassAtK {
		if !same(pass, want[k]) {
			t.Errorf("pass@%d is %v, want %v", k+1, pass, want[k])
		}
	}
	f = summarise(answersTo(q, failed, failed), 2)
	if f.N != 1 || !same(f.EM, failed) || !same(f.PassAtK[0], failed) || !same(f.PassAtK[1], failed) {
		t.Errorf("of failures alone: %+v", f)
	}
}

func TestGroupsBySourceHopsAndObjectives(t *testing.T) {
	two := [][]string{{"a"}, {"b"}}
	r := &Result{Answers: slices.Concat(
		answersTo(dataset.Question{Source: "nq", Hops: 10, Objectives: two}, 0.5),
		answersTo(dataset.Question{Source: "hotpotqa", Hops: 2}, 1),
		answersTo(dataset.Question{Source: "nq"}, 0),
		answersTo(dataset.Question{Source: "nq", Hops: 2}, 0),
	)}
	r.sum(1)
	type line struct {
		by, key string
		n       int
		em      float64
	}
	want := []line{
		{BySource, "hotpotqa", 1, 1},
		{BySource, "nq", 3, 0.5 / 3},
		{ByHops, "2", 2, 0.5},
		{ByHops, "10", 1, 0.5},
		{ByHops, Unknown, 1, 0},
		{ByObjectives, "1", 3, 1.0 / 3},
		{ByObjectives, "2", 1, 0.5},
	}
	if len(r.Groups) != len(want) {
		t.Fatalf("groups %+v", r.Groups)
	}
	for k, g := range r.Groups {
		if w := want[k]; g.By != w.by || g.Key != w.key || g.N != w.n || !same(g.EM, w.em) {
			t.Errorf("group %d is %s %s of %d with EM %v, want %+v", k, g.By, g.Key, g.N, g.EM, w)
		}
	}
	if !same(r.Overall.EM, 1.5/4) || r.Overall.N != 4 {
		t.Errorf("overall %+v", r.Overall)
	}
	plain := &Result{Answers: answersTo(dataset.Question{}, 1)}
	plain.sum(1)
	if len(plain.Groups) != 1 || plain.Groups[0].By != ByObjectives {
		t.Errorf("without source and hops: %+v", plain.Groups)
	}
}
