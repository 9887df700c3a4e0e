package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// shape is the size of a made-up run.
type shape struct {
	steps, questions, group, turns int
	text                           func(random *rand.Rand) string // of a memory, thought, query or result
}

// ordinary is a text of some words, not all of them of one byte a character.
func ordinary(random *rand.Rand) string {
	words := []string{"the", "town", "of", "Belmar", "trades", "in", "copper", "and", "lies", "on", "Ister", "mayor", "Zürich", "東京", "founder"}
	var text []string
	for range 3 + random.IntN(9) {
		text = append(text, words[random.IntN(len(words))])
	}
	return strings.Join(text, " ")
}

var actionTags = []string{"<mem>", "</mem>", "<think>", "</think>", "<search>", "</search>", "<answer>", "</answer>", "<information>", "</information>"}

// makeRun writes the folder of a run that never was, and its model folder beside it.
func makeRun(t testing.TB, s shape) string {
	t.Helper()
	root := t.TempDir()
	model := filepath.Join(root, "model")
	must(t, os.Mkdir(model, 0o755))
	must(t, tokenizertest.Write(model, actionTags...))
	tok, err := tokenizer.Load(model)
	must(t, err)
	dir, err := rundir.Open(filepath.Join(root, "made-up"))
	must(t, err)
	defer dir.Close()
	must(t, dir.WriteConfig(fmt.Sprintf("[run]\nseed = 7\nsteps = %d\n[model]\npath = %q\n[rollout]\ngroup_size = %d\n", s.steps, model, s.group)))
	must(t, os.WriteFile(dir.LogPath(), []byte(`{"level":"info","ts":1795970816.1,"msg":"step begins","step":1}
{"level":"warn","ts":1795970820.5,"msg":"turns whose action could not be run: 8","step":1}
{"level":"error","ts":1796000000,"msg":"run ended","error":"no more disk"}
`), 0o644))
	writer, err := metrics.Open(dir.MetricsPath(), 0)
	must(t, err)
	defer writer.Close()
	for step := int64(1); step <= int64(s.steps); step++ {
		must(t, writer.Write(step, measuredAt(step)))
		var records []*rollout.Record
		for q := range s.questions {
			for member := range s.group {
				records = append(records, makeRecord(s, tok, step, q, member))
			}
		}
		must(t, rundir.WriteTrajectories(dir, step, records))
	}
	return dir.Path()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// measuredAt has a figure that is missing at times, and one that is measured every other step.
func measuredAt(step int64) map[string]float64 {
	x := float64(step)
	values := map[string]float64{
		metrics.ScoreTotal: 1 - 1/x, metrics.ScoreEM: 1 - 1/x, metrics.ScoreF1: 1 - 0.9/x, metrics.ScoreFormat: 1,
		metrics.MemoryReward: -0.2 / x, metrics.MemoryPFull: 0.5, metrics.MemoryPMem: 0.5 - 0.2/x, metrics.MemoryTokens: 20 + x,
		metrics.AdvantageOutcomeStd: 0.4, metrics.AdvantageMemoryStd: 0.1, metrics.LossKL: 1e-4 * x, metrics.LossClipFraction: 0.01,
		metrics.LossEntropy: 2 / x, metrics.LossGradNorm: 0.5, metrics.LossPolicy: 0.01 * math.Sin(x), metrics.LossLearningRate: 1e-6,
		metrics.RolloutTurns: 3, metrics.RolloutResponseTokens: 300 - x, metrics.RolloutStop("answered"): 0.9, metrics.RolloutStop("max_turns"): 0.1,
		metrics.RolloutStop("no_action"): 0,
		metrics.Time("rollout"):          2, metrics.Tokens("rollout"): 1000 * x, metrics.Time("update"): 4, metrics.Tokens("update"): 2000, metrics.Time("step"): 7,
		metrics.Tokens("generated"): 300, metrics.MemoryBytesPeak: 3e9,
	}
	if step%3 == 0 {
		values[metrics.MemoryReward] = math.NaN()
	}
	if step%2 == 0 {
		values[metrics.Eval("em")], values[metrics.Eval("limited/em")], values[metrics.Eval("full/em")] = 0.5, 0.5, 0.6
	}
	return values
}

// makeRecord makes a trajectory whose advantages have the sign of its score, and whose memories
// have the opposite one in every other turn.
func makeRecord(s shape, tok *tokenizer.Tokenizer, step int64, q, member int) *rollout.Record {
	random := rand.New(rand.NewPCG(uint64(step), uint64(q*1000+member)))
	t := &rollout.Trajectory{Member: member, PromptIDs: tok.EncodeTrusted(tokenizertest.StartOfTurn + "user\nQuestion" + tokenizertest.EndOfTurn), Stop: rollout.Answered}
	right := random.IntN(2) == 1
	sign := float32(-1)
	if right {
		sign = 1
	}
	var advantages rollout.Floats
	add := func(text string, sampled bool, advantage float32) {
		for _, id := range tok.EncodeTrusted(text) {
			t.ResponseIDs = append(t.ResponseIDs, id)
			t.ResponseMask = append(t.ResponseMask, sampled)
			logProb := float32(0)
			if sampled {
				logProb = -random.Float32()
			}
			t.LogProbs = append(t.LogProbs, logProb)
			advantages = append(advantages, advantage)
		}
	}
	for k := range s.turns {
		turn := rollout.Turn{Stop: rollout.StopWord, HasMemory: true, Action: "search", ActionText: s.text(random)}
		turn.Tokens.Start = len(t.ResponseIDs)
		memoryAdvantage := sign * (0.4 + float32(k%3)*0.4)
		if k%2 == 1 {
			memoryAdvantage = -memoryAdvantage
		}
		turn.Memory.Start = len(t.ResponseIDs)
		add("<mem>"+s.text(random)+"</mem>", true, memoryAdvantage)
		turn.Memory.End = len(t.ResponseIDs)
		add("<think>"+s.text(random)+"</think>", true, sign)
		if k == s.turns-1 {
			turn.Action, turn.ActionText = "answer", "Belmar "+s.text(random)
			add("<answer>"+turn.ActionText+"</answer>", true, sign)
			t.Answer = &turn.ActionText
		} else {
			add("<search>"+turn.ActionText+"</search>", true, sign)
		}
		turn.Tokens.End = len(t.ResponseIDs)
		turn.Text = tok.Decode(t.ResponseIDs[turn.Tokens.Start:turn.Tokens.End])
		if turn.Action == "search" {
			turn.Result = "<information>\n" + s.text(random) + "\n</information>"
			add(tokenizertest.EndOfTurn+"\n"+tokenizertest.StartOfTurn+"user\n"+turn.Result+tokenizertest.EndOfTurn+"\n"+tokenizertest.StartOfTurn+"assistant\n", false, 0)
		}
		t.Turns = append(t.Turns, turn)
	}
	random = rand.New(rand.NewPCG(7, uint64(q))) // the same question in every step
	question := dataset.Question{ID: fmt.Sprintf("question-%d", q), Text: "Where is " + s.text(random) + "?", Objectives: [][]string{{"Belmar", s.text(random)}}}
	return rewarded(rollout.NewRecord(int(step), question, q, t, tok.Decode), advantages, right)
}

// rewarded sets what the trainer sets.
func rewarded(r *rollout.Record, advantages rollout.Floats, right bool) *rollout.Record {
	score, outcome := rollout.Number(0), rollout.Number(-1)
	if right {
		score, outcome = 1, 1
	}
	r.Advantages, r.Score = advantages, &score
	r.Rewards = map[string]rollout.Number{"em": score, "f1": score, "format": 1, "outcome_advantage": outcome}
	for k := 1; k < len(r.Turns); k++ {
		pFull, pMem := rollout.Number(0.25), rollout.Number(0.25+0.1*float64(k))
		reward := pMem - pFull
		r.Turns[k].PFull, r.Turns[k].PMem, r.Turns[k].MemoryReward, r.Turns[k].MemoryAdvantage = &pFull, &pMem, &reward, &outcome
	}
	return r
}
