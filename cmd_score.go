package main

import (
	"errors"
	"io"
	"math"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/model"
)

func (p *program) scoreCommand() *cli.Command {
	return &cli.Command{
		Name:  "score",
		Usage: "tell how likely a model finds given tokens",
		Description: `Reads lines {"ids":[…]} or {"text":"…"} (plain text, control tokens in it stay text) and writes
{"ids":[…],"logprobs":[…],"entropy":[…]} for each, in the same order. Element k of logprobs is the natural
logarithm of the probability of ids[k] behind ids[:k]; element k of entropy, in nats, belongs to the same
distribution. Element 0 is null, and so is a number that is not finite. Results come in batches: with
--batch-tokens 1 each line is answered before the next one is read.`,
		Flags:  modelFlags(&cli.Float64Flag{Name: "temperature", Value: 1, Usage: "divides the logits; above 0"}),
		Action: p.score,
	}
}

// scored is the answer to one line.
type scored struct {
	IDs      []int32    `json:"ids"`
	LogProbs []*float32 `json:"logprobs"`
	Entropy  []*float32 `json:"entropy"`
}

func (p *program) score(c *cli.Context) error {
	temperature, err := temperature(c, false)
	if err != nil {
		return err
	}
	m, err := openModel(c)
	if err != nil {
		return err
	}
	s := &scorer{model: m.Model, temperature: temperature, out: newAnswers(p.out)}
	err = s.run(newLines(p.in), m.encoder, c.Int("batch-tokens"))
	return errors.Join(err, m.Close())
}

// scorer scores sequences batch by batch.
type scorer struct {
	model       model.Scorer
	temperature float64
	out         *answers
	batch       [][]int32
	tokens      int // in batch; an empty sequence counts as one
}

// run answers all lines. A batch ends before it would exceed the budget; a longer line has one to
// itself. An error in a line comes after the answers to those before.
func (s *scorer) run(in *lines, e *encoder, budget int) error {
	for {
		ids, err := nextToScore(in, e)
		if err != nil {
			if failed := s.flush(); failed != nil {
				return failed
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		size := max(1, len(ids))
		if s.tokens+size > budget {
			if err := s.flush(); err != nil {
				return err
			}
		}
		s.batch = append(s.batch, ids)
		if s.tokens += size; s.tokens >= budget {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
}

func nextToScore(in *lines, e *encoder) ([]int32, error) {
	var given struct {
		IDs  *[]*int32 `json:"ids"`
		Text *string   `json:"text"`
	}
	if err := in.next(&given); err != nil {
		return nil, err
	}
	var ids []int32
	var err error
	switch {
	case given.IDs != nil && given.Text == nil:
		ids, err = e.ids(*given.IDs)
	case given.IDs == nil && given.Text != nil:
		ids, err = e.text(*given.Text)
	default:
		err = errors.New(`want "ids" or "text", one of the two`)
	}
	return ids, in.fault(err)
}

// flush scores and writes the batch.
func (s *scorer) flush() error {
	var rows []model.ScoreRow
	for _, ids := range s.batch {
		if len(ids) > 1 {
			rows = append(rows, model.ScoreRow{IDs: ids, Positions: positionsBehindFirst(len(ids))})
		}
	}
	scores, err := s.model.Score(rows, s.temperature)
	if err != nil {
		return computing(err)
	}
	for _, ids := range s.batch {
		answer := scored{IDs: ids, LogProbs: orNull(firstUnknown(ids, nil)), Entropy: orNull(firstUnknown(ids, nil))}
		if len(ids) > 1 {
			answer.LogProbs = orNull(firstUnknown(ids, scores[0].LogProbs))
			answer.Entropy = orNull(firstUnknown(ids, scores[0].Entropy))
			scores = scores[1:]
		}
		if err := s.out.write(answer); err != nil {
			return err
		}
	}
	s.batch, s.tokens = s.batch[:0], 0
	return s.out.flush()
}

// firstUnknown puts a NaN for the first token in front of the values of the others.
func firstUnknown(ids []int32, others []float32) []float32 {
	if len(ids) == 0 {
		return nil
	}
	return append([]float32{float32(math.NaN())}, others...)
}

// positionsBehindFirst lists 1 … n−1.
func positionsBehindFirst(n int) []int32 {
	positions := make([]int32, n-1)
	for k := range positions {
		positions[k] = int32(k + 1)
	}
	return positions
}
