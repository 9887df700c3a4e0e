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

// member is one trajectory of a group while it runs.
type member struct {
	*machine
	group   *groupRun
	row     int
	cached  int           // tokens in the row
	begun   time.Time     // zero until it has a row
	excused time.Duration // of the time since, what does not count towards its deadline
	feed    []int32       // to go into the row before the next token is sampled
	cancel  context.CancelFunc
	due     int      // under Fixed: the pass before which the outcome joins
	outcome *outcome // of the call in progress, once it is there
}

// live reports whether the member has a row.
func (m *member) live() bool { return !m.begun.IsZero() && m.state != terminated }

// groupRun is a question while it is being answered. Its row holds the prompt but for the last
// token, and is forked for each member; the last member takes it over.
type groupRun struct {
	*Group
	members []*member
	row     int
	open    bool      // the row is the group's
	opened  time.Time // when the row was
	rest    []int32   // of the prompt, to go into the row
	next    int       // the first member without a row
}

// runner decodes all trajectories of a Run.
type runner struct {
	Options
	rules    *rules
	session  model.Session
	groups   []*groupRun
	rows     int // the session holds
	maxRows  int
	ended    int
	total    int
	deadline time.Time // of the step; zero is none
	pass     int       // forward passes so far, and those skipped for want of work
	toolbox  *toolbox
	stats    Stats

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
	r := &runner{Options: options, rules: newRules(options.Rules, options.Context, tools), maxRows: options.MaxRows}
	if err := r.prepare(questions); err != nil {
		return nil, Stats{}, err
	}
	r.session, err = policy.NewSession(model.SessionOptions{Valid: options.Vocabulary.Valid()})
	if err != nil {
		return nil, Stats{}, fmt.Errorf("no session for rollouts: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	err = r.loop(ctx)
	cancel()
	r.toolbox.drain()
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
		g := &groupRun{Group: &Group{Question: drawn.Question, Draw: drawn.Draw}, rest: prompt[:len(prompt)-1]}
		r.groups = append(r.groups, g)
		limit := r.rules.contextLimit(drawn.Question)
		for k := range r.GroupSize {
			m := &member{machine: newMachine(r.rules, prompt, limit, k), group: g}
			g.members = append(g.members, m)
			g.Trajectories = append(g.Trajectories, m.t)
			if first := m.begin(); m.state == terminated {
				g.next++
				r.file(m)
			} else {
				m.feed = first.feed[len(g.rest):]
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
		if err := r.expire(time.Now()); err != nil {
			return err
		}
		if err := r.admit(); err != nil {
			return err
		}
		if err := r.measureDue(); err != nil {
			return err
		}
		if err := r.collect(ctx); err != nil {
			return err
		}
		if shares := r.assemble(); len(shares) > 0 {
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

// follow does what a member's machine wants done next.
func (r *runner) follow(ctx context.Context, m *member, next effect) error {
	if m.state == terminated {
		return r.end(m)
	}
	if next.fresh {
		if err := r.renew(m); err != nil || m.state == terminated {
			return err
		}
	}
	m.feed = next.feed
	if next.call != nil {
		ctx, m.cancel = context.WithCancel(ctx)
		m.due = r.pass + fixedToolLag
		r.stats.ToolCalls++
		r.toolbox.start(ctx, m, *next.call)
	}
	return nil
}

// renew gives a member an empty row in place of its own. Without memory for it the member fails.
func (r *runner) renew(m *member) error {
	if err := r.release(m.row); err != nil {
		return err
	}
	row, err := r.session.Open()
	switch {
	case errors.Is(err, model.ErrOutOfMemory):
		m.fail(FailedEngine, err.Error())
		r.settle(m)
		return nil
	case err != nil:
		return fmt.Errorf("no row for question %q: %w", m.group.Question.ID, err)
	}
	r.rows++
	m.row, m.cached = row, 0
	return nil
}

// end files a member's trajectory, and gives up its row when nothing is to be measured behind it.
func (r *runner) end(m *member) error {
	r.settle(m)
	if r.hold(m) {
		return nil
	}
	return r.release(m.row)
}

// settle files the trajectory of a member that has begun.
func (r *runner) settle(m *member) {
	m.t.Elapsed = time.Since(m.begun)
	m.feed = nil
	r.file(m)
}

// file counts a trajectory that has ended, and shows it.
func (r *runner) file(m *member) {
	r.ended++
	r.stats.addTrajectory(m.t)
	if r.OnEnd != nil {
		r.OnEnd(m.group.Group, m.t)
	}
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
	for m := range r.live() {
		if m.state == processing {
			p.Waiting++
		}
	}
	r.Progress(p)
}
