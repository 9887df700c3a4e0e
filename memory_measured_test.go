package main

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// monotone makes a folder of random weights whose model writes the letter "a" for ever: every trajectory is as long as it may
// be. The shape has 22 million weights (89 MB in float32), or next to none.
func monotone(t *testing.T, large bool) string {
	t.Helper()
	dir := tinyFolder(t, "qwen2-tiny")
	if large {
		set("config.json", map[string]any{
			"vocab_size": 16384, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 6,
			"num_key_value_heads": 3, "tie_word_embeddings": false, "layer_types": nil, "max_window_layers": nil,
		})(t, dir)
	} else {
		set("config.json", map[string]any{"tie_word_embeddings": false})(t, dir)
	}
	a, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(9, 9))
	var entries []weights.Entry
	for _, p := range a.Parameters() {
		entries = append(entries, weights.Entry{Name: p.Name, DType: weights.F32, Shape: p.Shape, Data: func() ([]byte, error) {
			values := make([]byte, 0, weights.Bytes(weights.F32, p.Shape))
			for k := range cap(values) / 4 {
				value := 0.02 * float32(random.NormFloat64())
				column, letter := k%a.HiddenSize, k/a.HiddenSize == 'a'
				switch {
				case strings.HasSuffix(p.Name, "norm.weight"):
					value = 1
				case column == 0 && p.Name == "model.embed_tokens.weight":
					value = 1 // which all hidden states keep
				case column == 0 && letter && p.Name == "lm_head.weight":
					value = 10
				}
				values = binary.LittleEndian.AppendUint32(values, math.Float32bits(value))
			}
			return values, nil
		}})
	}
	if err := weights.WriteFile(filepath.Join(dir, weights.SingleFile), entries); err != nil {
		t.Fatal(err)
	}
	return dir
}

// peakOfStep is the peak of the resident set of a process that trains two steps, in the second of them, in bytes.
func peakOfStep(t *testing.T, path, runDir string, sets []string) float64 {
	t.Helper()
	arguments := []string{path}
	for _, set := range sets {
		arguments = append(arguments, "--set", set)
	}
	command := process(arguments...)
	command.Env = append(command.Env, "MALLOC_ARENA_MAX=1") // else it is chance which threads share their memory
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines, err := os.ReadFile(filepath.Join(runDir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var figures struct {
		Peak     float64 `json:"memory_bytes/peak"`
		Response float64 `json:"rollout/response_tokens"`
	}
	if err := json.Unmarshal([]byte(strings.Split(string(lines), "\n")[1]), &figures); err != nil {
		t.Fatal(err)
	}
	if figures.Response != 128 {
		t.Errorf("responses have %v tokens, want 128", figures.Response)
	}
	return figures.Peak
}

// estimated is the peak of the plan that check prints for a config.
func estimated(t *testing.T, path string, sets []string) float64 {
	t.Helper()
	c, err := config.Load(path, sets)
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{findings: findings{out: io.Discard}, config: c}
	if p.texts, err = loadTexts(c); err != nil {
		t.Fatal(err)
	}
	p.showData()
	return float64(planMemory(p.texts.architecture, p.load("cpu")).peak())
}

// The plan that check prints, against training: of a model and, for what a process takes in any case, of one of next to
// nothing.
func TestThePlanOfTheMemoryIsNearWhatTrainingTakes(t *testing.T) {
	large, small := monotone(t, true), monotone(t, false)
	for name, sets := range map[string][]string{
		"all weights":           nil,
		"layers computed anew":  {"model.activation_checkpointing=layer", "loss.kl_coef=0"},
		"optimizer on the host": {"model.optimizer_offload=cpu"},
		"adapters":              {"lora.rank=16"},
		"adapters, many rows":   {"lora.rank=16", "rollout.group_size=16", "optimizer.micro_batch_tokens=200"},
	} {
		t.Run(name, func(t *testing.T) {
			sets := append([]string{
				"run.steps=2", "checkpoint.every=2", "optimizer.micro_batch_tokens=640", "rollout.max_turns=1",
				"rollout.max_turn_tokens=128", "rollout.max_response_tokens=128",
			}, sets...)
			largePath, largeRun := tinyConfig(t, large)
			smallPath, smallRun := tinyConfig(t, small)
			measured := peakOfStep(t, largePath, largeRun, sets) - peakOfStep(t, smallPath, smallRun, sets)
			planned := estimated(t, largePath, sets) - estimated(t, smallPath, sets)
			ratio := planned / measured
			t.Logf("planned %s, measured %s: %.3f", inBytes(int64(planned)), inBytes(int64(measured)), ratio)
			if ratio < 0.9 || ratio > 1.1 {
				t.Error("the plan is more than a tenth off")
			}
		})
	}
}
