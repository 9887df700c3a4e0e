package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
)

// opening is a turn up to its answer: the model has only the answer left to write.
const opening = "<mem></mem><think></think><answer>"

// undecided is a tiny model that gives each of ten answers with about the same probability.
func undecided(t *testing.T) (folder string, text *texts, c *config.Config) {
	t.Helper()
	dir := tinyFolder(t, "qwen2-tiny")
	path, _ := tinyConfig(t, dir)
	c, err := config.Load(path, []string{"rollout.prefill=" + opening, "rollout.group_size=16", "rollout.questions_per_step=1", "rollout.max_turn_tokens=4", "optimizer.learning_rate=5e-4"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err = loadTexts(c); err != nil {
		t.Fatal(err)
	}
	m, err := device.Load(dir, engine.Options{Trainable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var all []demonstration
	for _, letter := range "bdfghjkpqz" {
		d := demonstration{ids: answerPrompt(t, text)}
		d.model(text, string(letter)+"</answer>")
		all = append(all, d)
	}
	teach(t, m, all, 80, 5e-3)
	source, err := checkpoint.ReadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	folder, err = checkpoint.Save(t.TempDir(), source, m, checkpoint.Record{Step: 1, Sampler: json.RawMessage("{}")})
	if err != nil {
		t.Fatal(err)
	}
	return folder, text, c
}

func answerPrompt(t *testing.T, text *texts) []int32 {
	t.Helper()
	prompt, err := text.rules.Format.Prompt("which letter")
	if err != nil {
		t.Fatal(err)
	}
	return append(prompt, text.tokenizer.EncodeTrusted(opening)...)
}

// answerProbability is the probability that the model writes the golden answer.
func answerProbability(t *testing.T, m *engine.Model, text *texts) float64 {
	t.Helper()
	d := demonstration{ids: answerPrompt(t, text)}
	d.model(text, "g</answer>")
	scores, err := m.Score([]model.ScoreRow{{IDs: d.ids, Positions: d.positions}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, logProb := range scores[0].LogProbs {
		sum += float64(logProb)
	}
	return math.Exp(sum)
}

// opposite is an actor that learns the opposite.
type opposite struct{ *engine.Model }

func (n opposite) ForwardBackward(rows []model.TrainRow, loss model.LossOptions) (model.LossStats, error) {
	for k := range rows {
		turned := make([]float32, len(rows[k].Advantages))
		for j, advantage := range rows[k].Advantages {
			turned[j] = -advantage
		}
		rows[k].Advantages = turned
	}
	return n.Model.ForwardBackward(rows, loss)
}

// The whole machine learns: whatever the seed, the one answer that is rewarded takes over; with
// the advantages negated it vanishes.
func TestRewardedAnswerTakesOver(t *testing.T) {
	folder, text, c := undecided(t)
	for _, seed := range []int64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c.Run.Seed = seed
			before, after := learn(t, folder, text, c, 60, func(m *engine.Model) trainer.Actor { return m })
			t.Logf("from %.3f to %.3f", before, after)
			if before < 0.02 || before > 0.2 {
				t.Errorf("the answer had probability %.3f before, the test needs 0.02 to 0.2", before)
			}
			if after <= 0.9 {
				t.Errorf("the answer has probability %.3f after 60 steps, want above 0.9", after)
			}
		})
	}
	before, after := learn(t, folder, text, c, 20, func(m *engine.Model) trainer.Actor { return opposite{m} })
	t.Logf("negated: from %.3f to %.3f", before, after)
	if after >= before/2 {
		t.Errorf("with negated advantages the probability went from %.3f to %.3f", before, after)
	}
}

// learn takes steps until the answer is nearly certain, or all of them are done.
func learn(t *testing.T, folder string, text *texts, c *config.Config, steps int, wrap func(*engine.Model) trainer.Actor) (before, after float64) {
	t.Helper()
	actor, err := device.Load(folder, engine.Options{Trainable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer actor.Close()
	reference, err := device.Load(folder, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	steady, err := trainer.New(wrap(actor), reference, trainerOptions(c, text, rollout.Tools{Concurrency: 1}, "cpu"), trainer.Watch{})
	if err != nil {
		t.Fatal(err)
	}
	before = answerProbability(t, actor, text)
	question := dataset.Question{ID: "letter", Text: "which letter", Objectives: [][]string{{"g"}}}
	for step := 1; step <= steps; step++ {
		if _, err := steady.Step(context.Background(), step, []rollout.Drawn{{Question: question}}); err != nil {
			t.Fatal(err)
		}
		if after = answerProbability(t, actor, text); after > 0.9 {
			t.Logf("above 0.9 after step %d", step)
			return before, after
		}
	}
	return before, after
}
