package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
)

// limitedSets are settings under which a taught tiny model takes several turns in limited context.
var limitedSets = []string{"rollout.context=limited", "rollout.memory_tokens=12", "rollout.on_no_action=correct"}

// What a turn was sampled from and what is scored afterwards are one and the same sequence.
func TestLimitedRowsAreScoredAsTheEngineSampledThem(t *testing.T) {
	path, _ := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	c, err := config.Load(path, append(limitedSets, "rollout.batch_tokens=64", "rollout.max_rows=6"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := loadTexts(c)
	if err != nil {
		t.Fatal(err)
	}
	data, err := loadQuestions(c, trainingSelection(c.Data), text)
	if err != nil {
		t.Fatal(err)
	}
	tools := &toolset{Tools: rollout.Tools{TopK: 1, Concurrency: 4}}
	if err := tools.addSearch(c, nil); err != nil {
		t.Fatal(err)
	}
	m, err := device.Load(c.Model.Path, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var drawn []rollout.Drawn
	for k, question := range data.kept {
		drawn = append(drawn, rollout.Drawn{Question: question, Draw: k})
	}
	groups, _, err := rollout.Run(context.Background(), m, drawn, trainerOptions(c, text, tools.Tools, "cpu").Rollout, tools.Tools)
	if err != nil {
		t.Fatal(err)
	}
	later := 0
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			for k, turn := range trajectory.Turns {
				row := model.ScoreRow{IDs: slices.Concat(trajectory.ContextOf(k), trajectory.ResponseIDs[turn.Tokens.Start:turn.Tokens.End])}
				for n := range turn.Tokens.Len() {
					row.Positions = append(row.Positions, int32(len(trajectory.ContextOf(k))+n))
				}
				scores, err := m.Score([]model.ScoreRow{row}, c.Rollout.Temperature)
				if err != nil {
					t.Fatal(err)
				}
				for n, logProb := range trajectory.LogProbs[turn.Tokens.Start:turn.Tokens.End] {
					if difference := logProb - scores[0].LogProbs[n]; difference > 5e-5 || difference < -5e-5 {
						t.Errorf("turn %d: a token has log-prob %v when sampled, %v when scored", k+1, logProb, scores[0].LogProbs[n])
					}
				}
				if k > 0 {
					later++
				}
			}
		}
	}
	if later < 12 {
		t.Errorf("only %d turns behind the first", later)
	}
}

func TestTrainingInALimitedContext(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	train(t, path, limitedSets...)
	lines := metricLines(t, runDir)
	if len(lines) != 3 {
		t.Fatalf("%d lines of metrics, want 3", len(lines))
	}
	for k, line := range lines {
		if line["loss/clip_fraction"] != 0.0 || line["loss/rollout_difference"].(float64) > 5e-5 {
			t.Errorf("step %d: clip fraction %v at the first update, sampler and trainer differ by %v", k+1, line["loss/clip_fraction"], line["loss/rollout_difference"])
		}
		if line["train/optimizer_steps"] != float64(k+1) || line["memory/p_mem"] == nil {
			t.Errorf("step %d: %v optimiser steps, P_mem %v", k+1, line["train/optimizer_steps"], line["memory/p_mem"])
		}
	}
	if first, last := lines[0]["loss/kl"].(float64), lines[2]["loss/kl"].(float64); first > 1e-9 || last <= 0 {
		t.Errorf("KL to the reference is %v at step 1, %v at step 3", first, last)
	}
	if lines[0]["rollout/turns"].(float64) < 1.5 {
		t.Errorf("%v turns on average", lines[0]["rollout/turns"])
	}
}

func TestResumeIsBitIdenticalInALimitedContext(t *testing.T) {
	dir := taughtFolder(t, "llama-tiny")
	straightPath, straight := tinyConfig(t, dir)
	train(t, straightPath, append(limitedSets, "run.steps=3")...)
	brokenPath, broken := tinyConfig(t, dir)
	for _, steps := range []string{"1", "3"} {
		train(t, brokenPath, append(limitedSets, "run.steps="+steps)...)
	}
	for _, name := range []string{"model.safetensors", "trainer_state/master.safetensors", "trainer_state/exp_avg_sq.safetensors"} {
		a, errA := os.ReadFile(filepath.Join(straight, "checkpoints/step_000003", name))
		b, errB := os.ReadFile(filepath.Join(broken, "checkpoints/step_000003", name))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v, %v", name, errA, errB)
		}
	}
	a, b := metricLines(t, straight), metricLines(t, broken)
	for k := range a {
		for name, value := range a[k] {
			if b[k][name] != value {
				t.Errorf("step %d: %s is %v, and %v after resuming", k+1, name, value, b[k][name])
			}
		}
	}
}
