package rollout

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// fakePolicy writes for each turn what script says of the turn's first seed, in random pieces. Its
// session keeps every rule of model.Session, page by page.
type fakePolicy struct {
	t      *testing.T
	pieces *toyVocabulary // what it may write
	script func(SeedKey) string
	encode func(text string) []int32 // in place of random pieces, if it is set

	pageTokens int
	limit      int                          // pages; 0 is no bound
	device     int                          // pages that there are, of which the session does not tell; 0 is no bound
	onStep     func([]model.RowInput) error // may refuse a step
	onFork     func(rows int) error         // may refuse a row
	onScore    func([]model.Piece) error    // may refuse to score

	mu       sync.Mutex         // guards what follows
	draws    map[uint64]draw    // that may come next
	contexts map[uint64]uint64  // of all draws: hash of what they were conditioned on
	batches  [][]model.RowInput // of every step
	scored   [][]model.Piece    // of every call of Score
	rows     map[int]*fakeRow   // open
	past     [][]int32          // contents of released rows
	pages    int                // in use
	refused  int                // steps that found too few of them
	forked   int                // open rows that were forked: those of members
	peak     int                // most of these at a time
	busiest  int                // most rows of members in a step
	unused   int                // open rows that were neither forked nor forked from: those of prompts nobody runs behind yet
	idlest   int                // most of these at a time
	peakUse  int                // most pages at a time
	tokens   int                // most tokens in a step
	seeds    map[uint64]bool    // of all draws
	closed   bool
	opened   int
}

// draw is one sampled token to come.
type draw struct {
	key  SeedKey
	turn []int32 // all that the turn will hold; nil before its first token
}

type fakeRow struct {
	ids    []int32
	pages  []*fakePage
	forked bool
	used   bool // it was forked from
}

// fakePage counts the rows that share it.
type fakePage struct{ rows int }

func newFakePolicy(t *testing.T, o Options, drawn []Drawn, script func(SeedKey) string) *fakePolicy {
	v, _ := o.Vocabulary.(*toyVocabulary)
	p := &fakePolicy{
		t: t, pieces: v, script: script, pageTokens: 4,
		draws: map[uint64]draw{}, contexts: map[uint64]uint64{}, rows: map[int]*fakeRow{}, seeds: map[uint64]bool{},
	}
	for _, d := range drawn {
		for m := range o.GroupSize {
			for turn := range o.MaxTurns {
				key := SeedKey{Run: o.Seed, Step: o.Step, Question: d.Question.ID, Draw: d.Draw, Member: m, Turn: turn}
				p.draws[key.Seed()] = draw{key: key}
			}
		}
	}
	return p
}

func (p *fakePolicy) NewSession(options model.SessionOptions) (model.Session, error) {
	if len(options.Valid) == 0 {
		return nil, errors.New("no vocabulary")
	}
	p.limit = p.pagesOf(options.CacheTokens)
	return p, nil
}

// pagesOf is the number of pages that hold so many tokens.
func (p *fakePolicy) pagesOf(tokens int) int { return (tokens + p.pageTokens - 1) / p.pageTokens }

// take puts pages in use, or none.
func (p *fakePolicy) take(pages int) error {
	for _, limit := range []int{p.limit, p.device} {
		if limit > 0 && p.pages+pages > limit {
			return fmt.Errorf("%d pages of %d are in use, %d more are needed: %w", p.pages, limit, pages, model.ErrOutOfMemory)
		}
	}
	p.pages += pages
	p.peakUse = max(p.peakUse, p.pages)
	return nil
}

// extend appends to a row whose new pages are taken.
func (p *fakePolicy) extend(row *fakeRow, ids []int32) {
	row.ids = append(row.ids, ids...)
	for len(row.pages) < p.pagesOf(len(row.ids)) {
		row.pages = append(row.pages, &fakePage{rows: 1})
	}
}

// growth is the number of pages that a row lacks for so many more tokens.
func (p *fakePolicy) growth(row *fakeRow, tokens int) int {
	return p.pagesOf(len(row.ids)+tokens) - len(row.pages)
}

func (p *fakePolicy) Open() (int, error) { return p.add(nil, 0) }

func (p *fakePolicy) Fork(row, length int) (int, error) {
	if p.rows[row] == nil || length < 0 || length > len(p.rows[row].ids) {
		p.t.Errorf("row %d is forked at %d", row, length)
		return 0, errors.New("bad fork")
	}
	return p.add(p.rows[row], length)
}

func (p *fakePolicy) add(from *fakeRow, length int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onFork != nil {
		if err := p.onFork(len(p.rows)); err != nil {
			return 0, err
		}
	}
	row := &fakeRow{forked: from != nil}
	if err := p.take(p.pagesOf(length) - length/p.pageTokens); err != nil {
		return 0, err
	}
	if from != nil {
		row.pages = slices.Clone(from.pages[:length/p.pageTokens])
		for _, page := range row.pages {
			page.rows++
		}
		p.extend(row, from.ids[:length])
		p.forked++
		p.peak = max(p.peak, p.forked)
		p.use(from)
	} else {
		p.unused++
		p.idlest = max(p.idlest, p.unused)
	}
	p.opened++
	p.rows[p.opened] = row
	return p.opened, nil
}

// use takes a row out of the unused ones, if it is one.
func (p *fakePolicy) use(row *fakeRow) {
	if !row.used && !row.forked {
		p.unused--
	}
	row.used = true
}

func (p *fakePolicy) Step(inputs []model.RowInput) ([]model.Sampled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onStep != nil {
		if err := p.onStep(inputs); err != nil {
			return nil, err
		}
	}
	total, pages, members := 0, 0, 0
	seen := map[int]bool{}
	for _, in := range inputs {
		row := p.rows[in.Row]
		if p.closed || row == nil || seen[in.Row] || len(in.IDs) == 0 {
			p.t.Errorf("step with row %d of %d ids: closed %v, known %v, twice %v", in.Row, len(in.IDs), p.closed, row != nil, seen[in.Row])
			return nil, errors.New("bad input")
		}
		seen[in.Row] = true
		total += len(in.IDs)
		pages += p.growth(row, len(in.IDs))
		if row.forked {
			members++
		}
	}
	if err := p.take(pages); err != nil {
		p.refused++
		return nil, err
	}
	sampled := make([]model.Sampled, len(inputs))
	copied := slices.Clone(inputs)
	for k, in := range inputs {
		row := p.rows[in.Row]
		p.extend(row, in.IDs)
		copied[k].IDs = slices.Clone(in.IDs)
		sampled[k].ID = -1
		if in.Sample {
			sampled[k] = p.sample(row, in.Seed)
		}
	}
	p.batches = append(p.batches, copied)
	p.tokens, p.busiest = max(p.tokens, total), max(p.busiest, members)
	return sampled, nil
}

func (p *fakePolicy) sample(row *fakeRow, seed uint64) model.Sampled {
	if p.seeds[seed] {
		p.t.Errorf("seed %d is used twice", seed)
	}
	p.seeds[seed] = true
	p.contexts[seed] = hashOf(row.ids)
	d, ok := p.draws[seed]
	if !ok {
		p.t.Errorf("a token is drawn with a seed that is none, or out of turn")
	}
	delete(p.draws, seed)
	if d.turn == nil {
		if p.encode != nil {
			d.turn = p.encode(p.script(d.key))
		} else {
			d.turn = p.pieces.split(p.script(d.key), rand.New(rand.NewPCG(seed, 1)))
		}
	}
	id := int32('.')
	if d.key.Position < len(d.turn) {
		id = d.turn[d.key.Position]
	}
	d.key.Position++
	p.draws[d.key.Seed()] = d
	return model.Sampled{ID: id, LogProb: fakeLogProb(seed), Redraws: int(seed % 2)}
}

// fakeLogProb is never 0.
func fakeLogProb(seed uint64) float32 { return -float32(seed%1000+1) / 1000 }

func hashOf(ids []int32) uint64 {
	hash := fnv.New64()
	for _, id := range ids {
		_, _ = hash.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)})
	}
	return hash.Sum64()
}

// prefixLogProb is the log-prob of the last of ids given all before it.
func prefixLogProb(ids []int32) float32 { return fakeLogProb(hashOf(ids)) }

func (p *fakePolicy) Score(pieces []model.Piece) ([]model.RowScores, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onScore != nil {
		if err := p.onScore(pieces); err != nil {
			return nil, err
		}
	}
	scores := make([]model.RowScores, len(pieces))
	for k, piece := range pieces {
		row := p.rows[piece.Row]
		if p.closed || row == nil || piece.Length < 0 || piece.Length > len(row.ids) || len(piece.IDs) == 0 || piece.Temperature <= 0 || piece.Keep {
			p.t.Errorf("bad piece %+v", piece)
			return nil, errors.New("bad piece")
		}
		least := 1
		for _, position := range piece.Positions {
			if int(position) < least || int(position) >= len(piece.IDs) {
				p.t.Errorf("positions %v in %d ids", piece.Positions, len(piece.IDs))
				return nil, errors.New("bad positions")
			}
			least = int(position) + 1
			ids := slices.Concat(row.ids[:piece.Length], piece.IDs[:position+1])
			scores[k].LogProbs = append(scores[k].LogProbs, prefixLogProb(ids))
		}
		scores[k].Entropy = make([]float32, len(piece.Positions))
	}
	p.scored = append(p.scored, slices.Clone(pieces))
	return scores, nil
}

func (p *fakePolicy) Release(row int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows[row] == nil {
		return fmt.Errorf("row %d is not open", row)
	}
	for _, page := range p.rows[row].pages {
		if page.rows--; page.rows == 0 {
			p.pages--
		}
	}
	if p.rows[row].forked {
		p.forked--
	}
	p.use(p.rows[row])
	p.past = append(p.past, p.rows[row].ids)
	delete(p.rows, row)
	return nil
}

func (p *fakePolicy) Usage() model.CacheUsage {
	return model.CacheUsage{PageTokens: p.pageTokens, Pages: p.pages, Limit: p.limit}
}

func (p *fakePolicy) Close() error {
	p.closed = true
	return nil
}
