package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// evaluator evaluates models as the [eval] table of a config says.
type evaluator struct {
	config   *config.Config // its [tools] are those of evaluations
	texts    *texts
	data     *questions
	tools    *toolset
	log      *zap.Logger
	progress metrics.Progress
}

// forEvaluation is a config whose [tools] are those of [eval.tools].
func forEvaluation(c *config.Config) *config.Config {
	copied := *c
	copied.Tools = c.Eval.Tools
	return &copied
}

// newEvaluator is that of a run, without tools yet. Its texts are the run's where [eval.tools] does not
// differ.
func newEvaluator(c *config.Config, t *texts) (e *evaluator, err error) {
	e = &evaluator{config: forEvaluation(c), texts: t}
	if !reflect.DeepEqual(e.config.Tools, c.Tools) {
		e.texts, err = loadTexts(e.config)
	}
	return e, err
}

// load reads the questions, and checks that those that are asked fit into the cache.
func (e *evaluator) load() (err error) {
	if e.data, err = loadQuestions(e.config, evaluationSelection(e.config.Data), e.texts); err != nil {
		return err
	}
	return checkCache(e.config, e.texts, e.asked())
}

// asked are the questions of every evaluation.
func (e *evaluator) asked() []dataset.Question {
	if n := e.config.Eval.Questions; n > 0 && n < len(e.data.kept) {
		return e.data.kept[:n]
	}
	return e.data.kept
}

func (e *evaluator) contexts() []rollout.Context {
	var contexts []rollout.Context
	for _, name := range e.config.Eval.Context {
		contexts = append(contexts, rollout.Context(name))
	}
	return contexts
}

// keeper sees each trajectory of an evaluation.
type keeper func(dataset.Question, int, *rollout.Trajectory, reward.TrajectoryGrade) error

// evaluate evaluates in one context; see eval.Run.
func (e *evaluator) evaluate(ctx context.Context, m *engine.Model, of rollout.Context, keep keeper) (*eval.Result, error) {
	c := e.config.Eval
	o := eval.Options{Rollout: rolloutOptions(e.config, e.texts, m.Device()), Keep: keep}
	o.Rollout.Context, o.Rollout.GroupSize = of, c.Samples
	o.FormatReward, o.FormatWeight = e.config.Reward.FormatReward, e.config.Reward.FormatWeight
	o.Grader = e.tools.grader
	o.Rollout.Sampling = model.Sampling{Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP}
	asked := e.asked()
	stage, shown := e.progress.Stage(fmt.Sprintf("evaluation in %s context", of), len(asked)*c.Samples), 0
	defer stage.Done()
	o.Progress = func(ended, _ int) {
		stage.Add(ended - shown)
		shown = ended
	}
	return eval.Run(ctx, m, asked, o, e.tools.Tools)
}

// figures evaluates between two steps of a run. Where every trajectory fails, the figures are no
// numbers and the run goes on.
func (e *evaluator) figures(ctx context.Context, m *engine.Model, step int) (map[string]float64, error) {
	begun, tokens := time.Now(), 0
	values := map[string]float64{}
	for k, of := range e.contexts() {
		result, err := e.evaluate(ctx, m, of, nil)
		var nothing *eval.ErrNothingValid
		if errors.As(err, &nothing) {
			e.log.Warn("evaluation failed", zap.Int("step", step), zap.String("context", string(of)), zap.String("detail", nothing.Detail))
			e.progress.Line(fmt.Sprintf("evaluation after step %d: %v", step, nothing))
		} else if err != nil {
			return nil, err
		}
		tokens += result.ForwardTokens
		for _, figure := range result.Overall.List() {
			values[metrics.Eval(string(of)+"/"+figure.Name)] = figure.Value
			if k == 0 {
				values[metrics.Eval(figure.Name)] = figure.Value
			}
		}
	}
	values[metrics.Time(trainer.StageEvaluation)] = time.Since(begun).Seconds()
	values[metrics.Tokens(trainer.StageEvaluation)] = float64(tokens)
	return values, nil
}

// loadEvaluator reads what the evaluations of a run need; without any, it is nil. Tools are the run's
// where [eval.tools] does not differ.
func (j *job) loadEvaluator(ctx context.Context) (*evaluator, error) {
	if j.config.Eval.Every == 0 {
		return nil, nil
	}
	e, err := newEvaluator(j.config, j.texts)
	if err != nil {
		return nil, err
	}
	e.tools, e.log, e.progress = j.tools, j.log, j.progress
	if !reflect.DeepEqual(e.config.Tools, j.config.Tools) {
		if e.tools, err = loadTools(e.config, j.log); err != nil {
			return nil, err
		}
		if err := e.tools.probe(ctx); err != nil {
			return nil, err
		}
	}
	return e, e.load()
}

// announce tells what evaluations ask, and how.
func (e *evaluator) announce() {
	e.progress.Line("evaluation: " + e.describe())
	e.data.announce(e.progress.Line, e.log)
}

func (e *evaluator) describe() string {
	c := e.config.Eval
	sampling := "greedy"
	if c.Temperature > 0 {
		sampling = fmt.Sprintf("temperature %v, top_p %v, top_k %d, samples %d, seed %d", c.Temperature, c.TopP, c.TopK, c.Samples, e.config.Run.Seed)
	}
	return fmt.Sprintf("%d questions in %s context, %s", len(e.asked()), strings.Join(c.Context, " and "), sampling)
}

// evaluationRecord is a trajectory for people and scripts to read; its score is the exact match.
func evaluationRecord(question dataset.Question, draw int, t *rollout.Trajectory, grade reward.TrajectoryGrade, decode func([]int32) string) *rollout.Record {
	record := rollout.NewRecord(0, question, draw, t, decode)
	if t.Stop.Failed() {
		return record
	}
	score, format := rollout.Number(grade.EM), rollout.Number(0)
	if grade.FormatOK {
		format = 1
	}
	record.Score = &score
	if grade.Graded != nil {
		record.Score = (*rollout.Number)(grade.Graded)
	}
	record.Rewards = map[string]rollout.Number{"em": score, "f1": rollout.Number(grade.F1), "format": format}
	return record
}

// evaluationSettings are the settings that answers depend on, by their keys.
func evaluationSettings(c *config.Config, systemPrompt string) map[string]any {
	r, e, search := c.Rollout, c.Eval, c.Tools.Search
	settings := map[string]any{
		"run.seed": c.Run.Seed, "model.dtype": c.Model.DType, "model.device": c.Model.Device,
		"eval.questions": e.Questions, "eval.temperature": e.Temperature, "eval.top_p": e.TopP, "eval.top_k": e.TopK, "eval.samples": e.Samples,
		"rollout.format": r.Format, "rollout.prefill": r.Prefill, "rollout.system_prompt": systemPrompt,
		"rollout.max_turns": r.MaxTurns, "rollout.max_turn_tokens": r.MaxTurnTokens, "rollout.max_response_tokens": r.MaxResponseTokens,
		"rollout.tool_result_tokens": r.ToolResultTokens, "rollout.memory_tokens": r.MemoryTokens, "rollout.context_length": r.ContextLength,
		"rollout.on_no_action": r.OnNoAction, "eval.tools.enabled": c.Tools.Enabled, "eval.tools.on_tool_failure": c.Tools.OnToolFailure,
	}
	for _, tool := range c.Tools.Enabled {
		switch tool {
		case "search":
			settings["eval.tools.search.backend"], settings["eval.tools.search.topk"] = search.Backend, search.TopK
			settings["eval.tools.search.corpus"], settings["eval.tools.search.url"] = search.Corpus, search.URL
		case "access":
			settings["eval.tools.access.via"], settings["eval.tools.access.url"] = c.Tools.Access.Via, c.Tools.Access.URL
			settings["eval.tools.access.folder"] = c.Tools.Access.Folder
		}
	}
	if len(c.Reward.Command) > 0 {
		settings["reward.command"], settings["reward.format_reward"] = c.Reward.Command, c.Reward.FormatReward
	}
	for _, tool := range c.Tools.Custom {
		settings["eval.tools.custom."+tool.TagName()] = tool.URL
	}
	return settings
}
