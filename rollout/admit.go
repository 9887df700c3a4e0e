package rollout

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/mempo-train/mempo-train/model"
)

// all yields the members in the order of groups and members: older ones first.
func (r *runner) all() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, g := range r.groups {
			for _, m := range g.members {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// filtered yields the members that satisfy a condition, older ones first.
func (r *runner) filtered(condition func(*member) bool) iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for m := range r.all() {
			if condition(m) && !yield(m) {
				return
			}
		}
	}
}

// live yields the members that have a row and have not ended: they generate, or wait for their tool or a place.
func (r *runner) live() iter.Seq[*member] { return r.filtered((*member).live) }

// begun yields the members that have begun and not ended, with a row or put aside.
func (r *runner) begun() iter.Seq[*member] { return r.filtered((*member).hasBegun) }

// queue yields the members in the order in which they get rows and places: those that have begun, then those that
// have not, older ones first.
func (r *runner) queue() iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, begun := range []bool{true, false} {
			for m := range r.all() {
				if m.begun.IsZero() != begun && !yield(m) {
					return
				}
			}
		}
	}
}

// waitsFirst is the first member of the queue that waits for a row; nil when none does.
func (r *runner) waitsFirst() *member {
	for m := range r.queue() {
		if m.waits() {
			return m
		}
	}
	return nil
}

// foremost is the group that goes on in any case: that of the oldest live member or, while none is
// live, that of the first one that waits for a row. nil when all wait for tools.
func (r *runner) foremost() *groupRun {
	for m := range r.live() {
		return m.group
	}
	if m := r.waitsFirst(); m != nil {
		return m.group
	}
	return nil
}

// mustGoOn reports whether the group gets a row whatever the budget says: nothing else could run.
func (r *runner) mustGoOn(g *groupRun) bool { return r.foremost() == g && !r.anyLive() }

func (r *runner) anyLive() bool {
	for range r.live() {
		return true
	}
	return false
}

// admit lets members go on, in the order of the queue, as far as places and memory go: those that have a row, and
// those that wait for one, for which it opens rows. Of the latter nobody overtakes another.
func (r *runner) admit() error {
	more := true
	for m := range r.queue() {
		var err error
		switch {
		case m.ready() && r.places() > 0:
			r.place(m)
		case m.waits() && more:
			more, err = r.admitMember(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// admitMember opens a row for the prompt of a member that waits or, when that is in the cache, forks it for the
// member. It reports whether another that waits may follow.
func (r *runner) admitMember(m *member) (bool, error) {
	g := m.group
	if !g.open {
		if r.free(g) < 1 && !r.mustGoOn(g) || !r.hasRoom(g, r.missingPages(m)) {
			return false, nil
		}
		if more, err := r.openPrompt(m); err != nil || !g.open || !m.waits() {
			return more, err
		}
	}
	if len(g.rest) > 0 {
		return true, nil
	}
	if min(r.places(), r.seats()) < 1 || !r.hasRoom(g, r.ownPages(m)) {
		return false, nil
	}
	switch err := r.seat(m); {
	case errors.Is(err, model.ErrOutOfMemory):
		return r.withoutRow(m, err)
	case err != nil:
		return false, err
	}
	r.place(m)
	return true, nil
}

// openPrompt gives the prompt of a member that waits an empty row.
func (r *runner) openPrompt(m *member) (bool, error) {
	g := m.group
	row, err := r.session.Open()
	if g.opened.IsZero() {
		g.opened = time.Now()
	}
	switch {
	case errors.Is(err, model.ErrOutOfMemory):
		return r.withoutRow(m, err)
	case err != nil:
		return false, fmt.Errorf("no row for question %q: %w", g.Question.ID, err)
	}
	r.rows++
	r.stats.ReencodedTokens += g.lost
	g.row, g.open, g.rest, g.lost = row, true, g.prompt, 0
	return true, nil
}

// seat gives a member a row that begins with its prompt. Its feed is everything behind that.
func (r *runner) seat(m *member) error {
	row, err := r.session.Fork(m.group.row, len(m.group.prompt))
	if err != nil {
		return fmt.Errorf("no row for question %q: %w", m.group.Question.ID, err)
	}
	r.rows++
	r.stats.ReencodedTokens += m.lost
	m.row, m.seated, m.cached, m.lost = row, true, len(m.group.prompt), 0
	m.feed = m.sequence()[m.cached:]
	if m.begun.IsZero() {
		m.begun = time.Now()
	}
	return nil
}

// place lets a member that has a row generate.
func (r *runner) place(m *member) {
	m.placed = true
	if !m.idle.IsZero() {
		m.excused += time.Since(m.idle)
		m.idle = time.Time{}
	}
}

// places is the number of further members that may generate.
func (r *runner) places() int {
	if r.MaxRows == 0 {
		return math.MaxInt
	}
	places := r.MaxRows
	for m := range r.live() {
		if m.placed {
			places--
		}
	}
	return places
}

// seats is the number of further members that may have a row.
func (r *runner) seats() int {
	if r.maxSeated == 0 {
		return math.MaxInt
	}
	return r.maxSeated - r.seated()
}

// seated is the number of members that have a row.
func (r *runner) seated() int {
	n := len(r.held)
	for range r.live() {
		n++
	}
	return n
}

// free is the number of places for the members of a group whose prompt has no row. Members before them in the queue
// whose prompt has one are promised theirs, so that no prompt is encoded long before it is of use.
func (r *runner) free(g *groupRun) int {
	free := min(r.places(), r.seats())
	for m := range r.queue() {
		if m.waits() && m.group == g {
			break
		}
		if m.waits() && m.group.open {
			free--
		}
	}
	return free
}

// withoutRow handles the shortage of memory in opening a row for a member or its prompt. The run goes on with the
// rows it has; when there are none, other prompts give way, and at last the members of its group that
// wait for a row fail. It reports whether another may follow.
func (r *runner) withoutRow(m *member, err error) (bool, error) {
	if r.anyLive() {
		r.maxSeated = max(1, r.seated())
		return false, nil
	}
	switch given, failed := r.giveUp(); {
	case failed != nil:
		return false, failed
	case given:
		return r.admitMember(m)
	case r.foremost() != m.group:
		return false, nil
	}
	return true, r.failWaiting(m.group, FailedEngine, err.Error())
}
