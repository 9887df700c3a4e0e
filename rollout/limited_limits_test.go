package rollout

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/retrieval"
)

// What answers a turn in place of a result goes the same way, whether the turn had an action or not.
func TestShortMessagesInALimitedContext(t *testing.T) {
	const memory = "<mem>m</mem>"
	for _, c := range []struct{ name, turn, action, message string }{
		{"no action", memory + "hm" + endOfTurnT, "", "act!"},
		{"a broken action", memory + "<search q" + endOfTurnT, "", "act!"},
		{"empty query", memory + "<search> </search>", "<search> </search>", found("empty search")},
		{"a tool that is not offered", memory + "<access>u</access>", "<access>u</access>", found("no access here")},
		{"cut by the turn's limit", memory + strings.Repeat("h", 60), "", "act!"},
	} {
		g := newRigIn(t, Limited, func(r *Rules) { r.CorrectNoAction, r.MaxTurnTokens = true, 40 })
		g.rules.tools.Access = nil
		g.say(c.turn)
		if want := memory + c.action + message(c.message); g.sees() != want || !g.last.fresh {
			t.Errorf("%s: the turn sees %q, want %q", c.name, g.sees(), want)
		}
		g.trajectory()
	}
}

func TestLimitsInALimitedContext(t *testing.T) {
	const turn = "<search>q</search>"
	n := len(newToyVocabulary().EncodePlain(turn))
	context := promptTokens + len(newToyVocabulary().EncodePlain("<mem></mem>")) + n + 7 // with an empty result
	for _, c := range []struct {
		name   string
		change func(*Rules)
		called bool
		stop   StopReason // "" goes on
	}{
		{"last turn", func(r *Rules) { r.MaxTurns = 1 }, false, MaxTurns},
		{"the response counts the history", func(r *Rules) { r.MaxResponseTokens = n }, false, MaxResponse},
		{"result fills the response", func(r *Rules) { r.MaxResponseTokens = n + 8 }, true, MaxResponse},
		{"one token left in the response", func(r *Rules) { r.MaxResponseTokens = n + 9 }, true, ""},
		{"no room for a message", func(r *Rules) { r.ContextLength = context - 3 + r.MaxTurnTokens }, false, ContextFull},
		{"no room for an empty result", func(r *Rules) { r.ContextLength = context - 1 + r.MaxTurnTokens }, true, ContextFull},
		{"room for an empty result", func(r *Rules) { r.ContextLength = context + r.MaxTurnTokens }, true, ""},
		{"and for the prefill", func(r *Rules) { r.ContextLength, r.Prefill = context+1+r.MaxTurnTokens, "x" }, true, ""},
		{"but not for the prefill", func(r *Rules) { r.ContextLength, r.Prefill = context+r.MaxTurnTokens, "x" }, true, ContextFull},
	} {
		g := newRigIn(t, Limited, func(r *Rules) {
			r.MaxTurnTokens = 40
			c.change(r)
		})
		g.say(turn)
		if called := g.last.call != nil; called != c.called {
			t.Errorf("%s: tool called: %v, stop %q", c.name, called, g.machine.t.Stop)
			continue
		}
		if c.called {
			g.result("r")
		}
		got := g.trajectory()
		if got.Stop != c.stop || (c.stop != "") != (g.state == terminated) {
			t.Errorf("%s: stop %q, want %q", c.name, got.Stop, c.stop)
		}
	}
}

// The context leaves room for a whole turn: one that uses it up is cut by the turn's limit.
func TestATurnThatUsesItsRoomIsNotCutByTheContext(t *testing.T) {
	g := resultRig(t, 3)
	g.result("long")
	g.write(slices.Repeat([]int32{'x'}, 100)...)
	got := g.trajectory()
	if last := got.Turns[1]; last.Stop != TurnCut || got.Stop != NoAction || last.Tokens.Len() != g.rules.MaxTurnTokens || got.PeakContext() != g.contextLimit {
		t.Errorf("turn stop %q, stop %q, %d tokens, at most %d of %d", last.Stop, got.Stop, last.Tokens.Len(), got.PeakContext(), g.contextLimit)
	}
}

func TestFailedTurnKeepsItsContext(t *testing.T) {
	g := newRigIn(t, Limited, nil)
	g.say(searchTurn)
	g.result("r")
	g.say("<mem>half")
	g.fail(FailedDeadline, "late")
	got := g.trajectory()
	if len(got.Turns) != 2 || got.Turns[1].Text != "<mem>half" || !strings.Contains(g.vocabulary.decode(got.ContextOf(1)), found("r")) {
		t.Errorf("turns %+v", got.Turns)
	}
}

func TestCancellationAndDeadlinesInALimitedContext(t *testing.T) {
	drawn := questions(2)
	o := toyOptions(2)
	o.Context, o.TrajectoryDeadline = Limited, time.Second
	stuck := searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if query == "q1 1" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return echo(ctx, query)
	})
	p := newFakePolicy(t, o, drawn, twoTurns)
	groups, _ := run(t, p, o, drawn, stuck)
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			want := Answered
			if g.Draw == 1 && trajectory.Member == 1 {
				want = FailedDeadline
			}
			if trajectory.Stop != want {
				t.Errorf("%s/%d: stop %s", g.Question.ID, trajectory.Member, trajectory.Stop)
			}
		}
	}
	o.TrajectoryDeadline, o.Schedule = 0, Eager
	ctx, cancel := context.WithCancel(t.Context())
	o.OnEnd = func(*Group, *Trajectory) { cancel() }
	p = newFakePolicy(t, o, drawn, twoTurns)
	if _, _, err := Run(ctx, p, drawn, o, stuck); !errors.Is(err, context.Canceled) || !p.closed {
		t.Errorf("%v; session closed: %v", err, p.closed)
	}
}

func TestUnknownContextsAreRefused(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Context = "short" },
		func(o *Options) { o.MemoryTokens = -1 },
	} {
		o := toyOptions(1)
		change(&o)
		if _, _, err := Run(t.Context(), nil, questions(1), o, Tools{Concurrency: 1}); err == nil {
			t.Error("no error")
		}
	}
}
