package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/bench"
	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

func (p *program) benchCommand() *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "time the stages of a step, count what they compute and measure their memory",
		ArgsUsage: "RUN.toml",
		Args:      true,
		Description: `Runs each stage of a step on made-up tokens: questions and trajectories as [rollout] says, turns and their
tokens as [bench] says. Nothing is read but the model, and nothing is written. Stages are ` + strings.Join(bench.StageNames(), ", ") + `;
a name without its slash means all forms, which run in turns. Tokens are those that go through the model; beside
them stand those of the naive form, in which nothing is shared or kept.`,
		Flags: []cli.Flag{
			setFlag(),
			&cli.StringFlag{Name: "stages", Usage: "names of stages, separated by commas", DefaultText: "all"},
			&cli.StringFlag{Name: "compare", Usage: "show the stages of the same names of another program's JSON `FILE` beside ours"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of a table"},
		},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			if err := emptyFlag(c); err != nil {
				return fault.Usage(err)
			}
			r := benchRequest{config: path, sets: c.StringSlice("set"), stages: bench.StageNames(), compare: c.String("compare"), json: c.Bool("json")}
			if given := c.String("stages"); given != "" {
				r.stages = strings.Split(given, ",")
			}
			return r.run(c.Context, p.out)
		},
	}
}

// emptyFlag refuses --stages "" and --compare "", most likely a variable of the shell that is not set: all
// stages, or no comparison, would be measured for minutes before anyone sees it.
func emptyFlag(c *cli.Context) error {
	wanted := map[string]string{"stages": "names of stages, separated by commas", "compare": "the name of a JSON file"}
	for _, flag := range []string{"stages", "compare"} {
		if c.IsSet(flag) && c.String(flag) == "" {
			return fmt.Errorf("--%s is empty, wanted is %s", flag, wanted[flag])
		}
	}
	return nil
}

// benchRequest is what the command line asks for.
type benchRequest struct {
	config  string
	sets    []string
	stages  []string
	compare string // file of another program's figures; "" is none
	json    bool
}

// run times the stages and prints the figures to out.
func (r *benchRequest) run(ctx context.Context, out io.Writer) (err error) {
	c, err := config.Load(r.config, r.sets)
	if err != nil {
		return fault.Usage(err)
	}
	others, err := r.check()
	if err != nil {
		return fault.Usage(err)
	}
	progress := metrics.NewProgress(os.Stderr)
	defer progress.Close()
	models, err := loadBenched(c, r.config, r.stages)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, models.close()) }()
	report, err := models.measure(ctx, r.stages, progress)
	if err != nil {
		return err
	}
	report.Compare(others)
	if r.json {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", " ")
		return encoder.Encode(report)
	}
	return report.Print(out)
}

// check refuses stages that there are not, and reads the file to compare with.
func (r *benchRequest) check() ([]bench.Other, error) {
	for _, name := range r.stages {
		known := func(stage string) bool { return bench.Selected([]string{name}, stage) }
		if !slices.ContainsFunc(bench.StageNames(), known) {
			return nil, fmt.Errorf("there is no stage %q; stages are %s", name, strings.Join(bench.StageNames(), ", "))
		}
	}
	if r.compare == "" {
		return nil, nil
	}
	others, err := bench.ReadOthers(r.compare)
	if err != nil {
		return nil, err
	}
	return others, bench.CheckOthers(r.compare, others, r.stages)
}

// benched is a run's models, loaded to be timed.
type benched struct {
	config       *config.Config
	architecture model.Architecture
	runtime      *engine.Runtime
	trainedModel
}

func loadBenched(c *config.Config, path string, stages []string) (b *benched, err error) {
	if err := modelPresent(c.Model); err != nil {
		return nil, err
	}
	b = &benched{config: c}
	if b.architecture, err = model.LoadArchitecture(c.Model.Path); err != nil {
		return nil, fault.Usage(err)
	}
	if err := benchShape(c).Fits(b.architecture); err != nil {
		return nil, fault.Usage(fmt.Errorf("%s: %w", path, err))
	}
	if b.runtime, err = startEngine(c.Model.Device, c.Model.Threads); err != nil {
		return nil, err
	}
	o := trainedOptions(c.Model, c.LoRA, c.Run.Seed)
	o.RandomWeights = c.Bench.RandomWeights
	if err := b.load(b.runtime, c.Model.Path, o, bench.NeedsReference(stages, c.Loss.KLCoef)); err != nil {
		return nil, firstError(deviceFault(err), b.close())
	}
	return b, nil
}

func benchShape(c *config.Config) bench.Shape {
	return bench.Shape{
		Questions: c.Rollout.QuestionsPerStep, GroupSize: c.Rollout.GroupSize, PromptTokens: c.Bench.PromptTokens,
		Turns: c.Bench.Turns, TurnTokens: c.Bench.TurnTokens, ToolTokens: c.Bench.ToolTokens, MemoryTokens: c.Bench.MemoryTokens,
		AnswerTokens: c.Bench.AnswerTokens, MicroBatchTokens: c.Optimizer.MicroBatchTokens,
	}
}

func (b *benched) close() error {
	err := b.trainedModel.close()
	b.runtime.Close()
	return err
}

func (b *benched) measure(ctx context.Context, stages []string, progress metrics.Progress) (*bench.Report, error) {
	c := b.config
	options := bench.Options{
		Shape: benchShape(c), Repeats: c.Bench.Repeats, Frozen: c.LoRA.Rank > 0,
		ElementBytes: elementBytes(computeDType(c.Model, b.runtime.Device())),
		// The benchmark has texts, rules and tools of its own.
		Trainer: trainerOptions(c, &texts{architecture: b.architecture}, rollout.Tools{}, b.runtime.Device()),
		Progress: func(stage string) func() {
			shown := progress.Stage(stage, 1)
			return func() { shown.Add(1); shown.Done() }
		},
	}
	step, err := bench.New(b.architecture, b.actor, b.reference, options)
	if err != nil {
		return nil, fault.Usage(err)
	}
	report := &bench.Report{
		Model: c.Model.Path, Device: b.runtime.Device(), DType: computeDType(c.Model, b.runtime.Device()), Threads: c.Model.Threads,
		Schedule: string(options.Trainer.Rollout.Schedule), Scoring: c.Scoring.Form, Shape: options.Shape,
	}
	if report.Threads == 0 {
		report.Threads = runtime.NumCPU()
	}
	before, err := b.matrixRate()
	if err != nil {
		return nil, deviceFault(err)
	}
	if report.Stages, err = step.Measure(ctx, stages); err != nil {
		return nil, stageFault(err)
	}
	after, err := b.matrixRate() // other work may have had the machine before
	if err != nil {
		return nil, deviceFault(err)
	}
	report.MatrixRate = max(before, after)
	report.Sum()
	return report, nil
}

// matrixRate is the better of two products: that of an MLP's projection over many tokens, and a square one.
func (b *benched) matrixRate() (float64, error) {
	rows, square := 1024, 1024
	if b.runtime.Device() != "cpu" {
		rows, square = 8192, 4096
	}
	of := b.architecture
	projection, err := b.runtime.MatrixRate(b.config.Model.DType, rows, of.HiddenSize, of.IntermediateSize)
	if err != nil {
		return 0, err
	}
	whole, err := b.runtime.MatrixRate(b.config.Model.DType, square, square, square)
	return max(projection, whole), err
}

func stageFault(err error) error {
	if errors.Is(err, model.ErrOutOfMemory) {
		return fault.Environment(fmt.Errorf("%w; less optimizer.micro_batch_tokens, or a smaller [bench], need less", err))
	}
	return err
}

// elementBytes is the size of one number of a compute dtype.
func elementBytes(dtype string) int {
	if dtype == "bfloat16" {
		return 2
	}
	return 4
}

// computeDType is the dtype that a config means on a device.
func computeDType(m config.Model, device string) string {
	switch {
	case m.DType != "auto":
		return m.DType
	case device == "cpu":
		return "float32"
	}
	return "bfloat16"
}
