package main

import (
	"strings"
	"testing"
)

// A run whose optimiser is on the host for some of its steps leaves the bits of one whose optimiser never is: whatever is
// computed in, and whatever is trained.
func TestRunWithItsOptimizerOnTheHostIsBitIdentical(t *testing.T) {
	dir := taughtFolder(t, "llama-tiny")
	for name, sets := range map[string][]string{
		"float32":  nil,
		"bfloat16": {"model.dtype=bfloat16"},
		"adapters": adapterKeys,
	} {
		t.Run(name, func(t *testing.T) {
			straightPath, straight := tinyConfig(t, dir)
			train(t, straightPath, append(sets[:len(sets):len(sets)], "run.steps=4")...)
			mixedPath, mixed := tinyConfig(t, dir)
			for _, part := range []struct{ steps, offload string }{{"1", "cpu"}, {"3", "none"}, {"4", "cpu"}} {
				train(t, mixedPath, append(sets[:len(sets):len(sets)], "run.steps="+part.steps, "model.optimizer_offload="+part.offload)...)
			}
			sameRun(t, straight, mixed, "step_000004")
		})
	}
}

// A supervised start takes the key, too, and check tells what it takes; a GPU that is not there is planned for.
func TestCheckOfAnOptimizerOnTheHost(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	text, err := check(path, "model.optimizer_offload=cpu")
	if err != nil {
		t.Fatal(err)
	}
	// 115264 parameters; the pieces of a small model are as long as its embedding of 300 · 64 numbers.
	holds(t, text, `optimizer_offload = "cpu"`, "always      float32 master weights", "update      buffers on the way to and from AdamW")
	text, _ = check(path, "model.optimizer_offload=cpu", "model.device=cuda:7")
	device, host, both := strings.Cut(text, "== memory of the machine for AdamW, estimated ==")
	if !both || strings.Contains(device, "AdamW, float32") || strings.Contains(device, "master") {
		t.Errorf("the plan for a GPU:\n%s", text)
	}
	holds(t, device, "== memory of the device, estimated ==", "gradients, float32")
	holds(t, host, "float32 master weights", "moments of AdamW, float32", "buffers on the way", "free: ")
	sft, runDir := tinySFT(t, tinyFolder(t, "qwen3-tiny"))
	sftRun(t, sft, "model.optimizer_offload=cpu")
	plain, plainDir := tinySFT(t, tinyFolder(t, "qwen3-tiny"))
	sftRun(t, plain)
	sameFile(t, runDir+"/model/model.safetensors", plainDir+"/model/model.safetensors")
}
