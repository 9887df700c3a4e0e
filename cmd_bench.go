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
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

func (p *program) benchCommand() *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "time the stages of a step and measure their memory",
		ArgsUsage: "RUN.toml",
		Args:      true,
		Description: `Runs each stage of a step on made-up tokens: questions and trajectories as [rollout] says, turns and their
tokens as [bench] says. Nothing is read but the model, and nothing is written. Stages are ` + strings.Join(benchStageNames, ", ") + `.
For the rollout, tokens are those sampled; for the other stages, those that go through the model.`,
		Flags: []cli.Flag{
			setFlag(),
			&cli.StringFlag{Name: "stages", Usage: "names of stages, separated by commas", DefaultText: "all"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of a table"},
		},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			stages := benchStageNames
			if given := c.String("stages"); given != "" {
				stages = strings.Split(given, ",")
			}
			return runBench(c.Context, path, c.StringSlice("set"), stages, c.Bool("json"), p.out)
		},
	}
}

// benchReport is what a benchmark measured, and on what.
type benchReport struct {
	Model   string        `json:"model"`
	Device  string        `json:"device"`
	DType   string        `json:"dtype"`
	Threads int           `json:"threads"`
	Shape   benchShape    `json:"shape"`
	Stages  []benchResult `json:"stages"`
}

// benchShape counts what a step consists of.
type benchShape struct {
	Questions        int `json:"questions"`
	GroupSize        int `json:"group_size"`
	PromptTokens     int `json:"prompt_tokens"`
	Turns            int `json:"turns"`
	TurnTokens       int `json:"turn_tokens"`
	ToolTokens       int `json:"tool_tokens"`
	MemoryTokens     int `json:"memory_tokens"`
	AnswerTokens     int `json:"answer_tokens"`
	MicroBatchTokens int `json:"micro_batch_tokens"`
}

// trajectoryTokens is the length of each trajectory: no tool result follows its last turn.
func (s benchShape) trajectoryTokens() int {
	return s.PromptTokens + s.Turns*s.TurnTokens + (s.Turns-1)*s.ToolTokens
}

// benchResult is one stage, or a part of it that is named behind a slash.
type benchResult struct {
	Stage           string    `json:"stage"`
	Tokens          int       `json:"tokens"`
	Seconds         []float64 `json:"seconds"` // one for each repeat
	MedianSeconds   float64   `json:"median_seconds"`
	MinSeconds      float64   `json:"min_seconds"`
	TokensPerSecond float64   `json:"tokens_per_second"` // at the median
	PeakMemoryBytes int64     `json:"peak_memory_bytes"` // everything that the device (on a CPU, the process) holds at a time during the stage
}

// runBench times stages of a step of the run that a config describes and prints the figures to out.
func runBench(ctx context.Context, path string, sets, stages []string, asJSON bool, out io.Writer) (err error) {
	c, err := config.Load(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	if err := checkStages(stages); err != nil {
		return err
	}
	progress := metrics.NewProgress(os.Stderr)
	defer progress.Close()
	b, err := newBench(c, stages, progress)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, b.close()) }()
	report := benchReport{Model: c.Model.Path, Device: b.actor.Device(), DType: b.dtype, Threads: c.Model.Threads, Shape: b.shape}
	if report.Threads == 0 {
		report.Threads = runtime.NumCPU()
	}
	for _, stage := range b.stages() {
		if !selected(stages, stage.name) {
			continue
		}
		results, err := b.measure(ctx, stage, c.Bench.Repeats)
		if err != nil {
			return stageFault(stage.name, err)
		}
		report.Stages = append(report.Stages, results...)
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", " ")
		return encoder.Encode(report)
	}
	return report.print(out)
}

func stageFault(stage string, err error) error {
	err = fmt.Errorf("stage %s: %w", stage, err)
	if errors.Is(err, model.ErrOutOfMemory) {
		return fault.Environment(fmt.Errorf("%w; less optimizer.micro_batch_tokens, or a smaller [bench], need less", err))
	}
	return err
}

func checkStages(stages []string) error {
	for _, name := range stages {
		if !slices.ContainsFunc(benchStageNames, func(known string) bool { return selected([]string{name}, known) }) {
			return fault.Usage(fmt.Errorf("there is no stage %q; stages are %s", name, strings.Join(benchStageNames, ", ")))
		}
	}
	return nil
}

// selected reports whether a list holds a stage's name, or the part of it before a slash.
func selected(list []string, stage string) bool {
	family, _, _ := strings.Cut(stage, "/")
	return slices.Contains(list, stage) || slices.Contains(list, family)
}

func (r *benchReport) print(out io.Writer) error {
	s := r.Shape
	fmt.Fprintf(out, "%s, %s on %s, CPU threads: %d\n", r.Model, r.DType, r.Device, r.Threads)
	fmt.Fprintf(out, "%d questions × %d trajectories of %d tokens: prompt %d, %d turns of %d and results of %d between them\n",
		s.Questions, s.GroupSize, s.trajectoryTokens(), s.PromptTokens, s.Turns, s.TurnTokens, s.ToolTokens)
	fmt.Fprintf(out, "memories of %d tokens, answers of %d, micro-batches of up to %d\n\n", s.MemoryTokens, s.AnswerTokens, s.MicroBatchTokens)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "stage\ttokens\tmedian s\tmin s\ttokens/s\tpeak MiB\t")
	for _, stage := range r.Stages {
		fmt.Fprintf(table, "%s\t%d\t%.3f\t%.3f\t%.0f\t%d\t\n",
			stage.Stage, stage.Tokens, stage.MedianSeconds, stage.MinSeconds, stage.TokensPerSecond, stage.PeakMemoryBytes>>20)
	}
	return table.Flush()
}

// newBench loads the model; the reference only where its stage is timed.
func newBench(c *config.Config, stages []string, progress metrics.Progress) (b *bench, err error) {
	architecture, err := model.LoadArchitecture(c.Model.Path)
	if err != nil {
		return nil, fault.Usage(err)
	}
	b = &bench{config: c, progress: progress, shape: benchShape{
		Questions: c.Rollout.QuestionsPerStep, GroupSize: c.Rollout.GroupSize, PromptTokens: c.Bench.PromptTokens,
		Turns: c.Bench.Turns, TurnTokens: c.Bench.TurnTokens, ToolTokens: c.Bench.ToolTokens, MemoryTokens: c.Bench.MemoryTokens,
		AnswerTokens: c.Bench.AnswerTokens, MicroBatchTokens: c.Optimizer.MicroBatchTokens,
	}}
	if tokens := b.shape.trajectoryTokens() + b.shape.AnswerTokens; tokens > architecture.MaxPositions {
		return nil, fault.Usage(fmt.Errorf("[bench] asks for %d tokens in one sequence, but the context of %s has %d", tokens, c.Model.Path, architecture.MaxPositions))
	}
	runtime, err := startEngine(c.Model.Device, c.Model.Threads)
	if err != nil {
		return nil, err
	}
	b.runtime = runtime
	b.dtype = computeDType(c.Model, runtime.Device())
	b.actor, err = runtime.Load(c.Model.Path, engine.Options{DType: c.Model.DType, Trainable: true, ActivationCheckpointing: c.Model.ActivationCheckpointing})
	if err == nil && selected(stages, stageRefLogProb) {
		b.reference, err = runtime.Load(c.Model.Path, engine.Options{DType: c.Model.DType})
	}
	if err != nil {
		return nil, firstError(deviceFault(err), b.close())
	}
	b.makeTrajectories(architecture.VocabSize)
	return b, nil
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
