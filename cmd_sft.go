package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/loop"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
	"github.com/mempo-train/mempo-train/trainer/rundir"
	"github.com/mempo-train/mempo-train/trainer/sft"
)

func (p *program) sftCommand() *cli.Command {
	return &cli.Command{
		Name:      "sft",
		Usage:     "train a model on demonstrations and write a model folder",
		ArgsUsage: "SFT.toml",
		Args:      true,
		Description: `Learns what the assistant writes in demonstrations, {"messages": [{"role", "content"}, …]} a line, in the
tokens that a rollout of the same texts has, and leaves the HuggingFace folder RUNDIR/model. A message of the
assistant with "weight": 0 is context only, and so is its "prefix". A run that was stopped goes on from its newest
checkpoint; SIGINT finishes the step.`,
		Flags: []cli.Flag{setFlag()},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			return underSignals(c.Context, p.errs, endOfRun, func(ctx context.Context, stop <-chan struct{}) error {
				return runSFT(ctx, path, c.StringSlice("set"), stop)
			})
		},
	}
}

// runSFT trains what a config says and goes on where an earlier run of the same folder stopped.
// stop ends it after the step under way, the end of ctx at once.
func runSFT(ctx context.Context, path string, sets []string, stop <-chan struct{}) (err error) {
	c, err := config.LoadSFT(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	j := &sftJob{config: c}
	if err := j.loadData(); err != nil {
		return err
	}
	if j.folder, err = rundir.Open(c.Run.Dir); err != nil {
		return err
	}
	defer func() { err = firstError(err, j.folder.Close()) }()
	log, closeLog, err := openLog(j.folder.LogPath())
	if err != nil {
		return err
	}
	defer closeLog()
	j.log, j.progress = log, metrics.NewProgress(os.Stderr)
	defer j.progress.Close()
	return j.train(ctx, stop)
}

// sftJob is one supervised start with everything it needs.
type sftJob struct {
	config   *config.SFT
	school   *school
	lessons  *lessons
	heldOut  *lessons // nil without held-out demonstrations
	folder   *rundir.Dir
	log      *zap.Logger
	progress metrics.Progress
}

// ownModel refuses a run that would write its model over the one that it starts from.
func (j *sftJob) ownModel() error {
	target := filepath.Join(j.config.Run.Dir, "model")
	before, err := os.Stat(j.config.Model.Path)
	if err != nil {
		return nil // reading the model tells more
	}
	if after, err := os.Stat(target); err == nil && os.SameFile(before, after) {
		return fault.Usage(fmt.Errorf("model.path is %s, where the model of this run would be written over it; choose another run.dir than %s",
			j.config.Model.Path, j.config.Run.Dir))
	}
	return nil
}

func (j *sftJob) loadData() (err error) {
	data := j.config.Data
	if err := j.ownModel(); err != nil {
		return err
	}
	if j.school, err = loadSchool(j.config); err != nil {
		return err
	}
	if j.lessons, err = j.school.loadLessons(data.Train, data); err != nil {
		return err
	}
	if len(data.Eval) > 0 {
		j.heldOut, err = j.school.loadLessons(data.Eval, data)
	}
	return err
}

func (j *sftJob) identity(source *checkpoint.Source) checkpoint.Identity {
	return checkpoint.Identity{
		Model: j.config.Model.Path, ModelHash: source.ModelHash(),
		TokenizerHash: j.school.tokenizer.Hash(), DataHash: j.lessons.hash, Adapters: adaptersOf(j.config.LoRA).String(),
	}
}

func (j *sftJob) train(ctx context.Context, stop <-chan struct{}) (err error) {
	j.announce()
	m := j.config.Model
	source, err := checkpoint.ReadSource(m.Path)
	if err != nil {
		return deviceFault(err)
	}
	newest, err := newestCheckpoint(j.config.Run, j.identity(source))
	if err != nil {
		return err
	}
	device, err := startEngine(m.Device, m.Threads)
	if err != nil {
		return err
	}
	defer device.Close()
	j.progress.Line(fmt.Sprintf("loading %s on %s", m.Path, device.Device()))
	learner, err := device.Load(m.Path, trainedOptions(m, j.config.LoRA, j.config.Run.Seed))
	if err != nil {
		return deviceFault(err)
	}
	defer func() { err = firstError(err, learner.Close()) }()
	run, err := j.newRun(learner, source)
	if err != nil {
		return err
	}
	if newest != "" {
		if err := j.resume(run, newest); err != nil {
			return err
		}
	}
	if run.Metrics, err = metrics.Open(j.folder.MetricsPath(), int64(run.Done)); err != nil {
		return err
	}
	defer func() { err = firstError(err, run.Metrics.Close()) }()
	if err := j.folder.WriteConfig(run.Config); err != nil {
		return err
	}
	if err := run.Loop(ctx, stop); err != nil {
		j.log.Error("run ended", zap.Error(err))
		return err
	}
	return j.finish(run)
}

// finish writes the model folder, if all steps are trained.
func (j *sftJob) finish(run *sft.Run) error {
	if run.Done < run.Steps {
		return nil
	}
	folder := filepath.Join(j.folder.Path(), "model")
	if err := checkpoint.SaveModel(folder, run.Source, run.State); err != nil {
		return err
	}
	j.progress.Line("done: the model is " + folder)
	return nil
}

// announce prints what the run will do, before anything slow happens.
func (j *sftJob) announce() {
	j.progress.Line("training: " + j.lessons.summary())
	sets := []*lessons{j.lessons}
	if j.heldOut != nil {
		j.progress.Line("held out: " + j.heldOut.summary())
		sets = append(sets, j.heldOut)
	}
	for _, set := range sets {
		if len(set.dropped) > 0 {
			j.progress.Line(set.overLength() + "; dropped")
			j.log.Warn("over-long demonstrations dropped", zap.Strings("demonstrations", set.dropped))
		}
	}
	j.progress.Line(j.passes())
	if text := trainedShare(j.school.architecture, j.config.LoRA); text != "" {
		j.progress.Line(text)
	}
	j.log.Info("first demonstration", zap.String("text", j.school.tokenizer.Decode(j.lessons.kept[0].IDs)))
}

// passes tells how often the demonstrations are gone through.
func (j *sftJob) passes() string {
	steps, each := j.config.Run.Steps, j.config.SFT.DemonstrationsPerStep
	return fmt.Sprintf("%d steps of %d demonstrations: %.1f passes", steps, each, float64(steps*each)/float64(len(j.lessons.kept)))
}

func (j *sftJob) newRun(learner *engine.Model, source *checkpoint.Source) (*sft.Run, error) {
	c := j.config
	var text bytes.Buffer
	if err := config.WriteSFT(&text, c); err != nil {
		return nil, err
	}
	order, err := dataset.NewOrder("demonstration order", len(j.lessons.kept), uint64(c.Run.Seed), c.Data.Shuffle)
	if err != nil {
		return nil, fault.Usage(err)
	}
	o := c.Optimizer
	run := &sft.Run{
		Trainer: sft.Trainer{
			Learner: learner,
			Options: sft.Options{
				Optimizer: model.OptimizerOptions{
					Beta1: o.Betas[0], Beta2: o.Betas[1], Eps: o.Eps, WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm,
				},
				LearningRate: c.LearningRate, Micro: optim.MicroBatches{Tokens: o.MicroBatchTokens}, MaxNonfinite: o.MaxNonfinite,
			},
		},
		Job: loop.Job{
			State: learner, Dir: j.folder, Source: source, Identity: j.identity(source), Cursor: order,
			Config: text.String(), Log: j.log, Line: j.progress.Line,
			Steps: c.Run.Steps, CheckpointEvery: c.Checkpoint.Every, CheckpointKeep: c.Checkpoint.Keep,
		},
		Order: order, Lessons: j.lessons.kept, LessonsPerStep: c.SFT.DemonstrationsPerStep, EvaluateEvery: c.SFT.EvalEvery,
		Stage: j.progress.Stage,
	}
	if j.heldOut != nil {
		run.HeldOut = j.heldOut.kept
	}
	return run, nil
}

// resume restores a checkpoint and lists what has changed in the config since.
func (j *sftJob) resume(run *sft.Run, path string) error {
	record, err := checkpoint.Restore(path, run.State, run.Identity)
	if err != nil {
		return err
	}
	if err := run.Continue(record); err != nil {
		return err
	}
	tellResumed(record, path, run.Steps, j.progress.Line, j.log, j.changes)
	return nil
}

// changes lists what differs from the settings of a checkpoint.
func (j *sftJob) changes(before string) ([]config.Difference, error) {
	c, err := config.ParseSFT(before)
	if err != nil {
		return nil, err
	}
	return config.DiffSFT(c, j.config), nil
}
