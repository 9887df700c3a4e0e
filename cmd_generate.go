package main

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
)

func (p *program) generateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "let a model continue token ids, text or conversations",
		Description: `Reads lines {"ids":[…]}, {"text":"…"} (plain text, control tokens in it stay text) or
{"messages":[{"role":"…","content":"…"},…]} (by the model's chat template, with its generation prompt) and
writes {"ids":[…],"logprobs":[…],"text":"…","stop":"…"} for each, in the same order: the new tokens only.
logprobs are those at the sampling temperature (1 for greedy), before top-p and top-k. text ends with the
stop string and leaves out the end-of-sequence token; it is null when the folder has no tokenizer. stop is
"eos" (an end-of-sequence token of generation_config.json), "stop" (a stop string), "length" (--max-tokens)
or "context_full". Up to --batch lines are decoded together, so as many are read ahead; what a line gives
depends on --seed and on its place among the lines, and on the batch by rounding alone.`,
		Flags: modelFlags(
			&cli.IntFlag{Name: "max-tokens", Value: 256, Usage: "new tokens of a line at most"},
			&cli.Float64Flag{Name: "temperature", Usage: "divides the logits; 0 takes the likeliest token"},
			&cli.Float64Flag{Name: "top-p", Value: 1, Usage: "sample from the fewest tokens of at least this mass; 1 is all"},
			&cli.IntFlag{Name: "top-k", Usage: "sample from the so many likeliest tokens; 0 is all"},
			&cli.Uint64Flag{Name: "seed", Usage: "of the sampling"},
			&cli.StringSliceFlag{Name: "stop", Usage: "text that ends a continuation; may be given several times", DefaultText: "none"},
			&cli.IntFlag{Name: "batch", Value: 64, Usage: "lines decoded at the same time; fewer need less memory"},
		),
		Action: p.generate,
	}
}

// generated is the answer to one line.
type generated struct {
	IDs      []int32    `json:"ids"`
	LogProbs []*float32 `json:"logprobs"`
	Text     *string    `json:"text"`
	Stop     string     `json:"stop"`
}

func (p *program) generate(c *cli.Context) error {
	options, err := decodeFlags(c)
	if err != nil {
		return err
	}
	m, err := openModel(c)
	if err != nil {
		return err
	}
	return errors.Join(p.generateWith(m, options), m.Close())
}

// decodeFlags checks the flags that need no model.
func decodeFlags(c *cli.Context) (decodeOptions, error) {
	t, err := temperature(c, true)
	if err = errors.Join(err, atLeast(c, "max-tokens", 1), atLeast(c, "top-k", 0), atLeast(c, "batch", 1)); err != nil {
		return decodeOptions{}, err
	}
	topP, stops := c.Float64("top-p"), c.StringSlice("stop")
	if math.IsNaN(topP) || topP <= 0 || topP > 1 {
		return decodeOptions{}, fault.Usage(fmt.Errorf("--top-p is %v, allowed is above 0, up to 1", topP))
	}
	for _, stop := range stops {
		if stop == "" || !utf8.ValidString(stop) {
			return decodeOptions{}, fault.Usage(fmt.Errorf("--stop is %q, allowed is text of at least one character", stop))
		}
	}
	return decodeOptions{
		Sampling: model.Sampling{Temperature: t, TopK: c.Int("top-k"), TopP: topP}, Seed: c.Uint64("seed"),
		MaxTokens: c.Int("max-tokens"), Rows: c.Int("batch"), BatchTokens: c.Int("batch-tokens"), Stops: stops,
	}, nil
}

// generateWith answers all lines.
func (p *program) generateWith(m *runningModel, options decodeOptions) error {
	generation, err := model.LoadGenerationConfig(m.dir)
	if err != nil {
		return fault.Usage(err)
	}
	options.EOS, options.Tokenizer, options.Context = generation.EOS, m.tokenizer, m.Architecture.MaxPositions
	var valid []bool
	if m.tokenizer != nil {
		valid = m.tokenizer.Valid()
	} else if len(options.Stops) > 0 {
		return fault.Usage(m.noTokenizer("--stop"))
	}
	session, err := m.NewSession(model.SessionOptions{Valid: valid})
	if err != nil {
		return computing(err)
	}
	in, out := newLines(p.in), newAnswers(p.out)
	d := &decoder{decodeOptions: options, session: session}
	err = d.run(func() ([]int32, error) { return nextPrompt(in, m.encoder) }, func(s *sequence) error {
		if err := out.write(s.answer()); err != nil {
			return err
		}
		return out.flush()
	})
	return errors.Join(computing(err), session.Close())
}

func nextPrompt(in *lines, e *encoder) ([]int32, error) {
	var given struct {
		IDs      *[]*int32  `json:"ids"`
		Text     *string    `json:"text"`
		Messages *[]message `json:"messages"`
	}
	if err := in.next(&given); err != nil {
		return nil, err
	}
	var ids []int32
	var err error
	switch {
	case given.IDs != nil && given.Text == nil && given.Messages == nil:
		ids, err = e.ids(*given.IDs)
	case given.IDs == nil && given.Text != nil && given.Messages == nil:
		ids, err = e.text(*given.Text)
	case given.IDs == nil && given.Text == nil && given.Messages != nil:
		ids, err = e.messages(*given.Messages)
	default:
		err = errors.New(`want "ids", "text" or "messages", one of the three`)
	}
	if err == nil && len(ids) == 0 {
		err = errors.New("there is no token to continue")
	}
	return ids, in.fault(err)
}

func (s *sequence) answer() generated {
	g := generated{IDs: append([]int32{}, s.IDs...), LogProbs: orNull(s.LogProbs), Stop: s.Stop}
	if s.text != nil {
		text := s.text.String(s.Stop == stopString)
		g.Text = &text
	}
	return g
}
