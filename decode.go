package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/rollout"
)

// Why a continuation ended.
const (
	stopEOS     = "eos"          // an end-of-sequence token
	stopString  = "stop"         // one of the stop strings
	stopLength  = "length"       // as many tokens as were asked for
	stopContext = "context_full" // no room left in the model's context
)

// decodeOptions say how sequences are continued.
type decodeOptions struct {
	model.Sampling
	Seed        uint64
	MaxTokens   int // new ones of a sequence
	Context     int // tokens of a sequence, old and new
	Rows        int // sequences decoded at the same time
	BatchTokens int // of one forward pass
	EOS         []int32
	Stops       []string
	Tokenizer   *tokenizer.Tokenizer // nil: no text, no stop strings
}

// sequence is a prompt on its way through the decoder.
type sequence struct {
	index    int // among the prompts, from 0
	row      int
	feed     []int32 // tokens that are not in the cache yet
	length   int     // tokens in all
	text     *writtenText
	IDs      []int32 // the new ones
	LogProbs []float32
	Stop     string // "" while it goes on
}

// decoder continues many sequences together: each forward pass takes all that are under way, a
// finished one makes room for the next prompt. What becomes of a sequence does not depend on the
// others, but for rounding.
type decoder struct {
	decodeOptions
	session model.Session
	prompts int         // taken so far
	active  []*sequence // with a row
	results []*sequence // not handed out yet, in the order of the prompts
}

// run continues the prompts that next gives until io.EOF, and hands the results to take in the
// order of the prompts as soon as they are there. Prompts are read ahead as rows are free. Another
// error of next ends the run after the prompts before it.
func (d *decoder) run(next func() ([]int32, error), take func(*sequence) error) error {
	var end error
	for {
		if err := d.handOut(take); err != nil {
			return err
		}
		for end == nil && len(d.active) < d.Rows {
			var prompt []int32
			if prompt, end = next(); end == nil {
				if err := d.admit(prompt); err != nil {
					return err
				}
			}
		}
		if len(d.active) > 0 {
			if err := d.step(); err != nil {
				return err
			}
		} else if len(d.results) == 0 {
			if errors.Is(end, io.EOF) {
				return nil
			}
			return end
		}
	}
}

func (d *decoder) handOut(take func(*sequence) error) error {
	for len(d.results) > 0 && d.results[0].Stop != "" {
		if err := take(d.results[0]); err != nil {
			return err
		}
		d.results = d.results[1:]
	}
	return nil
}

// admit gives a prompt a row, unless there is no room behind it.
func (d *decoder) admit(prompt []int32) error {
	s := &sequence{index: d.prompts, feed: prompt, length: len(prompt)}
	if d.Tokenizer != nil {
		s.text = &writtenText{stream: d.Tokenizer.NewStream(), stops: d.Stops}
	}
	d.prompts++
	d.results = append(d.results, s)
	if s.length >= d.Context {
		s.Stop = stopContext
		return nil
	}
	var err error
	s.row, err = d.session.Open()
	d.active = append(d.active, s)
	return err
}

// step is one forward pass. Sequences that go on by one token are all in; prompts share, in their
// order, what BatchTokens leaves.
func (d *decoder) step() error {
	left := d.BatchTokens
	for _, s := range d.active {
		if len(s.feed) == 1 {
			left--
		}
	}
	var inputs []model.RowInput
	var sequences []*sequence
	for _, s := range d.active {
		n := 1
		if len(s.feed) > 1 {
			if n = min(len(s.feed), left); n < 1 {
				continue
			}
			left -= n
		}
		inputs = append(inputs, model.RowInput{
			Row: s.row, IDs: s.feed[:n], Sample: n == len(s.feed), Sampling: d.Sampling,
			Seed: rollout.SeedKey{Run: d.Seed, Member: s.index, Position: len(s.IDs)}.Seed(),
		})
		sequences = append(sequences, s)
	}
	sampled, err := d.session.Step(inputs)
	if err != nil {
		return err
	}
	for k, s := range sequences {
		s.feed = s.feed[len(inputs[k].IDs):]
		if !inputs[k].Sample {
			continue
		}
		if sampled[k].ID < 0 {
			return fmt.Errorf("the model sampled no token for input %d", s.index+1)
		}
		d.follow(s, sampled[k])
	}
	return d.releaseFinished()
}

// follow appends a sampled token and tells whether it was the last one.
func (d *decoder) follow(s *sequence, token model.Sampled) {
	s.IDs, s.LogProbs = append(s.IDs, token.ID), append(s.LogProbs, token.LogProb)
	s.feed = []int32{token.ID}
	s.length++
	switch {
	case slices.Contains(d.EOS, token.ID):
		s.Stop = stopEOS
	case s.text != nil && s.text.push(token.ID):
		s.Stop = stopString
	case len(s.IDs) == d.MaxTokens:
		s.Stop = stopLength
	case s.length == d.Context:
		s.Stop = stopContext
	}
}

func (d *decoder) releaseFinished() error {
	going := d.active[:0]
	for _, s := range d.active {
		if s.Stop == "" {
			going = append(going, s)
		} else if err := d.session.Release(s.row); err != nil {
			return err
		}
	}
	d.active = going
	return nil
}

// writtenText is the text of the new tokens, as far as their characters are whole.
type writtenText struct {
	stream *tokenizer.Stream
	stops  []string
	text   []byte
}

// push appends a token. It returns true, and cuts the text behind it, at the stop string that ends
// first.
func (w *writtenText) push(id int32) bool {
	before := len(w.text)
	w.text = append(w.text, w.stream.Push(id)...)
	end := -1
	for _, stop := range w.stops {
		from := max(0, before-len(stop)+1)
		if at := strings.Index(string(w.text[from:]), stop); at >= 0 && (end < 0 || from+at+len(stop) < end) {
			end = from + at + len(stop)
		}
	}
	if end < 0 {
		return false
	}
	w.text = w.text[:end]
	return true
}

// String is the whole text; a character that was broken off is U+FFFD.
func (w *writtenText) String(stopped bool) string {
	if stopped {
		return string(w.text)
	}
	return string(w.text) + w.stream.Flush()
}
