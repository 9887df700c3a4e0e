package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/retrieval"
)

// leisurely is echo after a moment.
func leisurely(ctx context.Context, query string) ([]retrieval.Passage, error) {
	time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
	return echo(ctx, query)
}

// door is a tool that the first members find closed. It gives up when it stays closed.
type door struct {
	opened chan struct{}
	once   sync.Once
	late   sync.Once
	t      *testing.T
}

func newDoor(t *testing.T) *door { return &door{t: t, opened: make(chan struct{})} }

func (d *door) open() { d.once.Do(func() { close(d.opened) }) }

func (d *door) wait() {
	select {
	case <-d.opened:
	case <-time.After(20 * time.Second):
		d.late.Do(func() { d.t.Error("who waits for a tool holds up those that could run") })
	}
}

// One place serves all others while the tool of the first works.
func TestWaitingTrajectoriesGiveTheirPlaces(t *testing.T) {
	for _, c := range []Context{Full, Limited} {
		o := toyOptions(6)
		o.Context, o.Schedule, o.MaxRows = c, Eager, 1
		d := newDoor(t)
		var ended []int
		o.OnEnd = func(_ *Group, trajectory *Trajectory) {
			if ended = append(ended, trajectory.Member); len(ended) == 5 {
				d.open()
			}
		}
		drawn := questions(1)
		p := newFakePolicy(t, o, drawn, twoTurns)
		groups, _ := run(t, p, o, drawn, searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
			if query == "q0 0" {
				d.wait()
			}
			return echo(ctx, query)
		}))
		if valid(groups) != 6 || ended[5] != 0 || p.busiest != 1 {
			t.Errorf("%s: ended in the order %v, %d in a pass", c, ended, p.busiest)
		}
	}
}

// No forward pass has a free place while somebody has not begun.
func TestPlacesAreNeverEmptyWhileSomebodyWaits(t *testing.T) {
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(6)
		o.Schedule, o.MaxRows = schedule, 2
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, twoTurns)
		begun := map[int]bool{}
		p.onStep = func(inputs []model.RowInput) error {
			for _, in := range inputs {
				if p.rows[in.Row].forked {
					begun[in.Row] = true
				}
			}
			if len(begun) < 12 && len(inputs) != 2 && len(p.batches) > 0 { // one may be the second prompt
				t.Errorf("%s, pass %d: %d rows go on, %d have begun", schedule, len(p.batches), len(inputs), len(begun))
			}
			return nil
		}
		groups, _ := run(t, p, o, drawn, searchTools(leisurely))
		if valid(groups) != 12 || len(begun) != 12 {
			t.Errorf("%s: %d did not fail, %d rows", schedule, valid(groups), len(begun))
		}
	}
}

// Whose tool has answered goes on before others begin, older ones first.
func TestAnsweredTrajectoriesGoOnBeforeNewOnes(t *testing.T) {
	for _, c := range []Context{Full, Limited} {
		o := toyOptions(4)
		o.Context, o.MaxRows = c, 1
		var turns []string
		drawn := questions(1)
		p := newFakePolicy(t, o, drawn, func(k SeedKey) string {
			turns = append(turns, fmt.Sprint(k.Member, ".", k.Turn))
			return strings.Repeat("x", fixedToolLag) + twoTurns(k)
		})
		run(t, p, o, drawn, searchTools(leisurely))
		if want := []string{"0.0", "1.0", "0.1", "1.1", "2.0", "3.0", "2.1", "3.1"}; !slices.Equal(turns, want) {
			t.Errorf("%s: turns in the order %v", c, turns)
		}
	}
}

// Within a budget the newest of those that wait for tools make way for those that have not begun.
func TestWaitingTrajectoriesMakeWayInTheCache(t *testing.T) {
	for _, c := range []Context{Full, Limited} {
		o := toyOptions(8)
		o.Context, o.Schedule, o.MaxResponseTokens = c, Eager, 400
		script := func(k SeedKey) string { return strings.Repeat("x", 60) + twoTurns(k) }
		drawn := questions(1)
		groups, _ := run(t, newFakePolicy(t, o, drawn, script), o, drawn, searchTools(echo))
		want := texts(groups)
		o.CacheTokens = leastBudget(t, o, drawn, 4)
		d := newDoor(t)
		p := newFakePolicy(t, o, drawn, script)
		groups, stats := run(t, p, o, drawn, searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
			if query == "q0 7" {
				d.open()
			}
			d.wait()
			return echo(ctx, query)
		}))
		if !slices.Equal(texts(groups), want) || stats.PutAside == 0 || p.refused > 0 {
			t.Errorf("%s: other trajectories, or %d put aside, memory was short %d times", c, stats.PutAside, p.refused)
		}
	}
}
