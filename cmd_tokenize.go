package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/internal/jsonl"
	"github.com/mempo-train/mempo-train/model/tokenizer"
)

func (p *program) tokenizeCommand() *cli.Command {
	return &cli.Command{
		Name:  "tokenize",
		Usage: "turn text or conversations into token ids",
		Description: `Reads lines {"text":"…"} (plain text, control tokens in it stay text) or {"messages":[{"role":"…",
"content":"…"},…],"add_generation_prompt":true} (by the model's chat template; contents are plain text but
for those of system messages; without the key no generation prompt is added) and writes
{"ids":[…],"text":"…"} for each, text being the ids decoded again. The folder needs tokenizer.json and, for
messages, a chat template; no weights.`,
		Flags:  []cli.Flag{folderFlag()},
		Action: p.tokenize,
	}
}

// tokenized is the answer to one line.
type tokenized struct {
	IDs  []int32 `json:"ids"`
	Text string  `json:"text"`
}

func (p *program) tokenize(c *cli.Context) error {
	dir, err := folder(c)
	if err != nil {
		return err
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return fault.Usage(err)
	}
	e := &encoder{dir: dir, tokenizer: tok}
	return p.badInput(jsonl.Transform(p.in, p.out, func(line []byte) (any, error) {
		ids, err := e.tokenize(line)
		if err != nil {
			return nil, err
		}
		return tokenized{IDs: append([]int32{}, ids...), Text: tok.Decode(ids)}, nil
	}))
}

func (e *encoder) tokenize(line []byte) ([]int32, error) {
	var given struct {
		Text                *string    `json:"text"`
		Messages            *[]message `json:"messages"`
		AddGenerationPrompt *bool      `json:"add_generation_prompt"`
	}
	if err := jsonl.Decode(line, &given); err != nil {
		return nil, err
	}
	switch {
	case (given.Text == nil) == (given.Messages == nil):
		return nil, errors.New(`want "text" or "messages", one of the two`)
	case given.Text == nil:
		return e.render(*given.Messages, given.AddGenerationPrompt != nil && *given.AddGenerationPrompt)
	case given.AddGenerationPrompt != nil:
		return nil, errors.New(`"add_generation_prompt" belongs to "messages", not to "text"`)
	}
	return e.tokenizer.EncodePlain(*given.Text), nil
}
