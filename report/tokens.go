package report

import (
	"math"
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/rollout"
)

// tokens are the response of a record, token by token. A record that is not aligned, as no run
// writes it, has no advantage where there is none.
type tokens struct {
	ids        []int32
	mask       []int
	logProbs   []float32
	advantages []float32
}

func newTokens(r *rollout.Record) tokens {
	return tokens{ids: r.ResponseIDs, mask: r.ResponseMask, logProbs: r.LogProbs, advantages: r.Advantages}
}

// within is a position of a record, kept inside the response.
func (t tokens) within(k int) int { return min(max(k, 0), len(t.ids)) }

// sampled tells whether the model wrote a token, in a trajectory that did not fail.
func (t tokens) sampled(k int) bool { return k < len(t.mask) && t.mask[k] == 1 }

// advantage is the final advantage of a token, NaN for one that is not trained on, 0 for all others
// where nothing is.
func (t tokens) advantage(k int) float64 {
	switch {
	case !t.sampled(k):
		return math.NaN()
	case k < len(t.advantages):
		return float64(t.advantages[k])
	}
	return 0
}

func (t tokens) logProb(k int) float64 {
	if !t.sampled(k) || k >= len(t.logProbs) {
		return math.NaN()
	}
	return float64(t.logProbs[k])
}

// piece is the text of one token, or of several that hold one character together.
type piece struct {
	text       string
	start, end int // tokens
}

// pieces decodes tokens from start to end one by one.
func (t tokens) pieces(tok *tokenizer.Tokenizer, start, end int) []piece {
	var all []piece
	stream, from := tok.NewStream(), start
	for k := start; k < end; k++ {
		if text := stream.Push(t.ids[k]); text != "" {
			all = append(all, piece{text, from, k + 1})
			from = k + 1
		}
	}
	if rest := stream.Flush(); rest != "" {
		all = append(all, piece{rest, from, end})
	}
	return all
}

// parts divides a turn's tokens. The memory is the span that was trained as one; any other token
// belongs to the element in which its text begins.
func (t tokens) parts(tok *tokenizer.Tokenizer, r *rollout.TurnRecord, start, end int) []part {
	pieces := t.pieces(tok, start, end)
	var text strings.Builder
	for _, p := range pieces {
		text.WriteString(p.text)
	}
	spans := cut(text.String(), r.Action)
	var parts []part
	at, k := 0, 0
	for _, p := range pieces {
		for at >= spans[k].end {
			k++
		}
		kind := spans[k].kind
		if r.Memory != nil && p.start >= r.Memory[0] && p.start < r.Memory[1] {
			kind = memory
		}
		if last := len(parts) - 1; last < 0 || parts[last].Kind != kind {
			parts = append(parts, part{Kind: kind})
		}
		t.addPiece(&parts[len(parts)-1], p)
		at += len(p.text)
	}
	return parts
}

// addPiece appends a piece with the means of its tokens.
func (t tokens) addPiece(to *part, p piece) {
	advantage, logProb := 0.0, 0.0
	for k := p.start; k < p.end; k++ {
		advantage += t.advantage(k)
		logProb += t.logProb(k)
	}
	to.Texts = append(to.Texts, p.text)
	to.Advantages.add(advantage / float64(p.end-p.start))
	to.LogProbs = append(to.LogProbs, short(math.Round(logProb*100)/100)) // of all its tokens together
}

// partsByText divides a turn by its text alone. Each part gets the mean advantage of what is known
// of its tokens: those of the memory, or the others of the turn.
func (t tokens) partsByText(r *rollout.TurnRecord, start, end int) []part {
	inMemory := func(k int) bool { return r.Memory != nil && k >= r.Memory[0] && k < r.Memory[1] }
	mean := func(ofMemory bool) (value float64) {
		n := 0.0
		for k := start; k < end; k++ {
			if advantage := t.advantage(k); inMemory(k) == ofMemory && !math.IsNaN(advantage) {
				value += advantage
				n++
			}
		}
		return value / n
	}
	memories, others := mean(true), mean(false)
	var parts []part
	for _, s := range cut(r.Text, r.Action) {
		p := part{Kind: s.kind, Texts: []string{r.Text[s.start:s.end]}}
		if s.kind == memory && r.Memory != nil {
			p.Advantages.add(memories)
		} else {
			p.Advantages.add(others)
		}
		parts = append(parts, p)
	}
	return parts
}
