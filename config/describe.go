package config

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// LearningRate is the rate of a step, counted from 1: step k of a warm-up of w runs at k/w of
// optimizer.learning_rate; behind it the rate is constant, or falls along half a cosine that would
// reach 0 one step after the last, so that no step is spent at 0.
func (c *Config) LearningRate(step int) float64 {
	o := c.Optimizer
	if step <= o.WarmupSteps || o.Schedule == "constant" {
		return warmup(o.LearningRate, step, o.WarmupSteps)
	}
	return o.LearningRate * halfCosine(step-o.WarmupSteps-1, c.Run.Steps-o.WarmupSteps)
}

// warmup is the rate at a step, counted from 1, of a run that is constant behind its warm-up.
func warmup(rate float64, step, steps int) float64 {
	if step >= steps {
		return rate
	}
	return rate * float64(step) / float64(steps)
}

// halfCosine falls from 1 to 0 while done goes from 0 to all.
func halfCosine(done, all int) float64 {
	if all < 1 {
		return 1
	}
	return (1 + math.Cos(math.Pi*float64(done)/float64(all))) / 2
}

// OptimizerStepsPerStep is the number of optimiser steps of one step.
func (c *Config) OptimizerStepsPerStep() int {
	return c.Rollout.QuestionsPerStep / c.Optimizer.QuestionsPerMinibatch * c.Optimizer.PPOEpochs
}

// Derivation says how a step's numbers follow from the config, as in "4 questions × 16
// trajectories: 64 trajectories, 2 optimiser steps of 32".
func (c *Config) Derivation() string {
	questions, size := c.Rollout.QuestionsPerStep, c.Rollout.GroupSize
	text := fmt.Sprintf("%s × %s: %s, %s of %d", counted(questions, "question"), counted(size, "trajectory"),
		counted(questions*size, "trajectory"), counted(c.OptimizerStepsPerStep(), "optimiser step"), c.Optimizer.QuestionsPerMinibatch*size)
	if c.Optimizer.PPOEpochs > 1 {
		text += fmt.Sprintf(" (%d epochs)", c.Optimizer.PPOEpochs)
	}
	return text
}

func counted(n int, name string) string {
	if n != 1 && strings.HasSuffix(name, "y") {
		name = strings.TrimSuffix(name, "y") + "ies"
	} else if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

// Part is one part of what training optimises, with its weight and formula.
type Part struct {
	Name    string
	Weight  float64
	Formula string
}

// Parts lists the parts of reward, advantage and loss.
func (c *Config) Parts() []Part {
	return []Part{
		{"outcome EM", 1, "mean over objectives of exact match; " + c.standardised("scores", c.Advantage.Outcome.MinStd)},
		{"format", c.formatWeight(), c.formatFormula()},
		{"memory", c.memoryWeight(), c.memoryFormula()},
		{"KL", c.Loss.KLCoef, c.Loss.KLEstimator + " to the model the run started from"},
		{"loss", 1, "−min(ratio·A, clip(ratio, " + fmt.Sprintf("%v, %v", 1-c.Loss.ClipLow, 1+c.Loss.ClipHigh) + ")·A); " + c.aggregation()},
	}
}

func (c *Config) standardised(what string, minStd float64) string {
	if c.Advantage.Normalize == "none" {
		return what + " − mean"
	}
	return fmt.Sprintf("(%s − mean) / (max(deviation, %v) + 1e-6)", what, minStd)
}

func (c *Config) formatWeight() float64 {
	if c.Reward.FormatReward == "bonus" {
		return c.Reward.FormatWeight
	}
	return 0
}

func (c *Config) formatFormula() string {
	switch c.Reward.FormatReward {
	case "gate":
		return "gate (score 0 when broken)"
	case "bonus":
		return "bonus (added to the score when the format holds)"
	}
	return "off"
}

func (c *Config) memoryWeight() float64 {
	if c.Reward.MemoryReward == "off" {
		return 0
	}
	return c.Advantage.MemoryWeight
}

func (c *Config) memoryFormula() string {
	value := "P(answer | memory)"
	switch c.Reward.MemoryReward {
	case "off":
		return "off (plain GRPO)"
	case "mem_minus_full":
		value += " − P(answer | history)"
	}
	pool := "all turns of the question"
	if c.Advantage.Memory.Pool == "turn" {
		pool = "the question's memories of one turn number"
	}
	text := fmt.Sprintf("%s; %s over %s, on memory tokens only", value, c.standardised("rewards", c.Advantage.Memory.MinStd), pool)
	if c.Advantage.Memory.Gate == "any_success" {
		text += ", in groups with a success only"
	}
	return text
}

// aggregation is the formula by which token losses become one number.
func (c *Config) aggregation() string {
	switch c.Loss.Aggregation {
	case "token-mean":
		return "token-mean: sum over tokens / tokens"
	case "seq-mean-token-sum":
		return "seq-mean-token-sum: mean over trajectories of (sum over tokens)"
	case "seq-mean-token-mean":
		return "seq-mean-token-mean: mean over trajectories of (sum over tokens / tokens)"
	}
	return fmt.Sprintf("%s: sum over tokens / (trajectories · %v)", c.Loss.Aggregation, c.Loss.Divisor)
}

// scoring says how what has no gradient is computed.
func (c *Config) scoring() string {
	text := c.Scoring.Form + ", " + map[string]string{
		"naive":  "every context and trajectory whole",
		"shared": "what contexts and trajectories share once",
		"cached": "memories behind the rollout's cache, else what trajectories share once",
	}[c.Scoring.Form]
	if c.Scoring.OldLogProb == "rollout" {
		return text + "; old log-probabilities of the rollout"
	}
	return text + "; old log-probabilities recomputed"
}

// Describe is the derivation of a step's numbers, how they are scored and a table of Parts, for the
// start of a run.
func (c *Config) Describe() string {
	var out strings.Builder
	fmt.Fprintf(&out, "a step: %s\nscoring: %s\n", c.Derivation(), c.scoring())
	rows := "part\tweight\tformula\n"
	for _, part := range c.Parts() {
		rows += fmt.Sprintf("%s\t%s\t%s\n", part.Name, weight(part.Weight), part.Formula)
	}
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = table.Write([]byte(rows)) // a strings.Builder takes everything
	_ = table.Flush()
	return out.String()
}

// weight always shows that it is no count.
func weight(w float64) string {
	if w == math.Trunc(w) && math.Abs(w) < 1e6 {
		return fmt.Sprintf("%.1f", w)
	}
	return fmt.Sprint(w)
}
