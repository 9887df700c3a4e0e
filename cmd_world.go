package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/world"
)

func (p *program) worldCommand() *cli.Command {
	return &cli.Command{
		Name:      "world",
		Usage:     "make up an encyclopedia with its questions, demonstrations and small model",
		ArgsUsage: "WORLD.toml",
		Args:      true,
		Description: `Writes the folder world.dir: ` + world.CorpusFile + `, ` + world.TrainFile + ` and ` + world.EvalFile + `, which asks about entities that
training never does; ` + world.DemonstrationsFile + ` and ` + world.EvalDemonstrationsFile + `, from worlds with other facts; and the HuggingFace folder
` + world.ModelFolder + `. The same settings give the same bytes. A world that is there already is replaced; no other folder is.`,
		Flags: []cli.Flag{setFlag()},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			return p.makeWorld(path, c.StringSlice("set"))
		},
	}
}

func (p *program) makeWorld(path string, sets []string) error {
	w, err := config.LoadWorld(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	line := func(text string) { fmt.Fprintln(p.errs, text) }
	if err := world.Write(w.World.Dir, worldOptions(w), line); err != nil {
		return err
	}
	fmt.Fprintln(p.out, w.World.Dir)
	return nil
}

// checkWorld prints what the world command would make.
func checkWorld(path string, sets []string, out io.Writer) error {
	w, err := config.LoadWorld(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	f := &findings{out: out}
	f.line("== settings ==")
	f.problem(config.WriteWorld(out, w))
	f.heading("files of " + w.World.Dir)
	f.problem(world.Check(w.World.Dir, worldOptions(w), func(text string) { f.line("%s", text) }))
	return f.verdict()
}

func worldOptions(w *config.World) world.Options {
	size, questions, demonstrations := w.World, w.Questions, w.Demonstrations
	return world.Options{
		Seed: uint64(size.Seed), HeldOut: size.HeldOut,
		People: size.People, Towns: size.Towns, Countries: size.Countries, Companies: size.Companies, Books: size.Books,
		Questions: world.QuestionOptions{
			Train: questions.Train, Eval: questions.Eval, Mix: questions.Mix,
			MaxTurns: questions.MaxTurns, SystemPrompt: questions.SystemPrompt,
		},
		Demonstrations: world.DemonstrationOptions{
			Worlds: demonstrations.Worlds, Eval: demonstrations.Eval,
			Clean: demonstrations.Clean, Forgetful: demonstrations.Forgetful, Flawed: demonstrations.Flawed,
			LimitedShare: demonstrations.LimitedShare, AnswerShare: demonstrations.AnswerShare,
			ForgetfulShare: demonstrations.ForgetfulShare, MemoryDrop: demonstrations.MemoryDrop,
			WrongQuery: demonstrations.WrongQuery, WrongValue: demonstrations.WrongValue,
		},
		Model: world.ModelOptions{
			Hidden: w.Model.Hidden, Layers: w.Model.Layers, Heads: w.Model.Heads, KVHeads: w.Model.KVHeads,
			Intermediate: w.Model.Intermediate, RopeTheta: w.Model.RopeTheta, MaxPositions: w.Model.MaxPositions,
			CopyingStart: w.Model.CopyingStart,
		},
	}
}
