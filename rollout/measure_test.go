package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/retrieval"
)

// branchesOf puts two tokens behind the beginning of each turn, and two more behind the prompt and
// the turn's memory.
func branchesOf(_ *Group, t *Trajectory) []Branch {
	var branches []Branch
	for k, turn := range t.Turns {
		branches = append(branches, Branch{Turn: k, Length: len(t.PromptIDs) + turn.Tokens.Start, IDs: []int32{7, 8, 9}, Positions: []int32{1, 2}})
		if turn.HasMemory {
			ids := append(slices.Clone(turn.MemoryIDs), 7, 8)
			branches = append(branches, Branch{Turn: k, Length: len(t.PromptIDs), IDs: ids, Positions: []int32{int32(len(ids) - 1)}})
		}
	}
	return branches
}

// measured collects what is measured, and checks the order of the hooks and every value.
type measured struct {
	t     *testing.T
	ended map[*Trajectory]bool
	asked map[*Trajectory]bool
	seen  map[*Trajectory]bool
}

// watch sets the hooks of o.
func watch(t *testing.T, o *Options) *measured {
	w := &measured{t, map[*Trajectory]bool{}, map[*Trajectory]bool{}, map[*Trajectory]bool{}}
	o.OnEnd = func(_ *Group, trajectory *Trajectory) { w.ended[trajectory] = true }
	o.Measure = func(g *Group, trajectory *Trajectory) []Branch {
		if !w.ended[trajectory] || w.asked[trajectory] || trajectory.Stop.Failed() {
			t.Errorf("branches of a trajectory (%s) are asked for: ended %v, asked %v", trajectory.Stop, w.ended[trajectory], w.asked[trajectory])
		}
		w.asked[trajectory] = true
		return branchesOf(g, trajectory)
	}
	o.Measured = func(g *Group, trajectory *Trajectory, branches []Branch, scores []model.RowScores) {
		if w.seen[trajectory] || !slices.Contains(g.Trajectories, trajectory) || len(scores) != len(branches) || len(branches) < len(trajectory.Turns) {
			t.Errorf("%d scores of %d branches for %d turns; seen %v", len(scores), len(branches), len(trajectory.Turns), w.seen[trajectory])
			return
		}
		w.seen[trajectory] = true
		for k, b := range branches {
			sequence := append(trajectory.FullIDs()[:b.Length:b.Length], b.IDs...)
			for n, position := range b.Positions {
				if got, want := scores[k].LogProbs[n], prefixLogProb(sequence[:b.Length+int(position)+1]); got != want {
					t.Errorf("turn %d: token %d of a branch behind %d tokens has %v, want %v", b.Turn, position, b.Length, got, want)
				}
			}
		}
	}
	return w
}

// valid counts the trajectories that did not fail.
func valid(groups []*Group) int {
	n := 0
	for _, g := range groups {
		for _, t := range g.Trajectories {
			if !t.Stop.Failed() {
				n++
			}
		}
	}
	return n
}

func TestBranchesAreScoredAgainstTheCache(t *testing.T) {
	for _, batchTokens := range []int{1, 12, 64, 10000} {
		for _, schedule := range []Schedule{Fixed, Eager} {
			o := toyOptions(4)
			o.Schedule, o.BatchTokens, o.MaxRows = schedule, batchTokens, 5
			w := watch(t, &o)
			drawn := questions(3)
			p := newFakePolicy(t, o, drawn, someTurns)
			groups, stats := run(t, p, o, drawn, searchTools(echo))
			if len(w.seen) != valid(groups) || len(w.seen) == 0 {
				t.Errorf("%d trajectories of %d were measured", len(w.seen), valid(groups))
			}
			tokens := 0
			for _, pieces := range p.scored {
				call := 0
				for k, piece := range pieces {
					call += len(piece.IDs)
					if k > 0 && pieces[k-1].Row == piece.Row && pieces[k-1].Length > piece.Length {
						t.Errorf("a piece behind %d tokens comes after one behind %d", piece.Length, pieces[k-1].Length)
					}
					if piece.Temperature != 1 {
						t.Errorf("temperature %v", piece.Temperature)
					}
				}
				if len(pieces) > 1 && call > batchTokens {
					t.Errorf("%d tokens in a call, at most %d are allowed", call, batchTokens)
				}
				tokens += call
			}
			if stats.ScoredTokens != tokens || tokens == 0 || stats.ScoreTime <= 0 {
				t.Errorf("%d tokens in %v, the policy saw %d", stats.ScoredTokens, stats.ScoreTime, tokens)
			}
		}
	}
}

// What is measured, and in which calls, is a matter of seeds and token counts under Fixed; and
// measuring changes nothing of what is sampled.
func TestBranchesRepeatUnderTheFixedSchedule(t *testing.T) {
	drawn := questions(3)
	var texts0, calls0 string
	for round := range 4 {
		o := toyOptions(4)
		o.MaxRows = 7
		if round > 0 {
			watch(t, &o)
		}
		tools := searchTools(echo)
		tools.Concurrency = 1 + round
		p := newFakePolicy(t, o, drawn, someTurns)
		groups, _ := run(t, p, o, drawn, tools)
		all, calls := strings.Join(texts(groups), "\n"), fmt.Sprint(p.scored)
		switch round {
		case 0:
			texts0 = all
		case 1:
			calls0 = calls
		}
		if all != texts0 || round > 0 && calls != calls0 {
			t.Errorf("round %d differs", round)
		}
	}
}

func TestNothingIsMeasuredInALimitedContext(t *testing.T) {
	o := toyOptions(3)
	o.Context = Limited
	w := watch(t, &o)
	drawn := questions(2)
	p := newFakePolicy(t, o, drawn, twoTurns)
	run(t, p, o, drawn, searchTools(echo))
	if len(w.asked) > 0 || len(p.scored) > 0 {
		t.Errorf("%d trajectories were asked for branches, %d calls scored them", len(w.asked), len(p.scored))
	}
}

// A shortage while branches are scored costs at most their measure, never a trajectory.
func TestBranchesWithoutMemory(t *testing.T) {
	for _, c := range []struct {
		name     string
		limit    int // tokens of a call
		measured int
	}{
		{"small calls", 25, 8},
		{"the branch of a long memory is too long", 4, 4},
	} {
		o := toyOptions(4)
		o.BatchTokens = 1000
		w := watch(t, &o)
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, func(k SeedKey) string {
			_, text, _ := strings.Cut(twoTurns(k), "</mem>")
			return strings.Repeat("<mem>longer memory</mem>", k.Member%2) + text
		})
		refused := 0
		p.onScore = func(pieces []model.Piece) error {
			tokens := 0
			for _, piece := range pieces {
				tokens += len(piece.IDs)
			}
			if tokens > c.limit {
				refused++
			}
			return outOfMemoryIf(tokens > c.limit)
		}
		groups, _ := run(t, p, o, drawn, searchTools(echo))
		if valid(groups) != 8 || refused == 0 {
			t.Errorf("%s: %d trajectories did not fail, %d calls were refused", c.name, valid(groups), refused)
		}
		if len(w.seen) != c.measured || len(w.asked) != 8 {
			t.Errorf("%s: %d of %d were measured", c.name, len(w.seen), len(w.asked))
		}
	}
}

func TestErrorsOfScoringEndTheRun(t *testing.T) {
	broken := errors.New("device lost")
	o := toyOptions(2)
	watch(t, &o)
	drawn := questions(1)
	p := newFakePolicy(t, o, drawn, twoTurns)
	p.onScore = func([]model.Piece) error { return broken }
	if groups, _, err := Run(t.Context(), p, drawn, o, searchTools(echo)); !errors.Is(err, broken) || groups != nil || !p.closed {
		t.Errorf("error %v, %d groups, closed %v", err, len(groups), p.closed)
	}
}

// A row does not hold the last token that was sampled, so nothing can be measured behind it.
func TestBranchesBeyondTheRowAreNotScored(t *testing.T) {
	o := toyOptions(3)
	w := watch(t, &o)
	o.Measure = func(_ *Group, t *Trajectory) []Branch {
		w.asked[t] = true
		behind := len(t.FullIDs()) - 1 + t.Member%2
		return []Branch{{Length: behind, IDs: []int32{7, 8}, Positions: []int32{1}}, {Length: behind, IDs: []int32{7, 9}, Positions: []int32{1}}}
	}
	drawn := questions(1)
	groups, _ := run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, searchTools(echo))
	for m, trajectory := range groups[0].Trajectories {
		if trajectory.Stop != Answered || !w.asked[trajectory] || w.seen[trajectory] != (m%2 == 0) {
			t.Errorf("member %d stopped by %s, asked %v, measured %v", m, trajectory.Stop, w.asked[trajectory], w.seen[trajectory])
		}
	}
}

// Branches are scored while all others wait for tools, however few they are.
func TestBranchesAreScoredWhileToolsWork(t *testing.T) {
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(2)
		o.Schedule = schedule
		watch(t, &o)
		drawn := questions(1)
		p := newFakePolicy(t, o, drawn, func(k SeedKey) string {
			if k.Member == 0 {
				return answerTurn
			}
			return strings.Repeat("x", 60) + twoTurns(k)
		})
		scored := make(chan struct{})
		var once sync.Once
		p.onScore = func([]model.Piece) error {
			once.Do(func() { close(scored) })
			return nil
		}
		late := false
		run(t, p, o, drawn, searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
			select {
			case <-scored:
			case <-time.After(20 * time.Second):
				late = true
			}
			return echo(ctx, query)
		}))
		if late {
			t.Errorf("%s: the tool was done before", schedule)
		}
	}
}
