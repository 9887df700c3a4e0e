package rollout

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mempo-train/mempo-train/model"
)

// measuredTogether is the number of tokens of branches that are worth a forward pass of their own:
// more of them in a pass are hardly cheaper, and rows are held while they wait.
const measuredTogether = 256

// Branch is a stretch of tokens whose probability is measured behind a beginning of a trajectory
// that has ended, against the keys and values that its generation left in the cache.
type Branch struct {
	Turn   int // of the trajectory, counted from 0, that the branch belongs to
	Length int // of the beginning, in tokens of the trajectory's prompt and response
	// IDs and Positions are those of a model.Piece.
	IDs       []int32
	Positions []int32
}

// held is a trajectory that has ended and whose row is kept until its branches are scored.
type held struct {
	*member
	branches []Branch
	scores   []model.RowScores // aligned with branches
	lost     bool              // there was no memory to score one of them
}

// inOrder lists the branches by the beginnings they stand behind: pieces of a call that follow each other behind the
// same beginning look at it together.
func (h *held) inOrder() []int {
	order := make([]int, len(h.branches))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return h.branches[a].Length - h.branches[b].Length })
	return order
}

// piece is one branch of a forward pass.
type piece struct {
	of     *held
	branch int
}

// hold keeps the row of a member that has ended when there are branches to score behind it, and
// reports whether it does. A row that no longer holds what stands before a branch is not kept.
func (r *runner) hold(m *member) bool {
	if r.Measure == nil || r.rules.limited || m.t.Stop.Failed() {
		return false
	}
	branches := r.Measure(m.group.Group, m.t)
	tokens := 0
	for _, b := range branches {
		if b.Length > m.cached {
			return false
		}
		tokens += len(b.IDs)
	}
	if len(branches) == 0 {
		return false
	}
	r.held = append(r.held, &held{member: m, branches: branches, scores: make([]model.RowScores, len(branches))})
	r.heldTokens += tokens
	return true
}

// measureDue scores what is held when that is worth a forward pass, when there is nothing else to
// forward, or when somebody waits for a row that memory may be short of.
func (r *runner) measureDue() error {
	short := r.pageLimit > 0 || r.maxSeated > 0
	if r.heldTokens >= min(measuredTogether, r.BatchTokens) || !r.busy() || short && r.waitsFirst() != nil {
		return r.measure()
	}
	return nil
}

// measure scores the branches of all trajectories that are held, BatchTokens at a time, and gives
// up their rows.
func (r *runner) measure() error {
	if len(r.held) == 0 {
		return nil
	}
	start := time.Now()
	var pieces []piece
	tokens := 0
	for _, h := range r.held {
		for _, b := range h.inOrder() {
			if length := len(h.branches[b].IDs); len(pieces) > 0 && tokens+length > r.BatchTokens {
				if err := r.score(pieces); err != nil {
					return err
				}
				pieces, tokens = nil, 0
			}
			pieces = append(pieces, piece{h, b})
			tokens += len(h.branches[b].IDs)
		}
	}
	if err := r.score(pieces); err != nil {
		return err
	}
	r.stats.ScoreTime += time.Since(start)
	return r.releaseHeld()
}

// releaseHeld shows what was measured, and gives up the rows.
func (r *runner) releaseHeld() error {
	ended := r.held
	r.held, r.heldTokens = nil, 0
	for _, h := range ended {
		if !h.lost && r.Measured != nil {
			r.Measured(h.group.Group, h.t, h.branches, h.scores)
		}
		if err := r.unseat(h.member); err != nil {
			return err
		}
	}
	return nil
}

// score runs pieces through the model. Out of memory, it runs them in two halves; a trajectory of
// which a piece alone finds no memory is not measured.
func (r *runner) score(pieces []piece) error {
	inputs := make([]model.Piece, len(pieces))
	tokens := 0
	for k, p := range pieces {
		b := p.of.branches[p.branch]
		inputs[k] = model.Piece{Row: p.of.row, Length: b.Length, IDs: b.IDs, Positions: b.Positions, Temperature: 1}
		tokens += len(b.IDs)
	}
	scores, err := r.session.Score(inputs)
	switch half := len(pieces) / 2; {
	case errors.Is(err, model.ErrOutOfMemory) && half > 0:
		if err := r.score(pieces[:half]); err != nil {
			return err
		}
		return r.score(pieces[half:])
	case errors.Is(err, model.ErrOutOfMemory):
		pieces[0].of.lost = true
		return nil
	case err != nil:
		return fmt.Errorf("%d branches cannot be scored: %w", len(pieces), err)
	case len(scores) != len(pieces):
		return fmt.Errorf("the model returned %d results for %d branches", len(scores), len(pieces))
	}
	r.stats.ScoredTokens += tokens
	for k, p := range pieces {
		p.of.scores[p.branch] = scores[k]
	}
	return nil
}
