package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// The cache has a budget of pages. What a forward pass needs is known from token counts alone, see
// model.CacheUsage, so that under Fixed what gives way repeats with them. When pages run short,
// nobody new is admitted; then what is newest gives way, and is encoded again when there is room.

// pages is the number of pages that hold so many tokens.
func (r *runner) pages(tokens int) int { return (tokens + r.pageTokens - 1) / r.pageTokens }

// growth is the number of pages that a row of so many tokens lacks for more.
func (r *runner) growth(tokens, more int) int { return r.pages(tokens+more) - r.pages(tokens) }

// ownPages is the number of pages that a member without a row takes beside those of the prompt.
func (r *runner) ownPages(m *member) int {
	return r.pages(m.length()) - len(m.group.prompt)/r.pageTokens
}

// missingPages is the number of pages that a member without a row takes, with the prompt if that has none either.
func (r *runner) missingPages(m *member) int {
	pages := r.ownPages(m)
	if !m.group.open {
		pages += r.pages(len(m.group.prompt))
	}
	return pages
}

// writtenAnew bounds the tokens of a limited context that are neither in the prompt nor in the
// response: the tags of an empty memory, the edges of memory and action, the end of their turn.
const writtenAnew = 16

// longest is the number of tokens that a row of the member may come to hold.
func (r *runner) longest(m *member) int {
	most := len(m.t.PromptIDs) + r.MaxResponseTokens
	if r.rules.limited {
		most += writtenAnew
	}
	return min(most, m.contextLimit)
}

// largestPage is the most tokens that a page may have for LeastCacheTokens to hold.
const largestPage = 64

// LeastCacheTokens is a budget (Options.CacheTokens) that holds a prompt of so many tokens and a whole
// trajectory behind it, in either context and in pages of any size up to 64 tokens. In small pages less
// may do, see Run.
func LeastCacheTokens(promptTokens int, limits Limits) int {
	// The pages that hold n tokens, and one: of the page that prompt and trajectory share in part there are two.
	return min(promptTokens+limits.MaxResponseTokens+writtenAnew, limits.ContextLength) + largestPage
}

// checkBudget refuses a budget in which not even one trajectory of each question has room.
func (r *runner) checkBudget() error {
	for _, g := range r.groups {
		if r.pageLimit == 0 || g.running == 0 {
			continue
		}
		m := g.members[0]
		if need := r.pages(len(g.prompt)) + r.pages(r.longest(m)) - len(g.prompt)/r.pageTokens; need > r.pageLimit {
			return fault.Usage(fmt.Errorf("rollout.kv_cache_tokens is %d; question %q, with a prompt of %d tokens and trajectories of up to %d, needs at least %d",
				r.CacheTokens, g.Question.ID, len(m.t.PromptIDs), r.longest(m), need*r.pageTokens))
		}
	}
	return nil
}

// hasRoom reports whether a group may take so many more pages.
func (r *runner) hasRoom(g *groupRun, pages int) bool {
	return r.pageLimit == 0 || r.shortage(pages) <= 0 || r.mustGoOn(g)
}

// shortage is the number of pages that are not there for somebody new who takes so many: room is kept for what is
// to be forwarded already, and for a page more for each that has a row.
func (r *runner) shortage(pages int) int {
	taken := r.session.Usage().Pages + pages + 1
	for m := range r.live() {
		taken += r.growth(m.cached, len(m.feed)) + 1
	}
	for _, other := range r.groups {
		if other.open {
			taken += r.growth(len(other.prompt)-len(other.rest), len(other.rest))
		}
	}
	return taken - r.pageLimit
}

// makeWay puts the newest trajectories aside when all that have a row wait for their tools, so that another can go on
// meanwhile, and reports whether it did. The oldest stays, and nobody gives way when that does not make room.
func (r *runner) makeWay() (bool, error) {
	first := r.waitsFirst()
	if r.pageLimit == 0 || first == nil {
		return false, nil
	}
	pages, live := r.missingPages(first), slices.Collect(r.live())
	lacking, newest := r.shortage(pages), len(live)
	for lacking > 0 && newest > 1 {
		newest--
		m := live[newest]
		lacking -= r.pages(m.cached) - len(m.group.prompt)/r.pageTokens + 1
	}
	if lacking > 0 {
		return false, nil
	}
	for _, m := range live[newest:] {
		if err := r.putAside(m); err != nil {
			return false, err
		}
	}
	return newest < len(live), nil
}

// compose fills a forward pass for which there is room in the cache.
func (r *runner) compose() ([]share, error) {
	for {
		shares := r.assemble()
		if r.fits(shares) {
			return shares, nil
		}
		if given, err := r.giveUp(); err != nil || !given {
			return shares, err
		}
	}
}

func (r *runner) fits(shares []share) bool {
	if r.pageLimit == 0 {
		return true
	}
	pages := r.session.Usage().Pages
	for _, s := range shares {
		if s.group != nil {
			pages += r.growth(len(s.group.prompt)-len(s.group.rest), len(s.ids))
		} else {
			pages += r.growth(s.member.cached, len(s.ids))
		}
	}
	return pages <= r.pageLimit
}

// giveUp makes room in the cache and reports whether it could. Trajectories that have ended go
// first, once they are measured, then prompts that nobody has a row behind, then the newest live
// trajectory. What is foremost stays, so that it always goes on.
func (r *runner) giveUp() (bool, error) {
	if len(r.held) > 0 {
		return true, r.measure()
	}
	foremost := r.foremost()
	for _, g := range slices.Backward(r.groups) {
		if g.open && g != foremost && !slices.ContainsFunc(g.members, (*member).live) {
			g.lost = len(g.prompt) - len(g.rest)
			return true, r.closePrompt(g)
		}
	}
	if m := r.newest(); m != nil {
		return true, r.putAside(m)
	}
	return false, nil
}

// newest is the live trajectory that gives way first. It is not the only one that generates as long as another can
// give way; it is never the oldest.
func (r *runner) newest() *member {
	live := slices.Collect(r.live())
	if len(live) < 2 {
		return nil
	}
	last := live[len(live)-1]
	if slices.ContainsFunc(live[:len(live)-1], func(m *member) bool { return m.placed }) {
		return last
	}
	for _, m := range slices.Backward(live[1:]) {
		if !m.placed {
			return m
		}
	}
	return last
}

// putAside takes a member's row. The member keeps all it has, and waits for another row.
func (r *runner) putAside(m *member) error {
	m.lost = m.cached - len(m.group.prompt)
	if err := r.unseat(m); err != nil {
		return err
	}
	r.setAside(m)
	return nil
}

// setAside makes a member without a row wait for one.
func (r *runner) setAside(m *member) {
	r.stats.PutAside++
	m.feed, m.placed = nil, false
	if m.state == generating {
		m.idle = time.Now()
	}
}
