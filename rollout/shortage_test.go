package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

func TestMemoryShortage(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*fakePolicy)
		failed int // members of 8
	}{
		{"few rows at a time", func(p *fakePolicy) {
			p.onStep = func(in []model.RowInput) error { return outOfMemoryIf(len(in) > 3) }
		}, 0},
		{"few tokens at a time", func(p *fakePolicy) {
			p.onStep = func(in []model.RowInput) error {
				return outOfMemoryIf(slices.ContainsFunc(in, func(r model.RowInput) bool { return len(r.IDs) > 4 }))
			}
		}, 0},
		{"few rows in all", func(p *fakePolicy) {
			p.onFork = func(rows int) error { return outOfMemoryIf(rows >= 3) }
		}, 0},
		{"no row at all", func(p *fakePolicy) {
			p.onFork = func(int) error { return outOfMemoryIf(true) }
		}, 8},
		{"no copy", func(p *fakePolicy) {
			p.onFork = func(rows int) error { return outOfMemoryIf(rows >= 1) }
		}, 8},
		{"no token at all", func(p *fakePolicy) {
			p.onStep = func([]model.RowInput) error { return outOfMemoryIf(true) }
		}, 8},
		{"one long row", func(p *fakePolicy) {
			p.onStep = func(in []model.RowInput) error {
				return outOfMemoryIf(slices.ContainsFunc(in, func(r model.RowInput) bool { return r.Row == 3 && len(p.rows[3].ids) > 30 }))
			}
		}, 1},
		{"one that may be another", func(p *fakePolicy) {
			p.onStep = func(in []model.RowInput) error {
				return outOfMemoryIf(slices.ContainsFunc(in, func(r model.RowInput) bool { return r.Row == 5 && len(p.rows[5].ids) > 30 }))
			}
		}, 0},
		{"none for the result of a search", func(p *fakePolicy) {
			short := false
			p.onStep = func(in []model.RowInput) error {
				return outOfMemoryIf(slices.ContainsFunc(in, func(r model.RowInput) bool {
					short = short || r.Row == 3 && len(r.IDs) > 1 && len(p.rows[3].ids) > 30
					return r.Row == 3 && short
				}))
			}
		}, 1},
	} {
		o := toyOptions(4)
		o.Schedule = Eager
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, twoTurns)
		c.change(p)
		groups, _ := run(t, p, o, drawn, searchTools(echo))
		failed := 0
		for _, g := range groups {
			for _, trajectory := range g.Trajectories {
				if trajectory.Stop == FailedEngine {
					failed++
				} else if trajectory.Stop != Answered {
					t.Errorf("%s: stop %s", c.name, trajectory.Stop)
				}
			}
		}
		if failed != c.failed {
			t.Errorf("%s: %d failed, want %d", c.name, failed, c.failed)
		}
	}
}

// The last member of the first question is live when there is no memory for the second's prompt.
func TestMemoryShortageBetweenQuestions(t *testing.T) {
	o := toyOptions(2)
	o.MaxRows = 2
	drawn := questions(2)
	p := newFakePolicy(t, o, drawn, func(k SeedKey) string { return strings.Repeat("x", 20*k.Member) + answerTurn })
	refused := 0
	p.onFork = func(rows int) error {
		short := p.opened == 3 && rows == 2
		if short {
			refused++
		}
		return outOfMemoryIf(short)
	}
	groups, _ := run(t, p, o, drawn, searchTools(echo))
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			if trajectory.Stop != Answered {
				t.Errorf("question %s: stop %s", g.Question.ID, trajectory.Stop)
			}
		}
	}
	if refused != 1 {
		t.Errorf("memory was short %d times, and is no shorter while the member runs", refused)
	}
}

func outOfMemoryIf(yes bool) error {
	if yes {
		return fmt.Errorf("fake device: %w", model.ErrOutOfMemory)
	}
	return nil
}

// A device that has less memory than all rows take, and does not say so before, costs time and no
// trajectory.
func TestADeviceThatRunsOutPutsTrajectoriesAside(t *testing.T) {
	putAside, refused := 0, 0
	for round := range 30 {
		rng := rand.New(rand.NewPCG(uint64(round), 6))
		o, drawn, pageTokens := budgeted(rng, round)
		free := newFakePolicy(t, o, drawn, someTurns)
		groups, _ := run(t, free, o, drawn, searchTools(echo))
		want := texts(groups)
		o.BatchTokens, o.Schedule = 1+rng.IntN(60), []Schedule{Fixed, Eager}[rng.IntN(2)]
		w := watch(t, &o)
		p := newFakePolicy(t, o, drawn, someTurns)
		p.pageTokens = pageTokens
		p.device = leastBudget(t, o, drawn, pageTokens)/pageTokens + rng.IntN(20)
		groups, stats := run(t, p, o, drawn, searchTools(echo))
		if !slices.Equal(texts(groups), want) || !maps.Equal(p.contexts, free.contexts) || len(w.seen) != len(w.asked) {
			t.Errorf("round %d: other trajectories, or %d of %d measured", round, len(w.seen), len(w.asked))
		}
		putAside += stats.PutAside
		refused += p.refused
	}
	// What is learned from the first shortage keeps most of the others away.
	if putAside < 30 || refused > 1000 {
		t.Errorf("%d put aside, memory was short %d times", putAside, refused)
	}
}
