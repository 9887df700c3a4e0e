package rollout

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/retrieval"
)

// twoTurns searches and then answers with its own key.
func twoTurns(k SeedKey) string {
	if k.Turn == 0 {
		return fmt.Sprintf("<mem>m</mem><think>t</think><search>%s %d</search>", k.Question, k.Member)
	}
	return fmt.Sprintf("<mem>n</mem><think>t</think><answer>%s %d</answer>", k.Question, k.Member)
}

// run runs the policy over n questions.
func run(t *testing.T, p *fakePolicy, o Options, drawn []Drawn, tools Tools) ([]*Group, Stats) {
	t.Helper()
	groups, stats, err := Run(t.Context(), p, drawn, o, tools)
	if err != nil {
		t.Fatal(err)
	}
	if !p.closed || len(p.rows) != 0 {
		t.Errorf("session closed: %v, %d rows left open", p.closed, len(p.rows))
	}
	for _, g := range groups {
		if len(g.Trajectories) != o.GroupSize {
			t.Errorf("question %s has %d trajectories", g.Question.ID, len(g.Trajectories))
		}
		for _, trajectory := range g.Trajectories {
			if err := trajectory.Validate(); err != nil {
				t.Error(err)
			}
		}
	}
	return groups, stats
}

// texts lists what every trajectory holds, but for times.
func texts(groups []*Group) []string {
	var all []string
	for _, g := range groups {
		for _, t := range g.Trajectories {
			line := fmt.Sprintf("%s/%d %s %v %v", g.Question.ID, t.Member, t.Stop, t.ResponseIDs, t.LogProbs)
			all = append(all, line)
		}
	}
	return all
}

// batches lists every forward pass: rows, ids and seeds.
func (p *fakePolicy) batchText() string {
	var text bytes.Buffer
	for _, inputs := range p.batches {
		for _, in := range inputs {
			fmt.Fprintf(&text, "%d:%v:%v:%d ", in.Row, in.IDs, in.Sample, in.Seed)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

func TestEveryMemberAnswersItsOwnQuestion(t *testing.T) {
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(3)
		o.Schedule = schedule
		var ended []string
		o.OnEnd = func(g *Group, t *Trajectory) { ended = append(ended, fmt.Sprintf("%s %d", g.Question.ID, t.Member)) }
		var last Progress
		o.Progress = func(p Progress) { last = p }
		drawn := questions(4)
		p := newFakePolicy(t, o, drawn, twoTurns)
		groups, stats := run(t, p, o, drawn, searchTools(echo))
		for k, g := range groups {
			if g.Question.ID != drawn[k].Question.ID || g.Draw != k {
				t.Errorf("group %d is question %s, draw %d", k, g.Question.ID, g.Draw)
			}
			for m, trajectory := range g.Trajectories {
				want := fmt.Sprintf("%s %d", g.Question.ID, m)
				if trajectory.Stop != Answered || *trajectory.Answer != want || trajectory.Elapsed <= 0 {
					t.Errorf("%s: stop %q, answer %v", want, trajectory.Stop, trajectory.Answer)
				}
				if found := trajectory.Turns[0].Result; !strings.Contains(found, "about "+want) {
					t.Errorf("%s: its search found %q", want, found)
				}
				if !slices.Contains(ended, want) {
					t.Errorf("%s: OnEnd has not seen it", want)
				}
			}
		}
		if len(ended) != 12 || last.Ended != 12 || last.Total != 12 || last.Rows != 0 || last.Generated != stats.GeneratedTokens {
			t.Errorf("%d ended, progress %+v", len(ended), last)
		}
		if stats.Turns != 24 || stats.ToolCalls != 12 || len(stats.ToolLatencies) != 12 || stats.ToolFailures != 0 || stats.ForwardPasses != len(p.batches) {
			t.Errorf("%+v", stats)
		}
	}
}

func TestFixedScheduleDoesNotDependOnTools(t *testing.T) {
	for _, maxRows := range []int{0, 2, 7} {
		fixedRunsRepeat(t, maxRows)
	}
}

func fixedRunsRepeat(t *testing.T, maxRows int) {
	t.Helper()
	drawn := questions(3)
	var first []string
	var batches string
	for round := range 6 {
		o := toyOptions(4)
		o.MaxRows = maxRows
		rng := rand.New(rand.NewPCG(uint64(round), 4))
		var mu sync.Mutex
		tools := searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
			mu.Lock()
			pause := time.Duration(rng.IntN(1500)) * time.Microsecond
			mu.Unlock()
			time.Sleep(pause)
			return echo(ctx, query)
		})
		tools.Concurrency = 1 + 3*(round%2)
		p := newFakePolicy(t, o, drawn, someTurns)
		groups, _ := run(t, p, o, drawn, tools)
		if round == 0 {
			first, batches = texts(groups), p.batchText()
			continue
		}
		if !reflect.DeepEqual(texts(groups), first) {
			t.Error("tool latency changes what is sampled")
		}
		if p.batchText() != batches {
			t.Error("tool latency changes which rows share a batch")
		}
	}
}

func TestSeedsOfAStep(t *testing.T) {
	drawn := questions(2)
	drawn[1].Question = drawn[0].Question // drawn twice
	var first []string
	for _, workers := range []int{1, 4, 1} {
		o := toyOptions(16)
		tools := searchTools(echo)
		tools.Concurrency = workers
		p := newFakePolicy(t, o, drawn, twoTurns) // fails the test when a seed comes twice
		groups, stats := run(t, p, o, drawn, tools)
		if len(p.seeds) != stats.GeneratedTokens {
			t.Errorf("%d seeds for %d tokens", len(p.seeds), stats.GeneratedTokens)
		}
		if first == nil {
			first = texts(groups)
		}
		if !slices.Equal(texts(groups), first) {
			t.Errorf("%d workers: other texts", workers)
		}
	}
}

func TestToolsRunBesideGeneration(t *testing.T) {
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(8)
		o.Schedule = schedule
		drawn := questions(1)
		var running, most, passes atomic.Int64
		p := newFakePolicy(t, o, drawn, func(k SeedKey) string {
			return strings.Repeat("x", k.Member*8) + twoTurns(k)
		})
		p.onStep = func([]model.RowInput) error {
			if running.Load() > 0 {
				passes.Add(1)
				time.Sleep(100 * time.Microsecond)
			}
			return nil
		}
		tools := searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(5 * time.Millisecond)
			return echo(ctx, query)
		})
		tools.Concurrency = 2
		run(t, p, o, drawn, tools)
		if passes.Load() == 0 {
			t.Errorf("%s: no forward pass ran beside a tool", schedule)
		}
		if most.Load() > 2 {
			t.Errorf("%s: %d calls at a time", schedule, most.Load())
		}
	}
}

func TestEagerScheduleDoesNotWaitForASlowTool(t *testing.T) {
	o := toyOptions(2)
	o.Schedule = Eager
	var ended []int
	o.OnEnd = func(_ *Group, t *Trajectory) { ended = append(ended, t.Member) }
	release := make(chan struct{})
	drawn := questions(1)
	p := newFakePolicy(t, o, drawn, twoTurns)
	run(t, p, o, drawn, searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if query == "q0 0" {
			select {
			case <-release:
			case <-time.After(10 * time.Second):
			}
		} else {
			time.AfterFunc(30*time.Millisecond, func() { close(release) })
		}
		return echo(ctx, query)
	}))
	if !slices.Equal(ended, []int{1, 0}) {
		t.Errorf("ended in the order %v", ended)
	}
}

func TestMalformedActionsAreCounted(t *testing.T) {
	o := toyOptions(16)
	drawn := questions(4)
	p := newFakePolicy(t, o, drawn, func(SeedKey) string { return "<mem>m</mem><think>t</think><search never closed" + endOfTurnT })
	_, stats := run(t, p, o, drawn, searchTools(echo))
	if stats.Malformed != 64 || stats.ToolCalls != 0 || !strings.Contains(stats.MalformedSample, "<search never") {
		t.Errorf("%d malformed, %d calls, sample %q", stats.Malformed, stats.ToolCalls, stats.MalformedSample)
	}
}

func TestAccessIsOffByDefault(t *testing.T) {
	o := toyOptions(1)
	drawn := questions(1)
	script := func(k SeedKey) string {
		if k.Turn == 0 {
			return "<access>http://example.org</access>"
		}
		return answerTurn
	}
	groups, stats := run(t, newFakePolicy(t, o, drawn, script), o, drawn, searchTools(echo))
	got := groups[0].Trajectories[0]
	if got.Stop != Answered || stats.ToolCalls != 0 || !strings.Contains(got.Turns[0].Result, "no access here") {
		t.Errorf("stop %s, %d calls, told %q", got.Stop, stats.ToolCalls, got.Turns[0].Result)
	}
	tools := searchTools(echo)
	tools.Access = accessFunc(func(_ context.Context, url string) (string, error) { return "page of " + url, nil })
	groups, stats = run(t, newFakePolicy(t, o, drawn, script), o, drawn, tools)
	if got := groups[0].Trajectories[0]; stats.ToolCalls != 1 || !strings.Contains(got.Turns[0].Result, "page of http://example.org") {
		t.Errorf("%d calls, told %q", stats.ToolCalls, got.Turns[0].Result)
	}
}

func TestSearchesWithoutResults(t *testing.T) {
	o := toyOptions(1)
	drawn := questions(1)
	groups, _ := run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, searchTools(func(context.Context, string) ([]retrieval.Passage, error) { return nil, nil }))
	if got := groups[0].Trajectories[0]; got.Stop != Answered || !strings.Contains(got.Turns[0].Result, "nothing") {
		t.Errorf("stop %s, told %q", got.Stop, got.Turns[0].Result)
	}
}

// A member that ends gives its place to the next before the next forward pass.
func TestPlacesAreGivenAtOnce(t *testing.T) {
	o := toyOptions(9)
	o.MaxRows = 3
	drawn := questions(2)
	p := newFakePolicy(t, o, drawn, func(k SeedKey) string { return strings.Repeat("x", 7*(k.Member%4)) + answerTurn })
	begun := map[int]bool{}
	p.onStep = func(inputs []model.RowInput) error {
		for _, in := range inputs {
			if in.Sample {
				begun[in.Row] = true
			}
		}
		if len(begun) < 18 && len(inputs) != 3 && len(p.batches) > 0 { // one may be the second prompt
			t.Errorf("pass %d: %d rows go on, %d have begun", len(p.batches), len(inputs), len(begun))
		}
		return nil
	}
	run(t, p, o, drawn, Tools{Concurrency: 1})
	if p.peak != 3 || len(begun) != 18 {
		t.Errorf("%d rows at a time, %d in all", p.peak, len(begun))
	}
}

// When all wait for tools the lag of the fixed schedule is skipped, not run.
func TestTheFixedScheduleRunsNoEmptyPasses(t *testing.T) {
	passes := map[Schedule]int{}
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(1)
		o.Schedule = schedule
		drawn := questions(1)
		_, stats := run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, searchTools(echo))
		passes[schedule] = stats.ForwardPasses
		if feeds := stats.ForwardPasses - stats.GeneratedTokens; feeds != 1 { // the prompt; a result comes with the next token
			t.Errorf("%s: %d passes sample nothing", schedule, feeds)
		}
	}
	if passes[Fixed] != passes[Eager] {
		t.Errorf("passes: %v", passes)
	}
}
