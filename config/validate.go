package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// rules collects the violations of a config's rules. Each names the key, what was found and what
// is allowed.
type rules struct{ violations []error }

func (r *rules) violated(key string, found any, allowed string) {
	r.violations = append(r.violations, fmt.Errorf("%s is %v, allowed: %s", key, found, allowed))
}

func (r *rules) oneOf(key, found string, allowed ...string) {
	if !slices.Contains(allowed, found) {
		r.violated(key, quoted(found), alternatives(allowed))
	}
}

type number interface{ ~int | ~int64 | ~float64 }

// between refuses NaN, too.
func between[T number](r *rules, key string, found, low, high T) {
	if inside := found >= low && found <= high; !inside {
		r.violated(key, found, fmt.Sprintf("%v to %v", low, high))
	}
}

// largest is the bound of every number: the update is float32 arithmetic, in which more than ten
// times this overflows. It leaves out NaN and infinities as well.
const largest = 1e37

func atLeast[T number](r *rules, key string, found, least T) {
	if float64(found) > largest {
		r.violated(key, found, fmt.Sprintf("%v to %v", least, largest))
	} else if inside := found >= least; !inside {
		r.violated(key, found, fmt.Sprintf("%v or more", least))
	}
}

func above[T number](r *rules, key string, found, limit T) {
	if float64(found) > largest {
		r.violated(key, found, fmt.Sprintf("above %v, up to %v", limit, largest))
	} else if inside := found > limit; !inside {
		r.violated(key, found, fmt.Sprintf("above %v", limit))
	}
}

// mostTrajectories bounds the factors of a step's size, so that a slip of a digit is found before memory is.
const mostTrajectories = 100_000

// leastTemperature above 0: logits are divided by it.
const leastTemperature = 1e-6

// divisor refuses numbers so near to 0 that dividing by them overflows.
func divisor(r *rules, key string, found, least float64) {
	if found > 0 && found < least {
		r.violated(key, found, fmt.Sprintf("%v or more", least))
		return
	}
	above(r, key, found, 0)
}

func (r *rules) given(key, found, what string) {
	if found == "" {
		r.violations = append(r.violations, fmt.Errorf("%s is not set, want %s", key, what))
	}
}

func (r *rules) files(key string, found List, what string) {
	if len(found) == 0 || slices.Contains(found, "") {
		r.violations = append(r.violations, fmt.Errorf("%s is not set, want %s", key, what))
	}
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }

func alternatives(texts []string) string {
	list := make([]string, len(texts))
	for k, text := range texts {
		list[k] = quoted(text)
	}
	if len(list) == 1 {
		return list[0]
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// Validate checks every value against its rule and reports all violations, one a line.
func (c *Config) Validate() error {
	var r rules
	c.checkRun(&r)
	c.checkRollout(&r)
	c.Tools.check(&r, "tools")
	c.checkReward(&r)
	c.checkAdvantage(&r)
	c.Loss.check(&r)
	c.checkOptimizer(&r)
	c.checkEval(&r)
	if !reflect.DeepEqual(c.Eval.Tools, c.Tools) { // what is wrong in both is said once
		c.Eval.Tools.check(&r, "eval.tools")
	}
	c.checkBench(&r)
	return errors.Join(r.violations...)
}

// ValidateEvaluation checks what an evaluation uses, as Validate does for a run.
func (c *Config) ValidateEvaluation() error {
	var r rules
	c.Run.checkPlace(&r)
	c.Model.check(&r, "the HuggingFace folder of the model to evaluate")
	if len(c.Data.EvalMix) == 0 {
		r.files("data.eval", c.Data.Eval, "one or more question files")
	}
	c.Data.check(&r)
	c.checkRollout(&r)
	c.checkReward(&r)
	c.checkEval(&r)
	tools := "eval.tools"
	if reflect.DeepEqual(c.Eval.Tools, c.Tools) {
		tools = "tools"
	}
	c.Eval.Tools.check(&r, tools)
	return errors.Join(r.violations...)
}

var device = regexp.MustCompile(`^(auto|cpu|cuda(:[0-9]+)?)$`)

func (c *Config) checkRun(r *rules) {
	c.Run.check(r)
	c.Model.check(r, toTrain)
	c.LoRA.check(r)
	if len(c.Data.Mix) == 0 {
		r.files("data.train", c.Data.Train, "one or more question files")
	}
	c.Data.check(r)
	r.oneOf("scoring.form", c.Scoring.Form, "naive", "shared", "cached")
	r.oneOf("scoring.old_log_prob", c.Scoring.OldLogProb, "recompute", "rollout")
	c.Checkpoint.check(r)
}

// toTrain is what model.path is, where a model is trained.
const toTrain = "the HuggingFace folder of the model to train"

func (u Run) check(r *rules) {
	u.checkPlace(r)
	atLeast(r, "run.steps", u.Steps, 1)
	r.oneOf("run.resume", u.Resume, "auto", "never")
}

func (u Run) checkPlace(r *rules) {
	r.given("run.dir", u.Dir, "the folder that the run writes to")
	atLeast(r, "run.seed", u.Seed, 0)
}

func (r *rules) device(key, found string) {
	if !device.MatchString(found) {
		r.violated(key, quoted(found), `"auto", "cpu", "cuda" or "cuda:N"`)
	}
}

func (m Model) check(r *rules, path string) {
	r.given("model.path", m.Path, path)
	r.oneOf("model.dtype", m.DType, "auto", "float32", "bfloat16")
	r.oneOf("model.activation_checkpointing", m.ActivationCheckpointing, "none", "mlp", "layer")
	r.oneOf("model.optimizer_offload", m.OptimizerOffload, "none", "cpu")
	r.device("model.device", m.Device)
	between(r, "model.threads", m.Threads, 0, 1024)
}

func (c Checkpoint) check(r *rules) {
	atLeast(r, "checkpoint.every", c.Every, 1)
	atLeast(r, "checkpoint.keep", c.Keep, 1)
	if best := c.KeepBest; best != "" && !strings.HasPrefix(best, "eval/") && !strings.HasPrefix(best, "score/") {
		r.violated("checkpoint.keep_best", quoted(best), `a metric of eval/ or score/, or "" for none`)
	}
}

func (c *Config) checkRollout(r *rules) {
	o := c.Rollout
	between(r, "rollout.questions_per_step", o.QuestionsPerStep, 1, mostTrajectories)
	between(r, "rollout.group_size", o.GroupSize, 1, mostTrajectories)
	divisor(r, "rollout.temperature", o.Temperature, leastTemperature)
	if o.TopP != 1 {
		r.violated("rollout.top_p", o.TopP, "1, as training samples from the whole distribution (eval.top_p is free)")
	}
	if o.TopK != 0 {
		r.violated("rollout.top_k", o.TopK, "0, as training samples from the whole distribution (eval.top_k is free)")
	}
	r.oneOf("rollout.context", o.Context, "full", "limited")
	r.oneOf("rollout.format", o.Format, "chat", "raw")
	r.oneOf("rollout.schedule", o.Schedule, "auto", "fixed", "eager")
	atLeast(r, "rollout.max_turns", o.MaxTurns, 1)
	atLeast(r, "rollout.max_turn_tokens", o.MaxTurnTokens, 1)
	atLeast(r, "rollout.max_response_tokens", o.MaxResponseTokens, 1)
	atLeast(r, "rollout.tool_result_tokens", o.ToolResultTokens, 1)
	atLeast(r, "rollout.memory_tokens", o.MemoryTokens, 0)
	atLeast(r, "rollout.context_length", o.ContextLength, 0)
	r.oneOf("rollout.on_no_action", o.OnNoAction, "end", "correct")
	r.oneOf("rollout.truncated", o.Truncated, "score", "zero", "mask")
	atLeast(r, "rollout.batch_tokens", o.BatchTokens, 1)
	atLeast(r, "rollout.max_rows", o.MaxRows, 0)
	least := o.MaxResponseTokens
	if o.ContextLength > 0 {
		least = min(least, o.ContextLength)
	}
	if tokens := o.KVCacheTokens; tokens < 0 || tokens > 0 && tokens <= least {
		r.violated("rollout.kv_cache_tokens", tokens, fmt.Sprintf("0 for no bound, or room for a prompt and a whole trajectory: more than %d", least))
	}
	above(r, "rollout.trajectory_deadline_s", o.TrajectoryDeadline, 0)
	above(r, "rollout.step_deadline_s", o.StepDeadline, 0)
}

// check holds for [tools] and, as prefix says, for [eval.tools].
func (t Tools) check(r *rules, prefix string) {
	for k, tool := range t.Enabled {
		r.oneOf(prefix+".enabled", tool, "search", "access")
		if slices.Contains(t.Enabled[:k], tool) {
			r.violated(prefix+".enabled", fmt.Sprintf("%q twice", tool), "each tool once")
		}
	}
	r.oneOf(prefix+".on_tool_failure", t.OnToolFailure, "exclude", "tell_model")
	atLeast(r, prefix+".max_failed_steps", t.MaxFailedSteps, 1)
	between(r, prefix+".cache_mib", t.CacheMiB, 0, 1<<20)
	t.Search.check(r, prefix+".search", slices.Contains(t.Enabled, "search"))
	t.Access.check(r, prefix+".access", slices.Contains(t.Enabled, "access"))
	checkCustom(r, prefix+".custom", t.Custom)
}

func (s Search) check(r *rules, prefix string, enabled bool) {
	atLeast(r, prefix+".hedge_after_s", s.HedgeAfter, 0)
	r.oneOf(prefix+".backend", s.Backend, "bm25", "http", "index")
	r.oneOf(prefix+".method", s.Method, "auto", "bm25", "dense", "hybrid")
	atLeast(r, prefix+".topk", s.TopK, 1)
	above(r, prefix+".timeout_s", s.Timeout, 0)
	atLeast(r, prefix+".tries", s.Tries, 1)
	atLeast(r, prefix+".concurrency", s.Concurrency, 1)
	if !enabled {
		return
	}
	switch s.Backend {
	case "bm25":
		r.given(prefix+".corpus", s.Corpus, `the JSONL file of passages that backend "bm25" searches`)
	case "http":
		r.addresses(prefix+".url", s.URL, `the address of the service that backend "http" asks`)
	case "index":
		r.given(prefix+".index", s.Index, `the folder of the index that backend "index" searches`)
	}
}

func (a Access) check(r *rules, prefix string, enabled bool) {
	r.oneOf(prefix+".via", a.Via, "service", "direct", "folder")
	above(r, prefix+".timeout_s", a.Timeout, 0)
	atLeast(r, prefix+".tries", a.Tries, 1)
	atLeast(r, prefix+".concurrency", a.Concurrency, 1)
	if !enabled {
		return
	}
	a.checkHosts(r, prefix)
	switch a.Via {
	case "service":
		r.address(prefix+".url", a.URL, `the address of the service that via "service" asks`)
	case "folder":
		r.given(prefix+".folder", a.Folder, `the folder of pages that via "folder" reads`)
	}
}

func (r *rules) addresses(key string, found List, what string) {
	r.files(key, found, what)
	for _, one := range found {
		r.address(key, one, what)
	}
}

func (r *rules) address(key, found, what string) {
	r.given(key, found, what)
	if parsed, err := url.Parse(found); found != "" && (err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "") {
		r.violated(key, quoted(found), "an address that begins with http:// or https://")
	}
}
