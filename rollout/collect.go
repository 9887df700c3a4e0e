package rollout

import (
	"context"
	"time"
)

// collect hands tool outcomes to their members. It waits for outcomes that the schedule wants in
// the next forward pass, and for one in any case when there is nothing to forward (idle); but not
// beyond a deadline or ctx, which are the caller's to handle.
func (r *runner) collect(ctx context.Context, idle bool) error {
	for {
		r.receive()
		joining, missing := r.joining(idle)
		if !missing {
			return r.join(ctx, joining)
		}
		if !r.wait(ctx) {
			return nil
		}
	}
}

// wait waits for one delivery, and reports whether it came before the next deadline and ctx's end.
func (r *runner) wait(ctx context.Context) bool {
	var expired <-chan time.Time
	if deadline := r.nextDeadline(); !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		expired = timer.C
	}
	defer r.excuse(time.Now(), r.standingStill())
	select {
	case d := <-r.toolbox.deliveries:
		r.accept(d)
		return true
	case <-expired:
	case <-ctx.Done():
	}
	return false
}

// standingStill lists the members that wait for nothing of their own. Those that wait for a row or a place
// have their own reckoning, see member.idle.
func (r *runner) standingStill() []*member {
	var still []*member
	for m := range r.begun() {
		if m.placed || m.outcome != nil {
			still = append(still, m)
		}
	}
	return still
}

// excuse keeps the time since start out of the members' deadlines: under Fixed they stood still
// because the next batch waits for the tool of another.
func (r *runner) excuse(start time.Time, members []*member) {
	for _, m := range members {
		m.excused += time.Since(start)
	}
}

// receive accepts the deliveries that are there.
func (r *runner) receive() {
	for {
		select {
		case d := <-r.toolbox.deliveries:
			r.accept(d)
		default:
			return
		}
	}
}

// accept keeps an outcome until it may join; one that comes after its member's end is dropped.
func (r *runner) accept(d delivery) {
	r.toolbox.running--
	if d.to.state == processing {
		d.to.outcome = &d.outcome
		r.stats.addOutcome(d.outcome)
	}
}

// busy reports whether there is something to forward.
func (r *runner) busy() bool {
	for _, g := range r.groups {
		if g.open && len(g.rest) > 0 {
			return true
		}
	}
	for m := range r.live() {
		if m.state != processing {
			return true
		}
	}
	return false
}

// joining lists the members whose outcome joins now, and reports whether one has to be waited for.
func (r *runner) joining(idle bool) (members []*member, missing bool) {
	first := -1
	var waiting []*member
	for m := range r.begun() {
		if m.state != processing {
			continue
		}
		waiting = append(waiting, m)
		if first < 0 || m.due < first {
			first = m.due
		}
	}
	if r.Schedule == Fixed && idle {
		r.pass = max(r.pass, first) // nothing to forward until then
	}
	for _, m := range waiting {
		switch {
		case r.Schedule == Fixed && m.due > r.pass:
		case m.outcome != nil:
			members = append(members, m)
		default:
			missing = missing || r.Schedule == Fixed
		}
	}
	missing = missing || len(waiting) > 0 && idle && len(members) == 0
	return members, missing
}

// join lets members go on from their outcomes.
func (r *runner) join(ctx context.Context, members []*member) error {
	for _, m := range members {
		m.cancel()
		next := m.observe(*m.outcome)
		m.cancel, m.outcome = nil, nil
		if err := r.follow(ctx, m, next); err != nil {
			return err
		}
	}
	return nil
}
