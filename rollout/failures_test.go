package rollout

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/retrieval"
)

func TestDeadlines(t *testing.T) {
	const deadline = time.Second // far above what the others need
	hang := func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if query == "q0 3" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return echo(ctx, query)
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"of a trajectory", func(o *Options) { o.TrajectoryDeadline = deadline }},
		{"of the step", func(o *Options) { o.StepDeadline = deadline }},
		// The others stand still while the batch waits for the hanging tool; that is not theirs to answer for.
		{"of a trajectory, fixed", func(o *Options) { o.TrajectoryDeadline, o.Schedule = deadline, Fixed }},
	} {
		o := toyOptions(16)
		o.Schedule = Eager
		c.change(&o)
		drawn := questions(1)
		p := newFakePolicy(t, o, drawn, twoTurns)
		start := time.Now()
		groups, stats := run(t, p, o, drawn, searchTools(hang))
		if elapsed := time.Since(start); elapsed < deadline || elapsed > time.Minute {
			t.Errorf("%s: the run took %v", c.name, elapsed)
		}
		for m, trajectory := range groups[0].Trajectories {
			late := trajectory.Stop == FailedDeadline
			if late != (m == 3) {
				t.Errorf("%s: member %d stopped by %s", c.name, m, trajectory.Stop)
			}
			if late && (!strings.Contains(trajectory.StopDetail, "waiting for search") || trajectory.Elapsed < o.TrajectoryDeadline || trajectory.Elapsed <= 0 || slices.Contains(trajectory.ResponseMask, true)) {
				t.Errorf("%s: %q after %v", c.name, trajectory.StopDetail, trajectory.Elapsed)
			}
		}
		if stats.ToolFailures != 0 {
			t.Errorf("%s: %d tools failed", c.name, stats.ToolFailures)
		}
	}
}

// Time that a trajectory waits for a row, put aside, and for a place is not its own.
func TestDeadlinesOfTrajectoriesPutAside(t *testing.T) {
	o := toyOptions(1)
	o.TrajectoryDeadline = time.Minute
	drawn := questions(1)
	p := newFakePolicy(t, o, drawn, twoTurns)
	r := &runner{Options: o, rules: newRules(o.Rules, Full, Tools{}), session: p}
	if err := r.prepare(drawn); err != nil {
		t.Fatal(err)
	}
	g := r.groups[0]
	m := g.members[0]
	if _, err := r.openPrompt(m); err != nil {
		t.Fatal(err)
	}
	p.extend(p.rows[g.row], g.prompt)
	now := time.Now()
	m.begun, m.idle = now.Add(-time.Hour), now.Add(-time.Hour+30*time.Second)
	check := func(when time.Time, ended bool) {
		t.Helper()
		if err := r.expire(when); err != nil || (m.state == terminated) != ended {
			t.Errorf("state %d, %v", m.state, err)
		}
	}
	check(now, false)
	if next := r.nextDeadline(); !next.IsZero() {
		t.Errorf("it ends at %v", next)
	}
	if err := r.seat(m); err != nil {
		t.Fatal(err)
	}
	if next := r.nextDeadline(); !next.IsZero() {
		t.Errorf("without a place it ends at %v", next)
	}
	r.place(m)
	if left := r.nextDeadline().Sub(now); left < 30*time.Second || left > time.Minute {
		t.Errorf("%v are left of 30 s", left)
	}
	check(now.Add(29*time.Second), false)
	check(now.Add(2*time.Minute), true)
}

// The tool of the late member is stopped at once: the third member, which begins when the late
// one's row is free, waits for that.
func TestToolsOfLateMembersAreStopped(t *testing.T) {
	o := toyOptions(3)
	o.Schedule, o.TrajectoryDeadline = Eager, time.Second
	drawn := questions(1)
	stopped := make(chan struct{})
	p := newFakePolicy(t, o, drawn, twoTurns)
	p.onFork = oneMember
	groups, _ := run(t, p, o, drawn, searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		wait := stopped
		switch query {
		case "q0 0":
			wait = nil
			defer close(stopped)
		case "q0 1":
			return echo(ctx, query)
		}
		select {
		case <-wait:
		case <-ctx.Done():
		}
		return echo(ctx, query)
	}))
	for m, want := range []StopReason{FailedDeadline, Answered, Answered} {
		if got := groups[0].Trajectories[m].Stop; got != want {
			t.Errorf("member %d stopped by %s", m, got)
		}
	}
}

// oneMember is a device with memory for a prompt and one member.
func oneMember(rows int) error { return outOfMemoryIf(rows >= 2) }

func TestMembersThatNeverBeganFailWithTheStep(t *testing.T) {
	o := toyOptions(4)
	o.StepDeadline = 50 * time.Millisecond
	drawn := questions(2)
	p := newFakePolicy(t, o, drawn, twoTurns)
	p.onFork = oneMember
	groups, stats := run(t, p, o, drawn, searchTools(func(ctx context.Context, _ string) ([]retrieval.Passage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	unbegun := 0
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			if trajectory.Stop != FailedDeadline {
				t.Errorf("stop %s", trajectory.Stop)
			}
			if strings.HasPrefix(trajectory.StopDetail, "no_tokens") {
				unbegun++
			}
		}
	}
	if unbegun != 7 || stats.ToolCalls != 1 {
		t.Errorf("%d never began, %d calls", unbegun, stats.ToolCalls)
	}
}

func TestToolFailuresFailAlone(t *testing.T) {
	o := toyOptions(4)
	drawn := questions(1)
	tools := searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if strings.HasSuffix(query, "2") {
			return nil, &retrieval.ServiceError{Service: "search", URL: "http://s", Attempts: 2, Timeouts: 2, Kind: retrieval.KindTimeout}
		}
		return echo(ctx, query)
	})
	groups, stats := run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, tools)
	for m, trajectory := range groups[0].Trajectories {
		if (trajectory.Stop == FailedTool) != (m == 2) || (trajectory.Stop == Answered) != (m != 2) {
			t.Errorf("member %d stopped by %s", m, trajectory.Stop)
		}
	}
	if stats.ToolFailures != 1 || stats.ToolTimeouts != 2 || stats.ToolCalls != 4 || !strings.Contains(groups[0].Trajectories[2].StopDetail, "http://s") {
		t.Errorf("%+v, %q", stats, groups[0].Trajectories[2].StopDetail)
	}
	o.TellToolFailure = true
	groups, stats = run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, tools)
	if got := groups[0].Trajectories[2]; got.Stop != Answered || !strings.Contains(got.Turns[0].Result, "search broke") || stats.ToolFailures != 1 {
		t.Errorf("told of it, the member stopped by %s with %q", got.Stop, got.Turns[0].Result)
	}
}

// Whoever watches sees the end of every trajectory once, however the last one ends.
func TestProgressEndsWithTheLastTrajectory(t *testing.T) {
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(3)
		o.Schedule = schedule
		ends := 0
		o.Progress = func(p Progress) {
			if p.Ended == p.Total {
				ends++
			}
		}
		drawn := questions(2)
		run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, searchTools(func(context.Context, string) ([]retrieval.Passage, error) {
			return nil, errors.New("no such service")
		}))
		if ends != 1 {
			t.Errorf("%s: the end was shown %d times", schedule, ends)
		}
	}
}

func TestEngineErrorsEndTheRun(t *testing.T) {
	broken := errors.New("device lost")
	for name, change := range map[string]func(*fakePolicy){
		"step": func(p *fakePolicy) {
			p.onStep = func([]model.RowInput) error {
				if len(p.batches) > 5 {
					return broken
				}
				return nil
			}
		},
		"row": func(p *fakePolicy) {
			p.onFork = func(rows int) error {
				if rows > 2 {
					return broken
				}
				return nil
			}
		},
	} {
		o := toyOptions(4)
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, twoTurns)
		change(p)
		groups, _, err := Run(t.Context(), p, drawn, o, searchTools(echo))
		if !errors.Is(err, broken) || groups != nil || !p.closed {
			t.Errorf("%s: error %v, %d groups, closed %v", name, err, len(groups), p.closed)
		}
	}
}

func TestCancellation(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, schedule := range []Schedule{Fixed, Eager} {
		o := toyOptions(4)
		o.Schedule = schedule
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, twoTurns)
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		var cancelled time.Time
		var running atomic.Int64
		_, _, err := Run(ctx, p, drawn, o, searchTools(func(ctx context.Context, _ string) ([]retrieval.Passage, error) {
			once.Do(func() { time.AfterFunc(30*time.Millisecond, func() { cancelled = time.Now(); cancel() }) })
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
			return nil, ctx.Err()
		}))
		if !errors.Is(err, context.Canceled) || !p.closed {
			t.Errorf("%s: error %v, closed %v", schedule, err, p.closed)
		}
		if n := running.Load(); n != 0 {
			t.Errorf("%s: %d calls run on", schedule, n)
		}
		if late := time.Since(cancelled); late > 20*time.Second {
			t.Errorf("%s: Run returned %v after the cancellation", schedule, late)
		}
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}

func TestToolThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	o := toyOptions(2)
	o.TrajectoryDeadline, o.Schedule = 50*time.Millisecond, Eager
	drawn := questions(1)
	forever := make(chan struct{})
	defer close(forever)
	groups, _ := run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, searchTools(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if query == "q0 1" {
			<-forever
		}
		return echo(ctx, query)
	}))
	if a, b := groups[0].Trajectories[0].Stop, groups[0].Trajectories[1].Stop; a != Answered || b != FailedDeadline {
		t.Errorf("stops %s, %s", a, b)
	}
}

func TestPromptsWithoutRoom(t *testing.T) {
	o := toyOptions(2)
	drawn := questions(2)
	drawn[0].Question.Text = strings.Repeat("long ", 100)
	o.ContextLength = 300
	ended := 0
	o.OnEnd = func(*Group, *Trajectory) { ended++ }
	if room, err := o.Room(drawn[0].Question); err != nil || room > 0 {
		t.Errorf("room %d, %v", room, err)
	}
	room := 300 - len("Ada") - promptTokens + len("who?") - len("who is 1?")
	if got, err := o.Room(drawn[1].Question); err != nil || got != room {
		t.Errorf("room %d, %v, want %d", got, err, room)
	}
	with := o.Rules
	with.AnswerPrefix, with.Prefill = "<answer>", "xy" // one token and two
	if got, err := with.Room(drawn[1].Question); err != nil || got != room-3 {
		t.Errorf("with an answer prefix and a prefill: room %d, %v, want %d", got, err, room-3)
	}
	groups, _ := run(t, newFakePolicy(t, o, drawn, twoTurns), o, drawn, searchTools(echo))
	for k, want := range []StopReason{FailedEngine, Answered} {
		for _, trajectory := range groups[k].Trajectories {
			if trajectory.Stop != want {
				t.Errorf("question %d stopped by %s: %s", k, trajectory.Stop, trajectory.StopDetail)
			}
		}
	}
	if ended != 4 {
		t.Errorf("OnEnd saw %d trajectories", ended)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	for name, change := range map[string]func(*Options, *Tools, []Drawn){
		"group size is 0":     func(o *Options, _ *Tools, _ []Drawn) { o.GroupSize = 0 },
		"max_turns is 0":      func(o *Options, _ *Tools, _ []Drawn) { o.MaxTurns = 0 },
		"batch tokens is 0":   func(o *Options, _ *Tools, _ []Drawn) { o.BatchTokens = 0 },
		`schedule is "loose"`: func(o *Options, _ *Tools, _ []Drawn) { o.Schedule = "loose" },
		"max rows is -1":      func(o *Options, _ *Tools, _ []Drawn) { o.MaxRows = -1 },
		"cache tokens are -1": func(o *Options, _ *Tools, _ []Drawn) { o.CacheTokens = -1 },
		"whole action":        func(o *Options, _ *Tools, _ []Drawn) { o.Prefill = answerTurn },
		"a format":            func(o *Options, _ *Tools, _ []Drawn) { o.Format = nil },
		"topk is 0":           func(_ *Options, tools *Tools, _ []Drawn) { tools.TopK = 0 },
		"concurrency is 0":    func(_ *Options, tools *Tools, _ []Drawn) { tools.Concurrency = 0 },
		`question "q0"`:       func(_ *Options, _ *Tools, drawn []Drawn) { drawn[0].Question.Text = "" },
	} {
		o, tools, drawn := toyOptions(1), searchTools(echo), questions(1)
		p := newFakePolicy(t, o, drawn, twoTurns)
		change(&o, &tools, drawn)
		if _, _, err := Run(t.Context(), p, drawn, o, tools); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v does not say %q", err, name)
		}
		if p.opened > 0 {
			t.Errorf("%s: rows were opened", name)
		}
	}
}
