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

// live yields the members that run in a row of their own.
func (r *runner) live() iter.Seq[*member] { return r.filtered((*member).live) }

// begun yields the members that have begun and not ended, with a row or put aside.
func (r *runner) begun() iter.Seq[*member] { return r.filtered((*member).hasBegun) }

// someoneWaits reports whether a member waits for a row.
func (r *runner) someoneWaits() bool {
	return slices.ContainsFunc(r.groups, (*groupRun).waits)
}

// foremost is the group that goes on in any case: that of the oldest live member or, while none is
// live, the first one that waits for a row. nil when all wait for tools.
func (r *runner) foremost() *groupRun {
	for m := range r.live() {
		return m.group
	}
	if k := slices.IndexFunc(r.groups, (*groupRun).waits); k >= 0 {
		return r.groups[k]
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

// admit opens rows for prompts, and for members whose prompt is in the cache, older ones first, as
// far as places and memory go. Nobody overtakes a member that waits for a row.
func (r *runner) admit() error {
	for _, g := range r.groups {
		if more, err := r.admitGroup(g); err != nil || !more {
			return err
		}
	}
	return nil
}

// admitGroup opens a row for the group's prompt or, when that is in the cache, forks it for each
// member that waits. It reports whether another group may follow.
func (r *runner) admitGroup(g *groupRun) (bool, error) {
	for _, m := range g.members {
		switch {
		case !m.waits():
			continue
		case !g.open:
			if r.free() < 1 && !r.mustGoOn(g) || !r.hasRoom(g, r.pages(len(g.prompt))+r.ownPages(m)) {
				return false, nil
			}
			if more, err := r.openPrompt(g); err != nil || !g.open {
				return more, err
			}
		}
		if len(g.rest) > 0 {
			return true, nil
		}
		if r.maxRows > 0 && r.places() >= r.maxRows || !r.hasRoom(g, r.ownPages(m)) {
			return false, nil
		}
		switch err := r.seat(m); {
		case errors.Is(err, model.ErrOutOfMemory):
			return r.withoutRow(g, err)
		case err != nil:
			return false, err
		}
	}
	return true, nil
}

// openPrompt gives the group's prompt an empty row.
func (r *runner) openPrompt(g *groupRun) (bool, error) {
	row, err := r.session.Open()
	if g.opened.IsZero() {
		g.opened = time.Now()
	}
	switch {
	case errors.Is(err, model.ErrOutOfMemory):
		return r.withoutRow(g, err)
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
	if !m.idle.IsZero() {
		m.excused += time.Since(m.idle)
		m.idle = time.Time{}
	}
	return nil
}

// places is the number of rows that count towards MaxRows.
func (r *runner) places() int {
	n := len(r.held)
	for range r.live() {
		n++
	}
	return n
}

// free is the number of places for members of further groups. A group whose prompt has a row is
// promised one for each of its members, so that no prompt is encoded long before it is of use.
func (r *runner) free() int {
	if r.maxRows == 0 {
		return math.MaxInt
	}
	free := r.maxRows - r.places()
	for m := range r.filtered((*member).waits) {
		if m.group.open {
			free--
		}
	}
	return free
}

// withoutRow handles the shortage of memory in opening a row for a group. The run goes on with the
// rows it has; when there are none, other prompts give way, and at last the group's members that
// wait for a row fail. It reports whether another group may follow.
func (r *runner) withoutRow(g *groupRun, err error) (bool, error) {
	if r.anyLive() {
		r.maxRows = max(1, r.places())
		return false, nil
	}
	switch given, failed := r.giveUp(); {
	case failed != nil:
		return false, failed
	case given:
		return r.admitGroup(g)
	case r.foremost() != g:
		return false, nil
	}
	return true, r.failWaiting(g, FailedEngine, err.Error())
}
