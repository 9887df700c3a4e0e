package rollout

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/mempo-train/mempo-train/model"
)

// live yields the members that have a row, in the order of groups and members.
func (r *runner) live() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, g := range r.groups {
			for _, m := range g.members[:g.next] {
				if m.live() && !yield(m) {
					return
				}
			}
		}
	}
}

// admit opens rows for prompts and for members whose prompt is in the cache, in order, as far as
// rows and memory go.
func (r *runner) admit() error {
	for _, g := range r.groups {
		if g.next == len(g.members) {
			continue
		}
		if more, err := r.admitGroup(g); err != nil || !more {
			return err
		}
	}
	return nil
}

// admitGroup opens a row for the group's prompt, or, when that is in the cache, one for each
// member: a copy, or for the last member the prompt's own. It reports whether another group may
// follow.
func (r *runner) admitGroup(g *groupRun) (bool, error) {
	if !g.open {
		if r.free() < 1 {
			return false, nil
		}
		g.opened = time.Now()
		row, err := r.session.Open()
		if err != nil {
			return r.withoutRow(g, err)
		}
		r.rows++
		g.row, g.open = row, true
	}
	for len(g.rest) == 0 && g.next < len(g.members) {
		m := g.members[g.next]
		if g.next == len(g.members)-1 {
			m.row, g.open = g.row, false
		} else {
			if r.maxRows > 0 && r.rows >= r.maxRows {
				return false, nil
			}
			row, err := r.session.Fork(g.row, len(m.t.PromptIDs)-1)
			if err != nil {
				return r.withoutRow(g, err)
			}
			r.rows++
			m.row = row
		}
		m.begun, m.cached = time.Now(), len(m.t.PromptIDs)-1
		g.next++
	}
	return true, nil
}

// someoneWaits reports whether a member waits for a row.
func (r *runner) someoneWaits() bool {
	return slices.ContainsFunc(r.groups, func(g *groupRun) bool { return g.next < len(g.members) })
}

// free is the number of rows that further groups may take. A group whose prompt has a row is
// promised one for each of its members, so that prompts never keep members from running.
func (r *runner) free() int {
	if r.maxRows == 0 {
		return math.MaxInt
	}
	free := r.maxRows - r.rows
	for _, g := range r.groups {
		if g.open {
			free -= len(g.members) - g.next - 1
		}
	}
	return free
}

// withoutRow handles the error of opening a row for a group. Out of memory, the run goes on with
// the rows it has; when none of them belongs to a member, the group's remaining members fail.
func (r *runner) withoutRow(g *groupRun, err error) (bool, error) {
	if !errors.Is(err, model.ErrOutOfMemory) {
		return false, fmt.Errorf("no row for question %q: %w", g.Question.ID, err)
	}
	memberRows := r.rows
	for _, other := range r.groups {
		if other.open {
			memberRows--
		}
	}
	if memberRows > 0 {
		r.maxRows = max(2, r.rows)
		return false, nil
	}
	return true, r.failUnbegun(g, FailedEngine, err.Error())
}

// failUnbegun fails the members of a group that have no row yet, and gives up the prompt's.
func (r *runner) failUnbegun(g *groupRun, reason StopReason, detail string) error {
	for _, m := range g.members[g.next:] {
		m.fail(reason, detail)
		if !g.opened.IsZero() {
			m.t.Elapsed = time.Since(g.opened)
		}
		r.file(m)
	}
	g.next = len(g.members)
	if !g.open {
		return nil
	}
	g.open = false
	return r.release(g.row)
}

// failMember fails a member that has a row.
func (r *runner) failMember(m *member, reason StopReason, detail string) error {
	if m.cancel != nil {
		m.cancel()
	}
	m.fail(reason, detail)
	return r.end(m)
}

// expire fails the trajectories whose time is up.
func (r *runner) expire(now time.Time) error {
	stepOver := !r.deadline.IsZero() && !now.Before(r.deadline)
	stepDetail := fmt.Sprintf("the step ran longer than %v", r.StepDeadline)
	for _, g := range r.groups {
		if stepOver {
			if err := r.failUnbegun(g, FailedDeadline, stepDetail); err != nil {
				return err
			}
		}
	}
	for m := range r.live() {
		var detail string
		switch {
		case stepOver:
			detail = stepDetail
		case r.TrajectoryDeadline > 0 && now.Sub(m.begun)-m.excused >= r.TrajectoryDeadline:
			detail = fmt.Sprintf("the trajectory ran longer than %v", r.TrajectoryDeadline)
		default:
			continue
		}
		if m.state == processing {
			detail += ", waiting for " + m.lastTurn().Action
		}
		if err := r.failMember(m, FailedDeadline, detail); err != nil {
			return err
		}
	}
	return nil
}

// nextDeadline is the earliest time at which expire has something to do; zero for never.
func (r *runner) nextDeadline() time.Time {
	next := r.deadline
	if r.TrajectoryDeadline == 0 {
		return next
	}
	for m := range r.live() {
		if end := m.begun.Add(r.TrajectoryDeadline + m.excused); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}
