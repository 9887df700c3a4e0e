// Package metrics writes what a run measures: one line of JSON for every step, under names that
// are given once and never renamed or reused, and the progress that a person watches.
package metrics

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// The names of metrics. Means are over the trajectories of a step (or its tokens, where the name
// says so), weighted by true counts. Times are in seconds.
const (
	ScoreTotal         = "score/total"           // mean outcome score, format included
	ScoreEM            = "score/em"              // exact match
	ScoreF1            = "score/f1"              // token F1
	ScoreFormat        = "score/format"          // share that keeps the format
	ScoreZeroStdGroups = "score/std_zero_groups" // share of the questions with two valid trajectories or more whose scores are all equal

	RewardFailed = "reward/failed" // trajectories of the step that reward.command failed to grade

	MemoryReward = "memory/reward" // mean over turns with a memory
	MemoryPFull  = "memory/p_full" // probability of the answer given the full context
	MemoryPMem   = "memory/p_mem"  // probability of the answer given prompt and memory
	MemoryStd    = "memory/std"    // deviation of all memory rewards of the step
	MemoryTokens = "memory/tokens" // mean length of a memory
	MemoryWeight = "memory/weight" // in force at this step

	AdvantageOutcomeStd = "advantage/outcome_std" // raw deviation of the scores of a question, mean over questions
	AdvantageMemoryStd  = "advantage/memory_std"  // raw deviation of a pool of memory rewards, mean over pools, weighted by size

	LossNLL               = "loss/nll" // negative log-likelihood of demonstrations, nats a token
	LossPolicy            = "loss/policy"
	LossKL                = "loss/kl" // coefficient included
	LossTotal             = "loss/total"
	LossClipFraction      = "loss/clip_fraction"
	LossEntropy           = "loss/entropy" // nats a token
	LossGradNorm          = "loss/grad_norm"
	LossLearningRate      = "loss/learning_rate"
	LossRolloutDifference = "loss/rollout_difference" // log-probability when sampled against when scored

	RolloutTurns          = "rollout/turns"
	RolloutResponseTokens = "rollout/response_tokens"
	RolloutToolCalls      = "rollout/tool_calls"
	RolloutTruncated      = "rollout/truncated"
	RolloutMalformed      = "rollout/malformed"
	RolloutResultCut      = "rollout/result_cut"
	RolloutMemoryCut      = "rollout/memory_cut"
	RolloutPutAside       = "rollout/put_aside" // trajectories that gave up their place in the cache, each time
	rolloutStop           = "rollout/stop/*"    // see RolloutStop

	ToolsFailed    = "tools/failed"
	ToolsTimeouts  = "tools/timeouts"
	ToolsCacheHits = "tools/cache_hits"
	ToolsLatency   = "tools/latency_s"

	TrainGroupsLeftOut  = "train/groups_left_out" // questions of which nothing was trained on
	TrainNonfiniteSteps = "train/nonfinite_steps" // optimiser steps skipped since the run began
	TrainOptimizerSteps = "train/optimizer_steps" // optimiser steps taken since the run began

	timeOf   = "time/*_s" // see Time
	tokensOf = "tokens/*" // see Tokens

	MemoryBytesPeak = "memory_bytes/peak"

	evalOf = "eval/*" // see Eval
)

// RolloutStop is the share of trajectories that ended for a reason.
func RolloutStop(reason string) string { return strings.Replace(rolloutStop, "*", reason, 1) }

// Time is the time that a stage of the step took.
func Time(stage string) string { return strings.Replace(timeOf, "*", stage, 1) }

// Tokens is the number of tokens that a stage of the step processed.
func Tokens(stage string) string { return strings.Replace(tokensOf, "*", stage, 1) }

// Eval is a figure of an evaluation.
func Eval(figure string) string { return strings.Replace(evalOf, "*", figure, 1) }

// names lists every name in the order in which a line gives them; a star stands for one word, or
// in eval/* for several with slashes between them.
var names = []string{
	ScoreTotal, ScoreEM, ScoreF1, ScoreFormat, ScoreZeroStdGroups,
	RewardFailed,
	MemoryReward, MemoryPFull, MemoryPMem, MemoryStd, MemoryTokens, MemoryWeight,
	AdvantageOutcomeStd, AdvantageMemoryStd,
	LossNLL, LossPolicy, LossKL, LossTotal, LossClipFraction, LossEntropy, LossGradNorm, LossLearningRate, LossRolloutDifference,
	RolloutTurns, RolloutResponseTokens, RolloutToolCalls, RolloutTruncated, RolloutMalformed, RolloutResultCut, RolloutMemoryCut, RolloutPutAside, rolloutStop,
	ToolsFailed, ToolsTimeouts, ToolsCacheHits, ToolsLatency,
	TrainGroupsLeftOut, TrainNonfiniteSteps, TrainOptimizerSteps,
	timeOf, tokensOf, MemoryBytesPeak, evalOf,
}

var patterns = compile(names)

func compile(names []string) []*regexp.Regexp {
	const word = `[A-Za-z0-9_.-]+`
	compiled := make([]*regexp.Regexp, len(names))
	for k, name := range names {
		star := word
		if name == evalOf {
			star = word + "(/" + word + ")*"
		}
		compiled[k] = regexp.MustCompile("^" + strings.Replace(regexp.QuoteMeta(name), `\*`, star, 1) + "$")
	}
	return compiled
}

// position is the place of a name in the order of a line, −1 for a name that is not known.
func position(name string) int {
	return slices.IndexFunc(patterns, func(pattern *regexp.Regexp) bool { return pattern.MatchString(name) })
}

// Known reports whether a name is one of the list.
func Known(name string) bool { return position(name) >= 0 }

// inOrder sorts the names of a line; names of the same place go by the alphabet.
func inOrder(values map[string]float64) []string {
	sorted := make([]string, 0, len(values))
	for name := range values {
		sorted = append(sorted, name)
	}
	slices.SortFunc(sorted, func(a, b string) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(a, b))
	})
	return sorted
}
