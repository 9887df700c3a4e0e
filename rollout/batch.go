package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mempo-train/mempo-train/model"
)

// share is one row's part of a forward pass: a piece of a group's prompt, or of a member's feed.
type share struct {
	group  *groupRun // set when the row is a prompt's
	member *member   // set otherwise
	ids    []int32
	sample bool
}

// assemble fills a forward pass. Members that go on by one token are all in; longer feeds and
// prompts, in the order of groups and members, share what BatchTokens leaves.
func (r *runner) assemble() []share {
	var shares []share
	left := r.BatchTokens
	for m := range r.live() {
		if m.placed && len(m.feed) == 1 {
			shares = append(shares, share{member: m, ids: m.feed, sample: true})
			left--
		}
	}
	for _, g := range r.groups {
		if g.open && len(g.rest) > 0 && left > 0 {
			ids := g.rest[:min(left, len(g.rest))]
			shares = append(shares, share{group: g, ids: ids})
			left -= len(ids)
		}
		for _, m := range g.members {
			if m.placed && len(m.feed) > 1 && left > 0 {
				ids := m.feed[:min(left, len(m.feed))]
				shares = append(shares, share{member: m, ids: ids, sample: len(ids) == len(m.feed)})
				left -= len(ids)
			}
		}
	}
	return shares
}

// forward runs the shares through the model. Out of memory, it runs them in two halves; for a share of
// one token something newer gives way, and at last it fails.
func (r *runner) forward(ctx context.Context, shares []share) error {
	shares = slices.DeleteFunc(shares, share.closed)
	if len(shares) == 0 {
		return nil
	}
	inputs := make([]model.RowInput, len(shares))
	for k, s := range shares {
		inputs[k] = r.input(s)
	}
	sampled, err := r.session.Step(inputs)
	switch first := shares[0]; {
	case err == nil && len(sampled) != len(shares):
		return fmt.Errorf("the model returned %d results for %d rows", len(sampled), len(shares))
	case err == nil:
		return r.take(ctx, shares, sampled)
	case !errors.Is(err, model.ErrOutOfMemory):
		return fmt.Errorf("generation of %d rows failed: %w", len(shares), err)
	case len(shares) > 1:
		return r.halves(ctx, shares[:len(shares)/2], shares[len(shares)/2:])
	case len(first.ids) > 1:
		head, tail := first, first
		head.ids, tail.ids = first.ids[:len(first.ids)/2], first.ids[len(first.ids)/2:]
		head.sample = false
		return r.halves(ctx, []share{head}, []share{tail})
	}
	r.pageLimit = max(1, r.session.Usage().Pages) // all that the device has
	given, failed := r.giveUp()
	switch first := shares[0]; {
	case failed != nil:
		return failed
	case given:
		return r.forward(ctx, shares)
	case first.group != nil:
		return r.failWaiting(first.group, FailedEngine, err.Error())
	default:
		return r.failMember(first.member, FailedEngine, err.Error())
	}
}

// halves runs two batches one after the other; what became of the first may have closed rows of the
// second.
func (r *runner) halves(ctx context.Context, first, second []share) error {
	if err := r.forward(ctx, first); err != nil {
		return err
	}
	return r.forward(ctx, second)
}

// closed reports whether the share's row is no longer there.
func (s share) closed() bool {
	if s.group != nil {
		return !s.group.open
	}
	return !s.member.live()
}

func (r *runner) input(s share) model.RowInput {
	if s.group != nil {
		return model.RowInput{Row: s.group.row, IDs: s.ids}
	}
	m := s.member
	key := SeedKey{
		Run: r.Seed, Step: r.Step, Question: m.group.Question.ID, Draw: m.group.Draw,
		Member: m.t.Member, Turn: len(m.t.Turns), Position: m.writing.sampled,
	}
	return model.RowInput{Row: m.row, IDs: s.ids, Sample: s.sample, Sampling: r.Sampling, Seed: key.Seed()}
}

// take moves the shares' rows on by what a forward pass gave.
func (r *runner) take(ctx context.Context, shares []share, sampled []model.Sampled) error {
	r.stats.ForwardPasses++
	for k, s := range shares {
		r.stats.ForwardTokens += len(s.ids)
		if len(s.ids) > 1 || !s.sample {
			r.stats.PrefillTokens += len(s.ids)
		}
		if s.group != nil {
			s.group.rest = s.group.rest[len(s.ids):]
			continue
		}
		s.member.feed = s.member.feed[len(s.ids):]
		s.member.cached += len(s.ids)
		if !s.sample {
			continue
		}
		token := sampled[k]
		if token.ID < 0 {
			return fmt.Errorf("the model sampled no token for row %d", s.member.row)
		}
		r.stats.GeneratedTokens++
		if err := r.follow(ctx, s.member, s.member.sampled(token.ID, token.LogProb, token.Redraws)); err != nil {
			return err
		}
	}
	return nil
}
