package trainer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// haphazard writes turns of every kind, of which some have no memory, some no end and some no action.
func haphazard(seed uint64) script {
	return func(key rollout.SeedKey) string {
		random := rand.New(rand.NewPCG(seed, key.Seed()))
		text := "<mem>" + strings.Repeat(string(rune('a'+random.IntN(3))), random.IntN(4)) + "</mem><think>t</think>"
		switch random.IntN(8) {
		case 0:
			text = "<think>no memory</think>"
		case 1:
			text = "<mem>not closed "
		}
		switch random.IntN(16) {
		case 0:
			return text // no action
		case 1:
			return text + "<search>broken</search>"
		case 2:
			return text + strings.Repeat("long ", 50) // cut
		case 3, 4:
			return text + "<answer>" + []string{"A", "no"}[random.IntN(2)] + "</answer>"
		}
		return text + "<search>" + strings.Repeat("q", random.IntN(3)) + "</search>"
	}
}

// chancy are options under which such trajectories end in every way.
func chancy(random *rand.Rand) Options {
	o := toyOptions(1 + random.IntN(4))
	o.Tools.Search = failFor("broken")
	o.Rollout.MaxTurns, o.Rollout.MaxResponseTokens = 1+random.IntN(8), 150+random.IntN(600)
	o.Rollout.Context = []rollout.Context{rollout.Full, rollout.Limited}[random.IntN(2)]
	o.Rollout.AnswerPrefix = []string{"", "<answer>"}[random.IntN(2)]
	o.Reward.Truncated = []string{"score", "zero", "mask"}[random.IntN(3)]
	o.Reward.ContextLength = []int{0, 400}[random.IntN(2)]
	o.Advantage.MinGroup, o.Advantage.DropEqualGroups = 1+random.IntN(2), random.IntN(2) > 0
	o.Scoring.RolloutOldLogProbs = random.IntN(3) == 0
	o.Update.PPOEpochs, o.Update.QuestionsPerMinibatch = 1+random.IntN(2), 1+random.IntN(3)
	o.Update.MicroBatchTokens = []int{2, 100, 100000}[random.IntN(3)]
	if random.IntN(8) == 0 {
		o.Update.Loss.KLCoef = 0
	}
	return o
}

// run is what a step leaves behind, less its times and the tokens of its passes without gradient.
type run struct {
	metrics string
	records []*rollout.Record
	rows    []model.TrainRow
	weights []float32
}

// take takes a step in a form of scoring; nil if so many trajectories failed that it did.
func take(t *testing.T, o Options, form string, write script, change func(*toyActor)) (*run, *toyActor, map[string]float64) {
	t.Helper()
	o.Scoring.Form = form
	trainer, actor := newToyTrainer(t, o, write)
	if o.Update.Loss.KLCoef == 0 {
		trainer.reference = nil
	}
	change(actor)
	result, err := trainer.Step(context.Background(), 1, drawn("a", "b", "c"))
	if actor.open != 0 {
		t.Errorf("%s: %d sessions were left open", form, actor.open)
	}
	if err != nil {
		if !strings.Contains(err.Error(), "so many trajectories failed") {
			t.Fatalf("%s: %v", form, err)
		}
		return nil, actor, nil
	}
	same := map[string]float64{}
	for name, value := range result.Metrics {
		if !strings.HasPrefix(name, "time/") && name != metrics.ToolsLatency &&
			name != metrics.Tokens(stageMemory) && name != metrics.Tokens(stageOld) && name != metrics.Tokens(stageRef) {
			same[name] = value
		}
	}
	for _, record := range result.Records {
		record.ElapsedSeconds = 0
		for k := range record.Turns {
			record.Turns[k].ToolSeconds = 0
		}
	}
	return &run{fmt.Sprint(same), result.Records, actor.rows(), actor.weights}, actor, result.Metrics
}

// Every memory, every log-probability, everything that follows: the same in all forms, to the last bit.
func TestTheFormsOfScoringAreOne(t *testing.T) {
	memories, along, again := 0, 0, 0
	stops := map[string]int{}
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(8, seed))
		o, write := chancy(random), haphazard(seed)
		noRoom := random.IntN(4) == 0
		change := func(actor *toyActor) { actor.noRoom = noRoom }
		naive, _, _ := take(t, o, FormNaive, write, change)
		for _, form := range []string{FormShared, FormCached} {
			got, actor, _ := take(t, o, form, write, change)
			along += actor.along
			if !reflect.DeepEqual(got, naive) {
				t.Fatalf("seed %d: %s and naive differ:\n%+v\n%+v", seed, form, got, naive)
			}
		}
		if naive == nil {
			continue
		}
		for _, record := range naive.records {
			stops[string(record.Stop)]++
			for _, turn := range record.Turns {
				if turn.MemoryReward != nil {
					memories++
					if noRoom {
						again++
					}
				}
			}
		}
	}
	if memories < 200 || along < 100 || again < 20 || len(stops) < 5 {
		t.Errorf("%d memories, %d pieces scored in the rollout, %d memories for which it had no room, stops %v: that tests little", memories, along, again, stops)
	}
}

// What the forms save: beginnings, and with cached all but the few tokens behind the trajectories.
func TestTokensOfTheForms(t *testing.T) {
	o := toyOptions(4)
	o.Rollout.MaxTurns = 8
	write := func(key rollout.SeedKey) string {
		if key.Turn < 4 {
			return searches(fmt.Sprintf("notes%d%d", key.Turn, key.Member), "query")
		}
		return answers(fmt.Sprint(key.Member), []string{"A", "no"}[key.Member%2])
	}
	tokens := map[string]map[string]float64{}
	for _, form := range forms {
		_, actor, m := take(t, o, form, write, func(*toyActor) {})
		tokens[form] = m
		if want := map[string]int{FormCached: 3 * 4 * 4 * 2}[form]; actor.along != want {
			t.Errorf("%s: %d pieces were scored in the rollout, want %d", form, actor.along, want)
		}
		for _, stage := range []string{stageRollout, stageMemory, stageOld, stageRef} {
			if m[metrics.Time(stage)] <= 0 {
				t.Errorf("%s: %s took %v s", form, stage, m[metrics.Time(stage)])
			}
		}
	}
	// Of each memory: <answer>A behind its context, and <mem>notes10</mem><answer>A behind the prompt.
	long, short := len("<mem>notes10</mem>"), len("<mem>0</mem>")
	branches := float64(3 * 4 * (4*2*len("<answer>A") + 3*long + short))
	memory, old, ref := metrics.Tokens(stageMemory), metrics.Tokens(stageOld), metrics.Tokens(stageRef)
	cached, shared, naive := tokens[FormCached], tokens[FormShared], tokens[FormNaive]
	if cached[memory] != branches || shared[memory] > branches || shared[memory] < branches/2 || naive[memory] < 10*branches {
		t.Errorf("memories: %v, %v and %v tokens, the branches have %v", naive[memory], shared[memory], cached[memory], branches)
	}
	prompts := float64(3 * 3 * (len("Q: who is a?\nA: ") - 1)) // of the members but one of each question, less a token
	if shared[old] > naive[old]-prompts || cached[old] != shared[old] || shared[ref] != shared[old] || naive[ref] != naive[old] {
		t.Errorf("old: %v, %v and %v tokens; ref: %v, %v and %v", naive[old], shared[old], cached[old], naive[ref], shared[ref], cached[ref])
	}
}

// A golden answer of no tokens measures no memory, in whatever form.
func TestAnEmptyAnswerMeasuresNothing(t *testing.T) {
	for _, form := range forms {
		o := toyOptions(4)
		o.Scoring.Form = form
		trainer, _ := newToyTrainer(t, o, mixed)
		questions := drawn("a", "b")
		questions[0].Question.Objectives = [][]string{{" "}}
		result, err := trainer.Step(context.Background(), 1, questions)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		measured := map[string]int{}
		for _, record := range result.Records {
			for _, turn := range record.Turns {
				if turn.MemoryReward != nil {
					measured[record.QuestionID]++
				}
			}
		}
		if measured["a"] != 0 || measured["b"] == 0 {
			t.Errorf("%s: memories measured by question: %v", form, measured)
		}
	}
}

// With log-probabilities of the rollout one trajectory of each question is computed anew, another
// one from step to step.
func TestASampleIsComputedAnew(t *testing.T) {
	o := toyOptions(4)
	o.Scoring.RolloutOldLogProbs = true
	trainer, _ := newToyTrainer(t, o, mixed)
	rows := make([]trainedRow, 0, 24)
	for g := range 3 {
		for member := range 4 {
			rows = append(rows, trainedRow{group: g, member: member}, trainedRow{group: g, member: member}) // of two turns
		}
	}
	seen := map[string]bool{}
	for step := 1; step <= 20; step++ {
		chosen := trainer.chosen(step, rows)
		if len(chosen) != 6 {
			t.Fatalf("rows %v, want two of each question", chosen)
		}
		for k := range 3 {
			if first, second := rows[chosen[2*k]], rows[chosen[2*k+1]]; first.group != k || !reflect.DeepEqual(first, second) {
				t.Fatalf("rows %v are not one trajectory of each question", chosen)
			}
		}
		if !reflect.DeepEqual(chosen, trainer.chosen(step, rows)) {
			t.Error("the choice is not a function of seed and step")
		}
		seen[fmt.Sprint(chosen)] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d different choices in 20 steps", len(seen))
	}
}

func TestAnUnknownFormIsRefused(t *testing.T) {
	o := toyOptions(2)
	o.Scoring.Form = "tree"
	actor := newToyActor(t, mixed)
	if _, err := New(actor, actor.frozen(0), o, Watch{}); err == nil || !strings.Contains(err.Error(), `form is "tree"`) {
		t.Errorf("got %v", err)
	}
}
