package prefix

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mempo-train/mempo-train/model"
)

// Score tells how likely the marked tokens of rows are, as one forward pass over each row alone
// would, up to rounding. Each row needs a position.
//
// The rows run as the tree that Build makes of them: what several of them begin with is kept in a
// row of the session, the rest runs behind it. A call of session.Score has at most budget tokens, of
// as many rows as fit, whatever question they belong to; and at most so many are kept at a time, plus
// those before the row that is computed. What is longer is cut, and subtrees that do not fit beside
// each other follow one another. Out of memory, the budget is halved until two tokens, the least of
// which one can be scored, find no room.
//
// done, which may be nil, is told after each call how many rows it has finished. The rows that Score
// opens in the session are released in any case.
func Score(ctx context.Context, session model.Session, rows []Row, budget int, done func(rows int)) ([]model.RowScores, error) {
	if err := validate(rows); err != nil {
		return nil, err
	}
	ids, own := sequences(rows)
	p := &pass{
		session: session, rows: rows, parts: parts(rows, ids, Build(ids, own)), empty: -1, limit: max(1, budget),
		scores: make([]model.RowScores, len(rows)), missing: make([]int, len(rows)), finished: done,
	}
	for k, row := range rows {
		n := len(row.Positions)
		p.missing[k], p.scores[k] = n, model.RowScores{LogProbs: make([]float32, n), Entropy: make([]float32, n)}
	}
	if err := errors.Join(p.run(ctx), p.clear()); err != nil {
		return nil, err
	}
	return p.scores, nil
}

// pass is one Score while it runs.
type pass struct {
	session  model.Session
	rows     []Row
	scores   []model.RowScores
	missing  []int       // positions of each row without a score
	finished func(n int) // may be nil

	parts []*part // not finished, parents before children
	empty int     // row of no tokens, behind which whole rows run; −1 for none
	limit int     // tokens of a call, and tokens kept at a time
	kept  int     // tokens that parts have in rows of their own, or are going to have
}

// share is what one part does in a call.
type share struct {
	*part
	model.Piece
}

func (p *pass) run(ctx context.Context) error {
	for len(p.parts) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("scoring was given up: %w", err)
		}
		call, err := p.assemble()
		if err != nil {
			return err
		}
		tokens := 0
		pieces := make([]model.Piece, len(call))
		for k, s := range call {
			pieces[k] = s.Piece
			tokens += len(s.IDs)
		}
		scores, err := p.session.Score(pieces)
		switch {
		case errors.Is(err, model.ErrOutOfMemory) && (len(call) > 1 || tokens > 2):
			p.limit = max(1, tokens/2)
			continue
		case err != nil:
			return fmt.Errorf("scoring of %d tokens failed: %w", tokens, err)
		case len(scores) != len(call):
			return fmt.Errorf("the model returned %d results for %d pieces", len(scores), len(call))
		}
		for k, s := range call {
			if err := p.take(s, scores[k]); err != nil {
				return err
			}
		}
		p.parts = slices.DeleteFunc(p.parts, func(p *part) bool { return p.done })
	}
	return nil
}

// assemble chooses what runs in the next call: as much of what can run as fits, in the order of the
// parts. If nothing does because of what is kept, the first part that can run has precedence: it is
// the deepest one of a subtree that is under way, and so on until that is finished.
func (p *pass) assemble() ([]share, error) {
	call, err := p.fill(false)
	if err == nil && len(call) == 0 {
		call, err = p.fill(true)
	}
	return call, err
}

func (p *pass) fill(precedence bool) ([]share, error) {
	var call []share
	var refused error
	room := p.limit
	for _, part := range p.parts {
		if part.parent != nil && !part.parent.done || precedence && len(call) > 0 {
			continue
		}
		n := part.to - part.start()
		if n > room {
			if n <= p.limit || room < 2 && len(call) > 0 {
				continue
			}
			n = max(2, room) // longer than any call: a stretch of it, which can score a token
		}
		keep := part.keep || part.start()+n < part.to
		if keep {
			open, err := p.open(part, precedence)
			if errors.Is(err, model.ErrOutOfMemory) {
				refused = err
			} else if err != nil {
				return nil, err
			}
			if !open {
				continue
			}
		}
		s, err := p.share(part, n, keep)
		if err != nil {
			return nil, err
		}
		call = append(call, s)
		room -= n
	}
	if precedence && len(call) == 0 {
		return nil, fmt.Errorf("no room for a row of the cache: %w", refused)
	}
	return call, nil
}

// start is where the next stretch of a part begins: behind what has run, or one token earlier if the
// token there is to be scored.
func (p *part) start() int {
	if len(p.scored) > 0 && int(p.scored[0]) == p.at {
		return p.at - 1
	}
	return p.at
}

// open sees to it that a part has a row that ends where its next stretch begins. It reports whether
// there is one.
func (p *pass) open(part *part, precedence bool) (bool, error) {
	start := part.start()
	if part.cache >= 0 {
		if start == part.at {
			return true, nil
		}
		row, err := p.session.Fork(part.cache, start)
		if err != nil {
			return false, err
		}
		row, part.cache, part.at = part.cache, row, start
		return true, p.session.Release(row)
	}
	if p.kept+part.to-part.from > p.limit && !precedence {
		return false, nil
	}
	row, err := p.rowBehind(part)
	if err != nil {
		return false, err
	}
	part.cache = row
	p.kept += part.to - part.from
	return true, nil
}

// rowBehind opens a row that holds the tokens before a part.
func (p *pass) rowBehind(part *part) (int, error) {
	if part.from == 0 {
		return p.session.Open()
	}
	return p.session.Fork(part.parent.cache, part.from)
}

// share makes the piece of a part's next n tokens.
func (p *pass) share(part *part, n int, keep bool) (share, error) {
	start := part.start()
	row := p.rows[part.row]
	end, _ := slices.BinarySearch(part.scored, int32(start+n))
	piece := model.Piece{
		Row: part.cache, Length: start, IDs: row.IDs[start : start+n],
		Temperature: row.Temperature, Keep: keep,
	}
	for _, position := range part.scored[:end] {
		piece.Positions = append(piece.Positions, position-int32(start))
	}
	switch {
	case part.cache >= 0:
	case part.parent != nil:
		piece.Row = part.parent.cache
	default:
		if p.empty < 0 {
			empty, err := p.session.Open()
			if err != nil {
				return share{}, fmt.Errorf("no row of the cache: %w", err)
			}
			p.empty = empty
		}
		piece.Row = p.empty
	}
	return share{part, piece}, nil
}

// take files the scores of a stretch.
func (p *pass) take(s share, scores model.RowScores) error {
	n := len(s.Positions)
	if len(scores.LogProbs) != n || len(scores.Entropy) != n {
		return fmt.Errorf("the model returned %d log-probs and %d entropies for %d positions", len(scores.LogProbs), len(scores.Entropy), n)
	}
	part := s.part
	copy(p.scores[part.row].LogProbs[part.first:], scores.LogProbs)
	copy(p.scores[part.row].Entropy[part.first:], scores.Entropy)
	part.first += n
	part.scored = part.scored[n:]
	part.at = s.Length + len(s.IDs)
	p.missing[part.row] -= n
	if n > 0 && p.missing[part.row] == 0 && p.finished != nil {
		p.finished(1)
	}
	if part.at < part.to {
		return nil
	}
	part.done = true
	return p.free(part)
}

// free gives up the rows of a part and of those before it, as far as nothing stands behind them any
// more.
func (p *pass) free(part *part) error {
	for part != nil && part.done && part.children == 0 {
		if err := p.release(part); err != nil {
			return err
		}
		if part = part.parent; part != nil {
			part.children--
		}
	}
	return nil
}

func (p *pass) release(part *part) error {
	if part.cache < 0 {
		return nil
	}
	row := part.cache
	part.cache = -1
	p.kept -= part.to - part.from
	return p.session.Release(row)
}

// clear releases every row that is left.
func (p *pass) clear() error {
	var err error
	if p.empty >= 0 {
		err = p.session.Release(p.empty)
	}
	for _, part := range p.parts {
		for ; part != nil; part = part.parent {
			err = errors.Join(err, p.release(part))
		}
	}
	return err
}
