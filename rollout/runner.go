package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model"
)

// fixedToolLag is the number of forward passes between a tool call and its result under Fixed.
const fixedToolLag = 16

// Drawn is a question to be answered in a step.
type Drawn struct {
	Question dataset.Question
	Draw     int // position within the step; a question drawn twice has two
}

// member is one trajectory of a group while it runs. It waits for a row and a place, then it generates.
// While its tool works another has its place; it keeps the row, and waits for a place again. Put aside it waits
// for both.
type member struct {
	*machine
	group   *groupRun
	row     int
	seated  bool          // it has the row
	placed  bool          // it generates: it counts towards MaxRows and is in the forward passes
	cached  int           // tokens in the row
	lost    int           // tokens behind the prompt that were in the row it had to give up
	begun   time.Time     // zero until it first has a row
	idle    time.Time     // since when it has waited for another row or place; zero otherwise
	excused time.Duration // of the time since it began, what does not count towards its deadline
	feed    []int32       // to go into the row before the next token is sampled
	cancel  context.CancelFunc
	due     int      // under Fixed: the pass before which the outcome joins
	outcome *outcome // of the call in progress, once it is there
}

// live reports whether the member has a row and has not ended.
func (m *member) live() bool { return m.seated && m.state != terminated }

// waits reports whether the member needs a row to go on.
func (m *member) waits() bool { return !m.seated && m.state == generating }

// ready reports whether the member needs but a place to go on.
func (m *member) ready() bool { return m.live() && m.state == generating && !m.placed }

// hasBegun reports whether the member has had a row and has not ended.
func (m *member) hasBegun() bool { return !m.begun.IsZero() && m.state != terminated }

// groupRun is a question while it is being answered. Its row holds the prompt but for the last
// token, which each member runs for itself, and stays until the last of them has ended: rows of
// members, under Limited one for each turn, are forked from it.
type groupRun struct {
	*Group
	members []*member
	prompt  []int32 // but for its last token
	row     int
	open    bool      // the prompt has the row
	rest    []int32   // of the prompt, to go into the row
	lost    int       // tokens of the prompt that were in the row it had to give up
	opened  time.Time // when it first had a row
	running int       // members that have not ended
}

// runner decodes all trajectories of a Run.
type runner struct {
	Options
	rules    *rules
	session  model.Session
	groups   []*groupRun
	rows     int // the session holds
	ended    int
	total    int
	deadline time.Time // of the step; zero is none
	pass     int       // forward passes so far, and those skipped for want of work
	toolbox  *toolbox
	stats    Stats

	pageTokens, pageLimit int // of the cache; no limit is 0
	maxSeated             int // rows of members, as a shortage of memory has shown; no limit is 0

	held       []*held // that ended and are to be measured, in the order of their ends
	heldTokens int     // of their branches
}

// Run samples GroupSize trajectories for each question and returns the groups in the order of the
// questions. All live trajectories are decoded together, tools run beside them.
//
// A trajectory fails alone when its tool, its deadline or its share of the device memory does; any
// other error of the policy, and the end of ctx, ends the Run with an error and without groups. Run
// notices the end of ctx between two forward passes. The policy's session is closed in any case.
func Run(ctx context.Context, policy model.Policy, questions []Drawn, options Options, tools Tools) (groups []*Group, stats Stats, err error) {
	if err := options.validate(tools); err != nil {
		return nil, Stats{}, err
	}
	r := &runner{Options: options, rules: newRules(options.Rules, options.Context, tools)}
	hits := tools.cacheHits()
	if err := r.prepare(questions); err != nil {
		return nil, Stats{}, err
	}
	r.session, err = policy.NewSession(model.SessionOptions{Valid: options.Vocabulary.Valid(), CacheTokens: options.CacheTokens})
	if err != nil {
		return nil, Stats{}, fmt.Errorf("no session for rollouts: %w", err)
	}
	usage := r.session.Usage()
	r.pageTokens, r.pageLimit = max(1, usage.PageTokens), usage.Limit
	if err = r.checkBudget(); err == nil {
		ctx, cancel := context.WithCancel(ctx)
		err = r.loop(ctx)
		cancel()
		r.toolbox.drain()
		r.stats.ToolCacheHits = tools.cacheHits() - hits
	}
	if err := errors.Join(err, r.session.Close()); err != nil {
		return nil, r.stats, err
	}
	for _, g := range r.groups {
		groups = append(groups, g.Group)
	}
	return groups, r.stats, nil
}

// prepare encodes every prompt and begins every machine; those without room to write end here.
func (r *runner) prepare(questions []Drawn) error {
	if r.StepDeadline > 0 {
		r.deadline = time.Now().Add(r.StepDeadline)
	}
	r.total = len(questions) * r.GroupSize
	r.toolbox = newToolbox(r.rules, r.total)
	for _, drawn := range questions {
		prompt, err := r.rules.prompt(drawn.Question)
		if err != nil {
			return err
		}
		g := &groupRun{Group: &Group{Question: drawn.Question, Draw: drawn.Draw}, prompt: prompt[:len(prompt)-1], running: r.GroupSize}
		r.groups = append(r.groups, g)
		limit := r.rules.contextLimit(drawn.Question)
		for k := range r.GroupSize {
			m := &member{machine: newMachine(r.rules, prompt, limit, k), group: g}
			g.members = append(g.members, m)
			g.Trajectories = append(g.Trajectories, m.t)
			if m.begin(); m.state == terminated {
				if err := r.file(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// loop runs forward passes until every trajectory has ended.
func (r *runner) loop(ctx context.Context) error {
	for r.ended < r.total {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("rollouts were given up: %w", err)
		}
		if err := r.gather(ctx); err != nil {
			return err
		}
		shares, err := r.compose()
		if err != nil {
			return err
		}
		if len(shares) > 0 {
			r.pass++
			if err := r.forward(ctx, shares); err != nil {
				return err
			}
		}
		if r.ended == r.total {
			if err := r.measure(); err != nil {
				return err
			}
		}
		r.report() // without a forward pass too: a failure may have ended the last trajectory
	}
	return nil
}

// gather brings together what can be forwarded. Those whose tool has answered come before those that begin.
func (r *runner) gather(ctx context.Context) error {
	if err := r.expire(time.Now()); err != nil {
		return err
	}
	if err := r.collect(ctx, false); err != nil {
		return err
	}
	if err := r.measureDue(); err != nil {
		return err
	}
	if err := r.admit(); err != nil || r.busy() {
		return err
	}
	if given, err := r.makeWay(); err != nil {
		return err
	} else if given {
		return r.admit()
	}
	return r.collect(ctx, true)
}

// follow does what a member's machine wants done next. One whose tool has answered now waits for a
// place, and for a row when it was put aside meanwhile.
func (r *runner) follow(ctx context.Context, m *member, next effect) error {
	if m.state == generating && !m.placed {
		m.idle = time.Now()
	}
	switch {
	case m.state == terminated:
		return r.end(m)
	case !m.seated:
		if next.fresh {
			m.lost = 0
		}
		return nil
	case next.fresh:
		return r.renew(m)
	}
	m.feed = next.feed
	if next.call != nil {
		m.placed = false
		ctx, m.cancel = context.WithCancel(ctx)
		m.due = r.pass + fixedToolLag
		r.stats.ToolCalls++
		r.toolbox.start(ctx, m, *next.call)
	}
	return nil
}

// renew gives a member a row for a context of its own in place of the one it has. Without memory
// for it the member waits.
func (r *runner) renew(m *member) error {
	if err := r.unseat(m); err != nil {
		return err
	}
	err := r.seat(m)
	if errors.Is(err, model.ErrOutOfMemory) {
		r.setAside(m)
		return nil
	}
	return err
}

// end files a member's trajectory, and gives up its row when nothing is to be measured behind it.
func (r *runner) end(m *member) error {
	switch {
	case !m.begun.IsZero():
		m.t.Elapsed = time.Since(m.begun)
	case !m.group.opened.IsZero():
		m.t.Elapsed = time.Since(m.group.opened)
	}
	m.feed, m.placed = nil, false
	if err := r.file(m); err != nil || !m.seated || r.hold(m) {
		return err
	}
	return r.unseat(m)
}

// file counts a trajectory that has ended, and shows it. With the last of its group the prompt's row
// is given up.
func (r *runner) file(m *member) error {
	r.ended++
	m.group.running--
	r.stats.addTrajectory(m.t)
	if r.OnEnd != nil {
		r.OnEnd(m.group.Group, m.t)
	}
	if m.group.running > 0 || !m.group.open {
		return nil
	}
	return r.closePrompt(m.group)
}

func (r *runner) closePrompt(g *groupRun) error {
	g.open = false
	return r.release(g.row)
}

// unseat gives up a member's row.
func (r *runner) unseat(m *member) error {
	m.seated, m.cached = false, 0
	return r.release(m.row)
}

func (r *runner) release(row int) error {
	r.rows--
	if err := r.session.Release(row); err != nil {
		return fmt.Errorf("row %d cannot be released: %w", row, err)
	}
	return nil
}

func (r *runner) report() {
	if r.Progress == nil {
		return
	}
	p := Progress{Generated: r.stats.GeneratedTokens, Rows: r.rows, Ended: r.ended, Total: r.total}
	for m := range r.begun() {
		if m.state == processing {
			p.Waiting++
		}
	}
	r.Progress(p)
}
