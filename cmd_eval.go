package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

func (p *program) evalCommand() *cli.Command {
	return &cli.Command{
		Name:      "eval",
		Usage:     "measure how well a model answers a set of questions; never changes the model",
		ArgsUsage: "EVAL.toml",
		Args:      true,
		Description: `Asks each question of data.eval once, or eval.samples times, in the contexts of eval.context, and writes
results.json and the trajectories into run.dir. Prints a table: exact match, F1, share that keeps the format,
turns, tool calls, tokens; of all questions, and by source, number of hops and number of objectives. The file has
the tables of a run's, of which those that only training uses may be missing.`,
		Flags: []cli.Flag{
			setFlag(),
			&cli.StringFlag{Name: "compare", Usage: "results.json of an earlier evaluation on the same questions: print before and after"},
		},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			return underSignals(c.Context, p.errs, endOfEvaluation, func(ctx context.Context, stop <-chan struct{}) error {
				return runEval(ctx, path, c.StringSlice("set"), c.String("compare"), p.out, stop)
			})
		},
	}
}

// runEval evaluates the model that a config names and prints the figures to out. earlier is a file of
// results to compare with, "" for none. The end of ctx ends the evaluation, and so does stop.
func runEval(ctx context.Context, path string, sets []string, earlier string, out io.Writer, stop <-chan struct{}) (err error) {
	c, err := config.LoadEvaluation(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	e := &evaluation{evaluator: evaluator{config: forEvaluation(c)}, out: out}
	if err := e.read(earlier); err != nil {
		return err
	}
	if e.folder, err = openEvaluationFolder(c); err != nil {
		return err
	}
	defer func() { err = firstError(err, e.folder.Close()) }()
	log, closeLog, err := openLog(e.folder.LogPath())
	if err != nil {
		return err
	}
	defer closeLog()
	e.log, e.progress = log, metrics.NewProgress(os.Stderr)
	defer e.progress.Close()
	if e.tools, err = loadTools(e.config, log); err != nil {
		return err
	}
	defer e.tools.close()
	if err := e.tools.probe(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-stop:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	err = e.run(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errInterrupted) {
		return fmt.Errorf("%w; %s", errInterrupted, endOfEvaluation.left)
	}
	return err
}

// openEvaluationFolder locks the folder of an evaluation and writes its config. That of a training
// run, whose files would be replaced, is refused.
func openEvaluationFolder(c *config.Config) (*rundir.Dir, error) {
	if err := refuseRunFolder(c.Run.Dir); err != nil {
		return nil, err
	}
	folder, err := rundir.Open(c.Run.Dir)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := errors.Join(config.Write(&text, c), folder.WriteConfig(text.String())); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

func refuseRunFolder(dir string) error {
	for _, name := range []string{"metrics.jsonl", "checkpoints"} {
		if exists(filepath.Join(dir, name)) {
			return fault.Usage(fmt.Errorf("run.dir %s is the folder of a training run (it has %s); choose another one for the evaluation", dir, name))
		}
	}
	return nil
}

// evaluation is an evaluation of its own, with everything it needs.
type evaluation struct {
	evaluator
	folder *rundir.Dir
	before *eval.Results // to compare with; nil for none
	out    io.Writer
}

// read reads texts, questions and earlier results.
func (e *evaluation) read(earlier string) (err error) {
	if e.texts, err = loadTexts(e.config); err != nil {
		return err
	}
	if err = e.load(); err != nil {
		return err
	}
	if earlier == "" {
		return nil
	}
	if e.before, err = eval.Read(earlier); err != nil {
		return err
	}
	return e.before.Comparable(earlier, e.describeData(), e.contexts())
}

func (e *evaluation) describeData() eval.Data {
	asked := e.asked()
	return eval.Data{
		Files: e.data.files(), Questions: len(asked), Hash: dataset.Hash(asked), Dropped: append([]string{}, e.data.dropped...),
	}
}

// run evaluates in every context and writes the results.
func (e *evaluation) run(ctx context.Context) (err error) {
	e.announce()
	m := e.config.Model
	results := &eval.Results{
		Model: eval.Model{Path: m.Path, TokenizerHash: e.texts.tokenizer.Hash()}, Data: e.describeData(), Settings: evaluationSettings(e.config, e.texts.systemPrompt),
	}
	if results.Model.WeightsHash, err = weights.Hash(m.Path); err != nil {
		return fault.Usage(err)
	}
	runtime, err := startEngine(m.Device, m.Threads)
	if err != nil {
		return err
	}
	defer runtime.Close()
	e.progress.Line(fmt.Sprintf("loading %s on %s", m.Path, runtime.Device()))
	policy, err := runtime.Load(m.Path, engine.Options{DType: m.DType})
	if err != nil {
		return deviceFault(err)
	}
	defer func() { err = firstError(err, policy.Close()) }()
	if results.Contexts, err = e.inContexts(ctx, policy, e.contexts()); err != nil {
		return evaluationFault(err)
	}
	results.Finished = time.Now().UTC()
	return e.conclude(results)
}

// evaluationFault marks what the machine or a service lacks.
func evaluationFault(err error) error {
	var nothing *eval.ErrNothingValid
	if errors.As(err, &nothing) || errors.Is(err, model.ErrOutOfMemory) {
		return fault.Environment(err)
	}
	return err
}

// inContexts evaluates in each of the contexts and writes their trajectories as they come. The files
// take the place of those of an earlier evaluation together, when the last context is through: one
// that is broken off leaves them as they were, beside the results that belong to them.
func (e *evaluation) inContexts(ctx context.Context, policy *engine.Model, contexts []rollout.Context) (results []*eval.Result, err error) {
	if len(contexts) == 0 {
		return nil, nil
	}
	var failed error
	err = e.folder.WriteEvaluation(string(contexts[0]), func(write func(any) error) error {
		var result *eval.Result
		result, failed = e.evaluate(ctx, policy, contexts[0], func(question dataset.Question, draw int, t *rollout.Trajectory, grade reward.TrajectoryGrade) error {
			return write(evaluationRecord(question, draw, t, grade, e.texts.tokenizer.Decode))
		})
		if failed != nil {
			return failed
		}
		var rest []*eval.Result
		rest, failed = e.inContexts(ctx, policy, contexts[1:])
		results = append([]*eval.Result{result}, rest...)
		return failed
	})
	return results, firstError(failed, err)
}

// conclude writes results.json and prints the tables.
func (e *evaluation) conclude(results *eval.Results) error {
	path := filepath.Join(e.folder.Path(), "results.json")
	if err := results.Write(path); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%s: %s\n\n", results.Model.Path, e.describe())
	if err := results.WriteTable(e.out); err != nil {
		return err
	}
	if e.before != nil {
		fmt.Fprintf(e.out, "\ncompared with %s (weights %s)\n", e.before.Model.Path, e.before.Model.WeightsHash)
		if err := results.WriteComparison(e.out, e.before); err != nil {
			return err
		}
	}
	for _, result := range results.Contexts {
		if result.Overall.Failed > 0 {
			e.progress.Line(fmt.Sprintf("%d of %d trajectories in %s context failed and are in no mean; %s says why",
				result.Overall.Failed, result.Overall.Trajectories, result.Context, path))
		}
	}
	e.progress.Line(fmt.Sprintf("done: %s has the figures and each answer, %s the trajectories", path, filepath.Dir(e.folder.EvaluationPath(""))))
	return nil
}
