package config

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestDerivation(t *testing.T) {
	for _, test := range []struct {
		sets []string
		want string
	}{
		{[]string{"optimizer.questions_per_minibatch=2"}, "4 questions × 16 trajectories: 64 trajectories, 2 optimiser steps of 32"},
		{nil, "4 questions × 16 trajectories: 64 trajectories, 1 optimiser step of 64"},
		{[]string{"optimizer.ppo_epochs=3", "optimizer.questions_per_minibatch=2"}, "4 questions × 16 trajectories: 64 trajectories, 6 optimiser steps of 32 (3 epochs)"},
		{[]string{"rollout.questions_per_step=1", "rollout.group_size=1", "advantage.min_group=1"}, "1 question × 1 trajectory: 1 trajectory, 1 optimiser step of 1"},
	} {
		if got := minimal(t, test.sets...).Derivation(); got != test.want {
			t.Errorf("%v: %s", test.sets, got)
		}
	}
}

func TestLearningRate(t *testing.T) {
	for _, test := range []struct {
		sets []string
		want string // rates of steps 1, 2, …, as multiples of 1e-7
	}{
		{[]string{"run.steps=12", "optimizer.warmup_steps=10"}, "1 2 3 4 5 6 7 8 9 10 10 10"},
		{[]string{"run.steps=5", "optimizer.warmup_steps=5"}, "2 4 6 8 10"},
		{[]string{"run.steps=3"}, "10 10 10"},
		{[]string{"run.steps=6", "optimizer.warmup_steps=2", "optimizer.schedule=cosine"}, "5 10 10 8.54 5 1.46"},
		{[]string{"run.steps=2", "optimizer.schedule=cosine"}, "10 5"},
	} {
		config := minimal(t, test.sets...)
		var got []string
		for step := 1; step <= config.Run.Steps; step++ {
			got = append(got, fmt.Sprint(math.Round(config.LearningRate(step)*1e9)/100))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v: %v, want %s", test.sets, got, test.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	want := `a step: 4 questions × 16 trajectories: 64 trajectories, 1 optimiser step of 64
scoring: cached, memories behind the rollout's cache, else what trajectories share once; old log-probabilities recomputed
part        weight  formula
outcome EM  1.0     mean over objectives of exact match; (scores − mean) / (max(deviation, 0) + 1e-6)
format      0.0     gate (score 0 when broken)
memory      1.0     P(answer | memory) − P(answer | history); (rewards − mean) / (max(deviation, 0) + 1e-6) over all turns of the question, on memory tokens only
KL          0.001   low_var_kl to the model the run started from
loss        1.0     −min(ratio·A, clip(ratio, 0.8, 1.2)·A); token-mean: sum over tokens / tokens
`
	if got := minimal(t).Describe(); got != want {
		t.Errorf("%s", got)
	}
	for _, test := range []struct {
		set  string
		want string
	}{
		{"scoring.form=naive", "scoring: naive, every context and trajectory whole; "},
		{"scoring.form=shared", "scoring: shared, what contexts and trajectories share once; "},
		{"scoring.old_log_prob=rollout", "; old log-probabilities of the rollout\n"},
		{"reward.format_reward=off", "format      0.0     off\n"},
		{"reward.memory_reward=off", "memory      0.0     off (plain GRPO)\n"},
		{"reward.memory_reward=mem", "memory      1.0     P(answer | memory); "},
		{"advantage.memory_weight=0.3", "memory      0.3     P(answer | memory) − "},
		{"advantage.normalize=none", "exact match; scores − mean\n"},
		{"advantage.memory.min_std=0.05", "(rewards − mean) / (max(deviation, 0.05) + 1e-6)"},
		{"advantage.memory.pool=turn", "over the question's memories of one turn number, on memory tokens only\n"},
		{"advantage.memory.gate=any_success", "on memory tokens only, in groups with a success only\n"},
		{"loss.aggregation=seq-mean-token-sum", "seq-mean-token-sum: mean over trajectories of (sum over tokens)\n"},
		{"loss.aggregation=seq-mean-token-mean", "seq-mean-token-mean: mean over trajectories of (sum over tokens / tokens)\n"},
	} {
		if got := minimal(t, test.set).Describe(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s", test.set, got)
		}
	}
	got := minimal(t, "reward.format_reward=bonus", "reward.format_weight=0.1", "loss.aggregation=seq-mean-token-sum-norm", "loss.divisor=8").Describe()
	for _, want := range []string{"format      0.1     bonus (added to the score when the format holds)\n", "seq-mean-token-sum-norm: sum over tokens / (trajectories · 8)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
}
