package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

func (c *Config) checkReward(r *rules) {
	r.oneOf("reward.format_reward", c.Reward.FormatReward, "gate", "bonus", "off")
	atLeast(r, "reward.format_weight", c.Reward.FormatWeight, 0)
	r.oneOf("reward.memory_reward", c.Reward.MemoryReward, "mem_minus_full", "mem", "off")
	r.oneOf("reward.answer_prob", c.Reward.AnswerProb, "geometric", "product")
	if len(c.Reward.Command) > 0 && c.Reward.Command[0] == "" {
		r.violated("reward.command", `"" and its arguments`, "a program, and its arguments behind it")
	}
	above(r, "reward.command_timeout_s", c.Reward.CommandTimeout, 0)
	between(r, "reward.command_workers", c.Reward.CommandWorkers, 1, 256)
}

func (c *Config) checkAdvantage(r *rules) {
	a := c.Advantage
	atLeast(r, "advantage.memory_weight", a.MemoryWeight, 0)
	r.oneOf("advantage.normalize", a.Normalize, "std", "none")
	r.oneOf("advantage.single", a.Single, "zero", "score")
	if size := c.Rollout.GroupSize; a.MinGroup < 1 || a.MinGroup > size && size > 0 {
		r.violated("advantage.min_group", a.MinGroup, fmt.Sprintf("1 to rollout.group_size = %d", size))
	}
	atLeast(r, "advantage.outcome.min_std", a.Outcome.MinStd, 0)
	atLeast(r, "advantage.memory.min_std", a.Memory.MinStd, 0)
	r.oneOf("advantage.memory.gate", a.Memory.Gate, "none", "any_success")
	r.oneOf("advantage.memory.pool", a.Memory.Pool, "question", "turn")
}

// Validate checks the table alone, as Config.Validate does.
func (l Loss) Validate() error {
	var r rules
	l.check(&r)
	return errors.Join(r.violations...)
}

func (l Loss) check(r *rules) {
	between(r, "loss.clip_low", l.ClipLow, 0, 1)
	atLeast(r, "loss.clip_high", l.ClipHigh, 0)
	if l.DualClip != 0 {
		above(r, "loss.dual_clip", l.DualClip, 1)
	}
	r.oneOf("loss.aggregation", l.Aggregation, "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
	atLeast(r, "loss.divisor", l.Divisor, 0)
	if l.Aggregation == "seq-mean-token-sum-norm" && l.Divisor == 0 {
		r.violated("loss.divisor", l.Divisor, `above 0 with aggregation "seq-mean-token-sum-norm", such as the longest response in tokens`)
	}
	r.oneOf("loss.kl_estimator", l.KLEstimator, "k1", "abs", "k2", "k3", "low_var_kl")
	atLeast(r, "loss.kl_coef", l.KLCoef, 0)
}

func (c *Config) checkOptimizer(r *rules) {
	o := c.Optimizer
	r.adamw(o.LearningRate, o.WarmupSteps, o.Schedule, o.Betas, o.Eps, o.WeightDecay, o.ClipNorm)
	atLeast(r, "optimizer.ppo_epochs", o.PPOEpochs, 1)
	atLeast(r, "optimizer.questions_per_minibatch", o.QuestionsPerMinibatch, 1)
	c.checkMinibatch(r)
	atLeast(r, "optimizer.micro_batch_tokens", o.MicroBatchTokens, 1)
	atLeast(r, "optimizer.max_nonfinite", o.MaxNonfinite, 1)
}

// adamw checks the keys that every [optimizer] has.
func (r *rules) adamw(rate float64, warmup int, schedule string, betas [2]float64, eps, decay, clip float64) {
	atLeast(r, "optimizer.learning_rate", rate, 0)
	atLeast(r, "optimizer.warmup_steps", warmup, 0)
	r.oneOf("optimizer.schedule", schedule, "constant", "cosine")
	for _, beta := range betas {
		if inside := beta >= 0 && beta < 1; !inside {
			r.violated("optimizer.betas", betas, "two numbers from 0 to below 1")
			break
		}
	}
	divisor(r, "optimizer.eps", eps, 1e-30)
	atLeast(r, "optimizer.weight_decay", decay, 0)
	atLeast(r, "optimizer.clip_norm", clip, 0)
}

func (c *Config) checkMinibatch(r *rules) {
	step, minibatch := c.Rollout.QuestionsPerStep, c.Optimizer.QuestionsPerMinibatch
	if step < 1 || minibatch < 1 || step%minibatch == 0 {
		return
	}
	var divisors []string
	for n := 1; n <= step; n++ {
		if step%n == 0 {
			divisors = append(divisors, fmt.Sprint(n))
		}
	}
	found := fmt.Sprintf("%d, which does not divide rollout.questions_per_step = %d", minibatch, step)
	r.violated("optimizer.questions_per_minibatch", found, strings.Join(divisors, ", "))
}

func (c *Config) checkEval(r *rules) {
	e := c.Eval
	atLeast(r, "eval.every", e.Every, 0)
	if e.Every > 0 && len(c.Data.EvalMix) == 0 {
		r.files("data.eval", c.Data.Eval, fmt.Sprintf("question files, as eval.every is %d", e.Every))
	}
	atLeast(r, "eval.questions", e.Questions, 0)
	r.someOf("eval.context", e.Context, "limited", "full")
	atLeast(r, "eval.temperature", e.Temperature, 0)
	if e.Temperature > 0 && e.Temperature < leastTemperature {
		r.violated("eval.temperature", e.Temperature, fmt.Sprintf("0, or %v or more", leastTemperature))
	}
	if inside := e.TopP > 0 && e.TopP <= 1; !inside {
		r.violated("eval.top_p", e.TopP, "above 0, up to 1")
	}
	atLeast(r, "eval.top_k", e.TopK, 0)
	atLeast(r, "eval.samples", e.Samples, 1)
	if e.Samples > 1 && e.Temperature == 0 {
		r.violated("eval.samples", e.Samples, "1 with eval.temperature 0, as greedy samples of a question are all alike")
	}
}

// someOf refuses all but a choice of two words.
func (r *rules) someOf(key string, found List, one, other string) {
	if len(found) == 0 {
		r.violated(key, "empty", fmt.Sprintf("%q, %q or both", one, other))
	}
	for k, word := range found {
		r.oneOf(key, word, one, other)
		if slices.Contains(found[:k], word) {
			r.violated(key, fmt.Sprintf("%q twice", word), "each once")
		}
	}
}

func (c *Config) checkBench(r *rules) {
	b := c.Bench
	atLeast(r, "bench.prompt_tokens", b.PromptTokens, 1)
	atLeast(r, "bench.turns", b.Turns, 1)
	atLeast(r, "bench.turn_tokens", b.TurnTokens, 1)
	atLeast(r, "bench.tool_tokens", b.ToolTokens, 0)
	between(r, "bench.memory_tokens", b.MemoryTokens, 0, max(0, b.TurnTokens-1)) // an action follows it
	atLeast(r, "bench.answer_tokens", b.AnswerTokens, 1)
	atLeast(r, "bench.repeats", b.Repeats, 1)
}
