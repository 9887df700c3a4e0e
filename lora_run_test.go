package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/weights"
)

// adapterKeys train adapters of rank 2 on two of the projections.
var adapterKeys = []string{"lora.rank=2", `lora.targets=["v_proj", "up_proj"]`}

func openWeights(t *testing.T, path string) *weights.File {
	t.Helper()
	file, err := weights.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// A run of adapters starts at its reference, moves away from it, and leaves a model whose other weights are the
// source's bits, under the source's names.
func TestRunOfAdapters(t *testing.T) {
	dir := taughtFolder(t, "qwen2-tiny")
	path, runDir := tinyConfig(t, dir)
	train(t, path, append(adapterKeys, "optimizer.learning_rate=1e-2")...)
	lines := metricLines(t, runDir)
	if kl := lines[0]["loss/kl"].(float64); kl > 1e-9 {
		t.Errorf("KL to the reference is %v at step 1", kl)
	}
	if kl := lines[2]["loss/kl"].(float64); kl <= 0 {
		t.Errorf("KL to the reference is %v at step 3", kl)
	}
	saved := filepath.Join(runDir, "checkpoints/step_000003")
	before, after := openWeights(t, filepath.Join(dir, "model.safetensors")), openWeights(t, filepath.Join(saved, "model.safetensors"))
	moved := 0
	for k, want := range before.Tensors() {
		got := after.Tensors()[k]
		target := strings.HasSuffix(got.Name, ".v_proj.weight") || strings.HasSuffix(got.Name, ".up_proj.weight")
		if same := string(got.Data) == string(want.Data); got.Name != want.Name || got.DType != want.DType || same == target {
			t.Errorf("%s %s for %s %s, same numbers: %v", got.Name, got.DType, want.Name, want.DType, same)
		}
		if target {
			moved++
		}
	}
	if moved != 2*2 || len(after.Tensors()) != len(before.Tensors()) {
		t.Errorf("%d of %d tensors have adapters", moved, len(after.Tensors()))
	}
	for _, name := range []string{"trainer_state/master.safetensors", "trainer_state/exp_avg.safetensors", "adapter/adapter_model.safetensors"} {
		if n := len(openWeights(t, filepath.Join(saved, name)).Tensors()); n != 2*2*2 {
			t.Errorf("%s has %d tensors", name, n)
		}
	}
}

func TestResumedAdaptersAreBitIdentical(t *testing.T) {
	dir := taughtFolder(t, "llama-tiny")
	straightPath, straight := tinyConfig(t, dir)
	train(t, straightPath, append(adapterKeys, "run.steps=4")...)
	brokenPath, broken := tinyConfig(t, dir)
	for _, steps := range []string{"1", "3", "4"} {
		train(t, brokenPath, append(adapterKeys, "run.steps="+steps)...)
	}
	sameRun(t, straight, broken, "step_000004")
	otherPath, other := tinyConfig(t, dir)
	train(t, otherPath, append(adapterKeys, "run.steps=1", "run.seed=8")...)
	a, b := filepath.Join(straight, "checkpoints/step_000002/adapter/adapter_model.safetensors"), filepath.Join(other, "checkpoints/step_000001/adapter/adapter_model.safetensors")
	name := "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight"
	x, _ := openWeights(t, a).Tensor(name)
	y, _ := openWeights(t, b).Tensor(name)
	if string(x.Data) == string(y.Data) {
		t.Error("adapters do not depend on the seed")
	}
}

func TestOtherAdaptersAreRefused(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen3-tiny"))
	train(t, path, append(adapterKeys, "run.steps=1")...)
	for set, want := range map[string]string{
		"lora.rank=3":         "this run has adapters of rank 3 and alpha 6 on v_proj, up_proj",
		"lora.alpha=5":        "has adapters of rank 2 and alpha 4 on v_proj, up_proj, this run has adapters of rank 2 and alpha 5",
		"lora.targets=q_proj": "on q_proj",
		"lora.rank=0":         "this run has no adapters",
	} {
		err := runTrain(t.Context(), path, append(slices.Clone(adapterKeys), set), nil)
		finds(t, err, fault.CodeUsage, want)
	}
}

func TestCheckOfARunWithAdapters(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	text, err := check(path, adapterKeys...)
	if err != nil {
		t.Fatal(err)
	}
	// 2 layers of 2 · (64 + 32) and 2 · (64 + 128) numbers, of 115264.
	holds(t, text, "rank = 2", "alpha = 4.0", "trained are adapters of rank 2 and alpha 4 on v_proj, up_proj: 1152 parameters, 1.00 % of the model's", "always      adapters ")
	if strings.Contains(text, "reference model") {
		t.Error("the plan has a second model")
	}
}

// A supervised start of adapters learns, goes on bit for bit, and its model folder computes what the trained model did.
func TestSupervisedStartOfAdapters(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	sets := []string{"lora.rank=8", "optimizer.learning_rate=2e-2", "optimizer.schedule=constant", "sft.eval_every=30"}
	straightPath, straight := tinySFT(t, dir)
	sftRun(t, straightPath, append(sets, "run.steps=30")...)
	lines := metricLines(t, straight)
	first, last := lines[0]["loss/nll"].(float64), lines[29]["loss/nll"].(float64)
	if last > first/3 {
		t.Errorf("the loss goes from %v to %v", first, last)
	}
	brokenPath, broken := tinySFT(t, dir)
	for _, steps := range []string{"7", "30"} {
		sftRun(t, brokenPath, append(sets, "run.steps="+steps)...)
	}
	for _, name := range []string{"model/model.safetensors", "model/adapter/adapter_model.safetensors"} {
		sameFile(t, filepath.Join(straight, name), filepath.Join(broken, name))
	}
	sameFile(t, filepath.Join(straight, "checkpoints/step_000030/adapter/adapter_model.safetensors"), filepath.Join(straight, "model/adapter/adapter_model.safetensors"))

	// The merged model goes on as the source of another start, and scores the held-out demonstrations as at the end.
	again, againDir := tinySFT(t, filepath.Join(straight, "model"))
	sftRun(t, again, "run.steps=1", "sft.eval_every=1", "optimizer.learning_rate=0", "optimizer.weight_decay=0")
	if held, want := metricLines(t, againDir)[0]["eval/nll"].(float64), lines[29]["eval/nll"].(float64); held < want-1e-5 || held > want+1e-5 {
		t.Errorf("the merged model has a loss of %v, the trained one %v", held, want)
	}
	if m, err := device.Load(filepath.Join(straight, "model"), engine.Options{}); err != nil {
		t.Error(err)
	} else if err := m.Close(); err != nil {
		t.Error(err)
	}
}
