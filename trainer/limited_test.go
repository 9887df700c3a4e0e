package trainer

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/batch"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// limitedOptions train groups of four in limited context.
func limitedOptions() Options {
	o := toyOptions(4)
	o.Rollout.Context = rollout.Limited
	return o
}

// unequal is a group of four trajectories of 1, 4, 2 and 1 turns, of which the first answers right.
var unequal = scripted(
	[]string{answers("m", "A")},
	[]string{searches("m1", "1"), searches("m2", "2"), searches("m3", "3"), answers("m4", "no")},
	[]string{searches("n1", "1"), answers("n2", "no")},
	[]string{answers("m", "no")},
)

// rowOf finds the turn that a row of the update was made of.
func rowOf(t *testing.T, result *Result, row model.TrainRow) (*rollout.Record, rollout.TurnRecord) {
	t.Helper()
	for _, record := range result.Records {
		for _, turn := range record.Turns {
			if ids := slices.Concat(turn.ContextIDs, record.ResponseIDs[turn.Tokens[0]:turn.Tokens[1]]); slices.Equal(ids, row.IDs) {
				return record, turn
			}
		}
	}
	t.Fatalf("a row holds %q, which is no turn behind its context", decode(row.IDs))
	return nil, rollout.TurnRecord{}
}

// Each turn is a row of its own, behind what it was conditioned on and nothing else.
func TestEachTurnIsARowInALimitedContext(t *testing.T) {
	o := limitedOptions()
	o.Rollout.Prefill = "<mem>"
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string { return unequal(key)[len("<mem>"):] })
	result := step(t, trainer, actor, "a")
	rows := actor.rows()
	if len(rows) != 8 {
		t.Errorf("%d rows for 8 turns", len(rows))
	}
	trained := 0
	for _, row := range rows {
		record, turn := rowOf(t, result, row)
		for k, position := range row.Positions {
			at := int(position) - len(turn.ContextIDs) + turn.Tokens[0]
			if at < turn.Tokens[0]+len("<mem>") || at >= turn.Tokens[1] || record.ResponseMask[at] != 1 {
				t.Fatalf("position %d of a row is token %d of the response, the turn has %v", position, at, turn.Tokens)
			}
			if row.Advantages[k] != record.Advantages[at] {
				t.Errorf("advantage %v, the token of the response has %v", row.Advantages[k], record.Advantages[at])
			}
		}
		if want := turn.Tokens[1] - turn.Tokens[0] - len("<mem>"); len(row.Positions) != want {
			t.Errorf("%d positions of %d sampled tokens", len(row.Positions), want)
		}
		trained += len(row.Positions)
	}
	checkTokenMean(t, rows, trained)
	for _, record := range result.Records {
		for _, sampled := range record.ResponseMask {
			trained -= sampled
		}
	}
	if trained != 0 {
		t.Errorf("%d tokens more are trained on than were sampled", trained)
	}
}

// Splitting trajectories into turns changes nothing about their group: its statistics run over four
// trajectories, not over eight rows.
func TestGroupStatisticsRunOverTrajectoriesInALimitedContext(t *testing.T) {
	o := limitedOptions()
	o.Reward.MemoryReward = "off"
	trainer, actor := newToyTrainer(t, o, unequal)
	result := step(t, trainer, actor, "a")
	want := []float64{1.5, -0.5, -0.5, -0.5}
	turns := make([]int, 4)
	for _, row := range actor.rows() {
		record, _ := rowOf(t, result, row)
		turns[record.Member]++
		for _, advantage := range row.Advantages {
			if !near(float64(advantage), want[record.Member]) {
				t.Errorf("trajectory %d: advantage %v, want %v", record.Member, advantage, want[record.Member])
			}
		}
	}
	if !slices.Equal(turns, []int{1, 4, 2, 1}) {
		t.Errorf("rows of %v turns", turns)
	}
	if m := result.Metrics; m[metrics.RolloutTurns] != 2 || !near(m[metrics.AdvantageOutcomeStd], 0.5) || m[metrics.ScoreEM] != 0.25 {
		t.Errorf("turns %v, deviation %v, EM %v", m[metrics.RolloutTurns], m[metrics.AdvantageOutcomeStd], m[metrics.ScoreEM])
	}
}

// "seq" means trajectory: the rows of one share its weight, however many they are.
func TestAggregationRunsOverTrajectoriesInALimitedContext(t *testing.T) {
	lengths := make([]int, 4) // sampled tokens of each trajectory
	for member := range lengths {
		for turn := range []int{1, 4, 2, 1}[member] {
			lengths[member] += len(unequal(rollout.SeedKey{Member: member, Turn: turn}))
		}
	}
	all := float64(lengths[0] + lengths[1] + lengths[2] + lengths[3])
	for aggregation, want := range map[string]func(tokens int) float64{
		batch.TokenMean:           func(int) float64 { return 1 / all },
		batch.SeqMeanTokenSum:     func(int) float64 { return 1.0 / 4 },
		batch.SeqMeanTokenMean:    func(tokens int) float64 { return 1 / (4 * float64(tokens)) },
		batch.SeqMeanTokenSumNorm: func(int) float64 { return 1.0 / (4 * 100) },
	} {
		var whole []float64
		for _, tokens := range []int{1, 250, 100000} {
			o := limitedOptions()
			o.Update.Aggregation, o.Update.Divisor, o.Update.MicroBatchTokens = aggregation, 100, tokens
			trainer, actor := newToyTrainer(t, o, unequal)
			result := step(t, trainer, actor, "a")
			for _, row := range actor.rows() {
				record, _ := rowOf(t, result, row)
				for _, weight := range row.Weights {
					if !near(float64(weight), want(lengths[record.Member])) {
						t.Fatalf("%s: a token of trajectory %d weighs %v, want %v", aggregation, record.Member, weight, want(lengths[record.Member]))
					}
				}
			}
			if len(actor.sizes) != 1 {
				t.Errorf("%s: %d updates, want 1", aggregation, len(actor.sizes))
			}
			if whole == nil {
				whole = actor.gradients[0]
			}
			for id, g := range actor.gradients[0] {
				if math.Abs(g-whole[id]) > 1e-9*max(1, math.Abs(g)) {
					t.Errorf("%s: gradient of token %d is %v, and %v in another split", aggregation, id, g, whole[id])
				}
			}
		}
	}
}

// The toy's log-probability depends on every token before: scored behind anything else than what
// the turn was sampled from, it would differ.
func TestLimitedRowsAreScoredAsTheyWereSampled(t *testing.T) {
	for _, tokens := range []int{1, 200, 100000} {
		o := limitedOptions()
		o.Update.MicroBatchTokens = tokens
		o.Update.Loss.ClipLow, o.Update.Loss.ClipHigh = 0, 0 // any ratio but 1 is clipped
		trainer, actor := newToyTrainer(t, o, mixed)
		trainer.reference = actor.frozen(0)
		m := step(t, trainer, actor, "a", "b").Metrics
		if m[metrics.LossClipFraction] != 0 || m[metrics.LossKL] != 0 || m[metrics.LossRolloutDifference] != 0 || m[metrics.LossGradNorm] == 0 {
			t.Errorf("clip fraction %v, KL %v, difference of sampler and trainer %v, gradient %v", m[metrics.LossClipFraction], m[metrics.LossKL],
				m[metrics.LossRolloutDifference], m[metrics.LossGradNorm])
		}
		scored := 0.0
		for _, row := range actor.rows() {
			scored += float64(len(row.IDs))
		}
		if m[metrics.Tokens(stageOld)] != scored || m[metrics.Tokens(stageRef)] != scored || m[metrics.Tokens(stageUpdate)] != scored {
			t.Errorf("tokens scored %v and %v, trained %v, rows hold %v", m[metrics.Tokens(stageOld)], m[metrics.Tokens(stageRef)], m[metrics.Tokens(stageUpdate)], scored)
		}
	}
}

// The memory reward measures against the whole history in order, whatever the turn saw.
func TestTheMemoryRewardKeepsTheWholeHistory(t *testing.T) {
	var contexts [2][]string
	for k, context := range []rollout.Context{rollout.Full, rollout.Limited} {
		o := toyOptions(4)
		o.Rollout.Context = context
		trainer, actor := newToyTrainer(t, o, unequal)
		step(t, trainer, actor, "a")
		for _, call := range actor.calls {
			for _, row := range call.rows {
				if call.temperature == memoryTemperature {
					contexts[k] = append(contexts[k], decode(row.IDs))
				}
			}
		}
	}
	if len(contexts[0]) != 2*4 || !slices.Equal(contexts[0], contexts[1]) {
		t.Errorf("in full context %q, in limited context %q", contexts[0], contexts[1])
	}
}

func TestAHistoryLongerThanTheModelsContextHasNoMemoryReward(t *testing.T) {
	o := limitedOptions()
	trainer, actor := newToyTrainer(t, o, unequal)
	longest := 0
	for _, record := range step(t, trainer, actor, "a").Records {
		last := record.Turns[len(record.Turns)-1]
		longest = max(longest, len(record.PromptIDs)+last.Tokens[0]+len("<answer>A"))
	}
	for bound, want := range map[int]int{0: 4, longest: 4, longest - 1: 3} {
		o.Reward.ContextLength = bound
		trainer, actor := newToyTrainer(t, o, unequal)
		measured := 0
		for _, record := range step(t, trainer, actor, "a").Records {
			for _, turn := range record.Turns {
				if turn.MemoryReward != nil {
					measured++
				}
			}
		}
		if measured != want {
			t.Errorf("a context of %d: %d memories have a reward, want %d", bound, measured, want)
		}
	}
}

// A trajectory of one turn is trained on as in full context, to the last bit.
func TestTrajectoriesOfOneTurnTrainAlikeInBothContexts(t *testing.T) {
	var rows [2][]model.TrainRow
	var figures [2]string
	for k, context := range []rollout.Context{rollout.Full, rollout.Limited} {
		o := toyOptions(4)
		o.Rollout.Context = context
		trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string {
			return answers("m", map[bool]string{true: "A", false: "no"}[key.Member == 1])
		})
		m := step(t, trainer, actor, "a", "b").Metrics
		for _, stage := range []string{stageRollout, stageMemory, stageOld, stageRef, stageUpdate, "step"} {
			delete(m, metrics.Time(stage))
		}
		rows[k], figures[k] = actor.rows(), fmt.Sprint(m)
	}
	if !reflect.DeepEqual(rows[0], rows[1]) || len(rows[0]) != 8 {
		t.Error("the rows differ")
	}
	if figures[0] != figures[1] {
		t.Errorf("in full context\n%s, in limited context\n%s", figures[0], figures[1])
	}
}

func TestMemoryAdvantageLandsOnItsTurnsRow(t *testing.T) {
	memories := []float64{0.52, 0.51, 0.53, 0.52}
	trainer, actor := newToyTrainer(t, limitedOptions(), func(key rollout.SeedKey) string {
		if key.Turn == 0 {
			return searches("first", "x")
		}
		return answers(fmt.Sprint("p=", memories[key.Member]), "no")
	})
	actor.probability = memoryProbability
	result := step(t, trainer, actor, "a")
	for _, row := range actor.rows() {
		record, turn := rowOf(t, result, row)
		for k, position := range row.Positions {
			want := 0.0
			if at := int(position) - len(turn.ContextIDs) + turn.Tokens[0]; turn.Tokens[0] > 0 && at < turn.Memory[1] {
				want = []float64{0, -1.224745, 1.224745, 0}[record.Member]
			}
			if math.Abs(float64(row.Advantages[k])-want) > 1e-3 {
				t.Fatalf("trajectory %d: position %d has advantage %v, want %v", record.Member, position, row.Advantages[k], want)
			}
		}
	}
}

func TestACappedMemoryIsTrainedWhole(t *testing.T) {
	o := limitedOptions()
	o.Rollout.MemoryTokens = len("<mem>m</mem>")
	trainer, actor := newToyTrainer(t, o, unequal)
	result := step(t, trainer, actor, "a")
	if cut := result.Metrics[metrics.RolloutMemoryCut]; cut != 4 {
		t.Errorf("%v memories were cut, want 4", cut)
	}
	second := result.Records[1].Turns[1]
	if !strings.Contains(second.Context, "<mem>m</mem><search>1</search>") || !strings.HasPrefix(second.Text, "<mem>m2</mem>") || !second.MemoryCut {
		t.Errorf("the turn saw %q and wrote %q", second.Context, second.Text)
	}
	for _, row := range actor.rows() {
		_, turn := rowOf(t, result, row)
		if int(row.Positions[0]) != len(turn.ContextIDs) || len(row.Positions) != len(turn.Text) {
			t.Errorf("trained on %d tokens from %d on, of %q behind %d", len(row.Positions), row.Positions[0], turn.Text, len(turn.ContextIDs))
		}
	}
}
