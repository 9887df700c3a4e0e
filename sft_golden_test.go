package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/optim"
	"github.com/mempo-train/mempo-train/trainer/sft"
)

// goldenCurve is what tools/golden_sft.py writes.
type goldenCurve struct {
	Options struct {
		LearningRate float64    `json:"learning_rate"`
		WarmupSteps  int        `json:"warmup_steps"`
		FinalShare   float64    `json:"final_share"`
		Betas        [2]float64 `json:"betas"`
		Eps          float64    `json:"eps"`
		WeightDecay  float64    `json:"weight_decay"`
		ClipNorm     float64    `json:"clip_norm"`
	} `json:"options"`
	Steps []struct {
		Rows         []chat.Lesson `json:"rows"`
		LearningRate float64       `json:"learning_rate"`
		Loss         float64       `json:"loss"`
		GradNorm     float64       `json:"grad_norm"`
	} `json:"steps"`
	LossAfter float64 `json:"loss_after"`
}

// Ten steps of supervised training have the losses of PyTorch, however their rows are packed.
func TestSupervisedLossCurveOfPyTorch(t *testing.T) {
	for _, name := range []string{"qwen2-tiny", "llama-tiny", "qwen3-tiny"} {
		for _, tokens := range []int{1, 64, 4096} {
			compareCurve(t, name, tokens)
		}
	}
}

func compareCurve(t *testing.T, name string, microBatchTokens int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/golden/sft", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var want goldenCurve
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	learner, err := device.Load(filepath.Join("testdata/golden/models", name), engine.Options{Trainable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer learner.Close()
	o := want.Options
	c := config.DefaultSFT()
	c.Run.Steps = len(want.Steps)
	c.Optimizer.LearningRate, c.Optimizer.WarmupSteps, c.Optimizer.FinalShare = o.LearningRate, o.WarmupSteps, o.FinalShare
	trainer := sft.Trainer{Learner: learner, Options: sft.Options{
		Optimizer:    model.OptimizerOptions{Beta1: o.Betas[0], Beta2: o.Betas[1], Eps: o.Eps, WeightDecay: o.WeightDecay, ClipNorm: o.ClipNorm},
		LearningRate: c.LearningRate, Micro: optim.MicroBatches{Tokens: microBatchTokens}, MaxNonfinite: 1,
	}}
	for k, step := range want.Steps {
		got, err := trainer.Step(t.Context(), k+1, step.Rows)
		if err != nil {
			t.Fatal(err)
		}
		within(t, name, k+1, "loss", got[metrics.LossNLL], step.Loss, 1e-4)
		within(t, name, k+1, "gradient norm", got[metrics.LossGradNorm], step.GradNorm, 1e-3*step.GradNorm)
		within(t, name, k+1, "rate", got[metrics.LossLearningRate], step.LearningRate, 1e-15)
	}
	after, err := trainer.Evaluate(t.Context(), want.Steps[0].Rows, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	within(t, name, len(want.Steps), "loss after all steps", after[metrics.Eval("nll")], want.LossAfter, 1e-4)
}

func within(t *testing.T, name string, step int, what string, got, want, tolerance float64) {
	t.Helper()
	if difference := math.Abs(got - want); !(difference <= tolerance) {
		t.Errorf("%s, step %d: %s is %.9g, want %.9g (%.2g off, %.2g allowed)", name, step, what, got, want, difference, tolerance)
	}
}
