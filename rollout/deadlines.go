package rollout

import (
	"fmt"
	"time"
)

// failMember fails a member that has not ended.
func (r *runner) failMember(m *member, reason StopReason, detail string) error {
	if m.cancel != nil {
		m.cancel()
	}
	m.fail(reason, detail)
	return r.end(m)
}

// failWaiting fails the members of a group that wait for a row.
func (r *runner) failWaiting(g *groupRun, reason StopReason, detail string) error {
	for _, m := range g.members {
		if m.waits() {
			if err := r.failMember(m, reason, detail); err != nil {
				return err
			}
		}
	}
	return nil
}

// expire fails the trajectories whose time is up.
func (r *runner) expire(now time.Time) error {
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		for m := range r.all() {
			if err := r.expireMember(m, fmt.Sprintf("the step ran longer than %v", r.StepDeadline)); err != nil {
				return err
			}
		}
	}
	for m := range r.filtered(r.timed) {
		if now.Before(r.deadlineOf(m)) {
			continue
		}
		if err := r.expireMember(m, fmt.Sprintf("the trajectory ran longer than %v", r.TrajectoryDeadline)); err != nil {
			return err
		}
	}
	return nil
}

// expireMember fails a member, unless it has ended.
func (r *runner) expireMember(m *member, detail string) error {
	switch m.state {
	case terminated:
		return nil
	case processing:
		detail += ", waiting for " + m.lastTurn().Action
	}
	return r.failMember(m, FailedDeadline, detail)
}

// timed reports whether a member's own deadline runs. One that waits for another row or a place stands still
// through no doing of its own.
func (r *runner) timed(m *member) bool {
	return r.TrajectoryDeadline > 0 && m.hasBegun() && m.idle.IsZero()
}

func (r *runner) deadlineOf(m *member) time.Time {
	return m.begun.Add(r.TrajectoryDeadline + m.excused)
}

// nextDeadline is the earliest time at which expire has something to do; zero for never.
func (r *runner) nextDeadline() time.Time {
	next := r.deadline
	for m := range r.filtered(r.timed) {
		if end := r.deadlineOf(m); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return next
}
