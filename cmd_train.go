package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/loop"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// runTrain is the main job: it trains what a config says and goes on where an earlier run of the
// same folder stopped. stop ends it after the step under way, the end of ctx at once.
func runTrain(ctx context.Context, path string, sets []string, stop <-chan struct{}) (err error) {
	c, err := config.Load(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	t, err := loadTexts(c)
	if err != nil {
		return err
	}
	data, err := loadQuestions(c, trainingSelection(c.Data), t)
	if err != nil {
		return err
	}
	if err := checkCache(c, t, data.kept); err != nil {
		return err
	}
	folder, err := rundir.Open(c.Run.Dir)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, folder.Close()) }()
	log, closeLog, err := openLog(folder.LogPath())
	if err != nil {
		return err
	}
	defer closeLog()
	tools, err := loadTools(c, log)
	if err != nil {
		return err
	}
	defer tools.close()
	if err := tools.probe(ctx); err != nil {
		return err
	}
	progress := metrics.NewProgress(os.Stderr)
	defer progress.Close()
	j := &job{config: c, texts: t, data: data, folder: folder, log: log, tools: tools, progress: progress}
	if j.evaluator, err = j.loadEvaluator(ctx); err != nil {
		return err
	}
	if j.evaluator != nil {
		defer j.evaluator.tools.close()
	}
	return j.train(ctx, stop)
}

// openLog appends to the log of a run, one JSON object an event.
func openLog(path string) (log *zap.Logger, closeLog func(), err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, fault.Environment(fmt.Errorf("log %s cannot be written: %w", path, durable.Bare(err)))
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(file), zap.InfoLevel)), func() { _ = file.Close() }, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// job is one training run with everything it needs.
type job struct {
	config   *config.Config
	texts    *texts
	data     *questions
	folder   *rundir.Dir
	log      *zap.Logger
	tools    *toolset
	progress metrics.Progress

	evaluator *evaluator // nil without evaluations

	trainedModel
}

func (j *job) train(ctx context.Context, stop <-chan struct{}) (err error) {
	j.announce()
	source, err := checkpoint.ReadSource(j.config.Model.Path)
	if err != nil {
		return deviceFault(err)
	}
	identity := checkpoint.Identity{
		Model: j.config.Model.Path, ModelHash: source.ModelHash(),
		TokenizerHash: j.texts.tokenizer.Hash(), DataHash: j.data.Hash, Adapters: adaptersOf(j.config.LoRA).String(),
	}
	newest, err := newestCheckpoint(j.config.Run, identity)
	if err != nil {
		return err
	}
	runtime, err := j.loadModels()
	defer func() { err = firstError(err, j.closeModels(runtime)) }()
	if err != nil {
		return err
	}
	run, err := j.newRun(source, identity)
	if err != nil {
		return err
	}
	resumed := int64(0)
	if newest != "" {
		if resumed, err = j.resume(run, newest, identity); err != nil {
			return err
		}
	}
	if run.Metrics, err = metrics.Open(j.folder.MetricsPath(), resumed); err != nil {
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
	reportAtEnd(j.folder.Path(), j.progress.Line, j.log)
	if run.Done == run.Steps { // a run that was stopped has said so
		j.progress.Line(fmt.Sprintf("done: %s holds metrics.jsonl, trajectories and checkpoints", j.folder.Path()))
	}
	return nil
}

// announce prints what the run will do, before anything slow happens.
func (j *job) announce() {
	j.progress.Line(j.config.Describe())
	if text := trainedShare(j.texts.architecture, j.config.LoRA); text != "" {
		j.progress.Line(text)
	}
	j.progress.Line(fmt.Sprintf("%d questions", len(j.data.kept)))
	j.data.announce(j.progress.Line, j.log)
	if j.evaluator != nil {
		j.evaluator.announce()
	}
	first := j.data.kept[0]
	if prompt, err := j.texts.rules.Format.Prompt(first.Text); err == nil {
		j.log.Info("first prompt", zap.String("question", first.ID), zap.String("text", j.texts.tokenizer.Decode(prompt)))
	}
}

// newestCheckpoint finds the checkpoint of a run to go on from, "" for a run from the start, and
// checks before anything is loaded that it belongs to this run. The folder of an evaluation is refused.
func newestCheckpoint(run config.Run, identity checkpoint.Identity) (string, error) {
	if exists(filepath.Join(run.Dir, "results.json")) {
		return "", fault.Usage(fmt.Errorf("run.dir %s is the folder of an evaluation (it has results.json); choose another one for the run", run.Dir))
	}
	path, err := checkpoint.Latest(run.Dir)
	if err != nil || path == "" {
		return "", err
	}
	if run.Resume == "never" {
		return "", fault.Usage(fmt.Errorf("run.dir %s holds a run already and run.resume is \"never\"; choose another folder, or \"auto\" to go on", run.Dir))
	}
	record, err := checkpoint.ReadRecord(path)
	if err != nil {
		return "", err
	}
	return path, record.Check(path, identity)
}

func (j *job) loadModels() (*engine.Runtime, error) {
	m := j.config.Model
	runtime, err := startEngine(m.Device, m.Threads)
	if err != nil {
		return nil, err
	}
	j.progress.Line(fmt.Sprintf("loading %s on %s", m.Path, runtime.Device()))
	c := j.config
	return runtime, deviceFault(j.load(runtime, c.Model.Path, trainedOptions(c.Model, c.LoRA, c.Run.Seed), c.Loss.KLCoef != 0))
}

func (j *job) closeModels(runtime *engine.Runtime) error {
	err := j.close()
	if runtime != nil {
		runtime.Close()
	}
	return err
}

func (j *job) newRun(source *checkpoint.Source, identity checkpoint.Identity) (*trainer.Run, error) {
	c := j.config
	var text bytes.Buffer
	if err := config.Write(&text, c); err != nil {
		return nil, err
	}
	sampler, err := j.data.sampler(c)
	if err != nil {
		return nil, fault.Usage(err)
	}
	options := trainerOptions(c, j.texts, j.tools.Tools, j.actor.Device())
	options.Reward.Grader = j.tools.grader
	steps, err := trainer.New(j.actor, j.reference, options, newWatch(j.progress))
	if err != nil {
		return nil, err
	}
	run := &trainer.Run{
		Trainer: steps, Sampler: sampler,
		Job: loop.Job{
			State: j.actor, Dir: j.folder, Source: source, Identity: identity, Cursor: sampler,
			Config: text.String(), Log: j.log, Line: j.progress.Line,
			Steps: c.Run.Steps, CheckpointEvery: c.Checkpoint.Every, CheckpointKeep: c.Checkpoint.Keep,
		},
		QuestionsPerStep: c.Rollout.QuestionsPerStep, MaxFailedSteps: c.Tools.MaxFailedSteps, CheckpointBestKey: c.Checkpoint.KeepBest,
	}
	if j.evaluator != nil {
		run.EvaluateEvery = c.Eval.Every
		run.Evaluate = func(ctx context.Context, step int) (map[string]float64, error) {
			return j.evaluator.figures(ctx, j.actor, step)
		}
	}
	return run, nil
}

// resume restores the newest checkpoint and lists what has changed in the config since.
func (j *job) resume(run *trainer.Run, path string, identity checkpoint.Identity) (step int64, err error) {
	record, err := checkpoint.Restore(path, j.actor, identity)
	if err != nil {
		return 0, err
	}
	if err := run.Continue(record); err != nil {
		return 0, err
	}
	tellResumed(record, path, j.config.Run.Steps, j.progress.Line, j.log, changesOf(j.config))
	return record.Step, nil
}

// changesOf lists what differs between the settings of a checkpoint and those of now.
func changesOf(now *config.Config) func(before string) ([]config.Difference, error) {
	return func(before string) ([]config.Difference, error) {
		c, err := config.Parse(before)
		if err != nil {
			return nil, err
		}
		return config.Diff(c, now), nil
	}
}

// tellResumed tells where a run goes on and what has changed in its settings.
func tellResumed(record checkpoint.Record, path string, steps int, line func(string), log *zap.Logger, compare func(before string) ([]config.Difference, error)) {
	line(fmt.Sprintf("going on after step %d from %s", record.Step, path))
	changes, err := compare(record.Config)
	if err != nil {
		line(fmt.Sprintf("the config of the checkpoint cannot be read, so changes since are not listed: %v", err))
		return
	}
	for _, change := range changes {
		line("changed since: " + change.String())
		log.Info("config changed", zap.String("key", change.Key), zap.String("before", change.A), zap.String("now", change.B))
	}
	if record.Step >= int64(steps) {
		line(fmt.Sprintf("all %d steps are trained already; more with a higher run.steps, another run in another run.dir", steps))
	}
}

// newWatch shows the stages of a step as progress.
func newWatch(progress metrics.Progress) trainer.Watch {
	var stage metrics.Stage
	shown := 0
	return trainer.Watch{
		Stage: func(name string, total int) (func(int), func()) {
			s := progress.Stage(name, total)
			return s.Add, s.Done
		},
		Rollout: func(p rollout.Progress, _ trainer.Tally) {
			if stage == nil {
				stage, shown = progress.Stage("rollout", p.Total), 0
			}
			stage.Add(p.Ended - shown)
			if shown = p.Ended; p.Ended == p.Total {
				stage.Done()
				stage = nil
			}
		},
	}
}

// rolloutOptions are those of training and evaluation alike.
func rolloutOptions(c *config.Config, t *texts, device string) rollout.Options {
	schedule := rollout.Schedule(c.Rollout.Schedule)
	if c.Rollout.Schedule == "auto" {
		schedule = rollout.Eager
		if device == "cpu" {
			schedule = rollout.Fixed
		}
	}
	return rollout.Options{
		Rules: t.rules, Seed: uint64(c.Run.Seed), Schedule: schedule, BatchTokens: c.Rollout.BatchTokens,
		MaxRows: c.Rollout.MaxRows, CacheTokens: c.Rollout.KVCacheTokens,
		TrajectoryDeadline: c.Rollout.TrajectoryDeadline.Duration(), StepDeadline: c.Rollout.StepDeadline.Duration(),
	}
}

func trainerOptions(c *config.Config, t *texts, tools rollout.Tools, device string) trainer.Options {
	generation := rolloutOptions(c, t, device)
	generation.GroupSize, generation.Sampling = c.Rollout.GroupSize, model.Sampling{Temperature: c.Rollout.Temperature}
	generation.Context = rollout.Context(c.Rollout.Context)
	return trainer.Options{
		Rollout: generation,
		Tools:   tools,
		Reward: trainer.RewardOptions{
			FormatReward: c.Reward.FormatReward, FormatWeight: c.Reward.FormatWeight, MemoryReward: c.Reward.MemoryReward,
			AnswerProb: c.Reward.AnswerProb, Truncated: c.Rollout.Truncated, ContextLength: t.architecture.MaxPositions,
		},
		Advantage: advantage.Options{
			MemoryWeight: c.Advantage.MemoryWeight, Normalize: c.Advantage.Normalize, Single: c.Advantage.Single,
			MinGroup: c.Advantage.MinGroup, OutcomeMinStd: c.Advantage.Outcome.MinStd, MemoryMinStd: c.Advantage.Memory.MinStd,
			MemoryGate: c.Advantage.Memory.Gate, MemoryPool: c.Advantage.Memory.Pool, DropEqualGroups: c.Advantage.DropEqualGroups,
		},
		Scoring: trainer.ScoringOptions{Form: c.Scoring.Form, RolloutOldLogProbs: c.Scoring.OldLogProb == "rollout"},
		Update:  updateOptions(c),
		Decode:  t.tokenizer.Decode,
	}
}

func updateOptions(c *config.Config) trainer.UpdateOptions {
	return trainer.UpdateOptions{
		Loss: model.LossOptions{
			ClipLow: c.Loss.ClipLow, ClipHigh: c.Loss.ClipHigh, DualClip: c.Loss.DualClip,
			KLEstimator: c.Loss.KLEstimator, KLCoef: c.Loss.KLCoef, Temperature: c.Rollout.Temperature,
		},
		Aggregation: c.Loss.Aggregation, Divisor: c.Loss.Divisor,
		Optimizer: model.OptimizerOptions{
			Beta1: c.Optimizer.Betas[0], Beta2: c.Optimizer.Betas[1], Eps: c.Optimizer.Eps,
			WeightDecay: c.Optimizer.WeightDecay, ClipNorm: c.Optimizer.ClipNorm,
		},
		LearningRate: c.LearningRate, PPOEpochs: c.Optimizer.PPOEpochs,
		QuestionsPerMinibatch: c.Optimizer.QuestionsPerMinibatch, MicroBatchTokens: c.Optimizer.MicroBatchTokens,
		MaxNonfinite: c.Optimizer.MaxNonfinite,
	}
}
