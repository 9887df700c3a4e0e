package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// Trajectories of many turns weigh no more in their group than those of one.
func TestGroupStatisticsRunOverTrajectories(t *testing.T) {
	trainer, actor := newToyTrainer(t, toyOptions(4), scripted(
		[]string{answers("m", "A")},
		[]string{searches("m", "1"), searches("m", "2"), searches("m", "3"), answers("m", "no")},
		[]string{searches("m", "1"), answers("m", "no")},
		[]string{answers("m", "no")},
	))
	result := step(t, trainer, actor, "a")
	for k, want := range []float64{1.5, -0.5, -0.5, -0.5} {
		if got := advantagesOf(result)[k]; !near(got, want) {
			t.Errorf("advantage %d is %v, want %v", k, got, want)
		}
	}
	if turns := result.Metrics[metrics.RolloutTurns]; turns != 2 {
		t.Errorf("%v turns on average, want 2", turns)
	}
	if std := result.Metrics[metrics.AdvantageOutcomeStd]; !near(std, 0.5) {
		t.Errorf("deviation %v, want 0.5", std)
	}
}

// failFor is a search engine that fails for a query.
func failFor(query string) searchFunc {
	return func(ctx context.Context, asked string) ([]retrieval.Passage, error) {
		if strings.Contains(asked, query) {
			return nil, &retrieval.ServiceError{Service: "search", URL: "http://search.test/retrieve", Attempts: 3, Timeouts: 1, Kind: retrieval.KindStatus, Detail: "500"}
		}
		return echo(ctx, asked)
	}
}

func TestAFailedTrajectoryEntersNoStatisticAndNoUpdate(t *testing.T) {
	o := toyOptions(4)
	o.Tools.Search = failFor("broken")
	// The failed one has a memory with a reward before it fails.
	trainer, actor := newToyTrainer(t, o, scripted(
		[]string{answers("m", "A")},
		[]string{searches("m", "x"), answers("mm", "no")},
		[]string{searches("m", "x"), searches("mmmmmmmmmm", "broken")},
		[]string{searches("m", "x"), answers("mmm", "A")},
	))
	trainer.actor.(*toyActor).probability = func(context string) float64 { return 1 / float64(len(context)) }
	result := step(t, trainer, actor, "a")
	failed := result.Records[2]
	if failed.Stop != rollout.FailedTool || failed.Score != nil || failed.Rewards != nil {
		t.Errorf("the third trajectory is %s with score %v, %v", failed.Stop, failed.Score, failed.Rewards)
	}
	for k, want := range []float64{0.57735, -1.154701, 0, 0.57735} {
		if got := advantagesOf(result)[k]; !near(got, want) {
			t.Errorf("advantage %d is %v, want %v", k, got, want)
		}
	}
	for k := range failed.ResponseIDs {
		if failed.ResponseMask[k] != 0 || failed.Advantages[k] != 0 {
			t.Fatalf("token %d of the failed trajectory has mask %d and advantage %v", k, failed.ResponseMask[k], failed.Advantages[k])
		}
	}
	for k, turn := range failed.Turns {
		if turn.MemoryReward != nil {
			t.Errorf("turn %d of the failed trajectory has a memory reward", k+1)
		}
	}
	if rows := len(actor.rows()); rows != 3 {
		t.Errorf("%d rows were trained on, want 3", rows)
	}
	m := result.Metrics
	third := 1.0 / 3
	for name, want := range map[string]float64{
		metrics.ScoreEM: 2 * third, metrics.ScoreTotal: 2 * third, metrics.ScoreFormat: 1, metrics.ScoreF1: 2 * third,
		metrics.RolloutTurns: 5 * third, metrics.MemoryTokens: (12 + 12 + 13 + 12 + 14) / 5.0,
		metrics.RolloutStop("failed_tool"): 0.25, metrics.RolloutStop("answered"): 0.75,
		metrics.ToolsFailed: 1, metrics.ToolsTimeouts: 1, metrics.RolloutToolCalls: 4, metrics.TrainGroupsLeftOut: 0,
		metrics.RolloutResponseTokens: meanLength(result.Records[0], result.Records[1], result.Records[3]),
	} {
		if !near(m[name], want) {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
}

func meanLength(records ...*rollout.Record) float64 {
	sum := 0.0
	for _, record := range records {
		sum += float64(len(record.ResponseIDs))
	}
	return sum / float64(len(records))
}

// A trajectory without a token of the model's is no answer that is wrong.
func TestATrajectoryThatNeverStartedIsNotGraded(t *testing.T) {
	trainer, actor := newToyTrainer(t, toyOptions(3), scripted([]string{answers("m", "A")}))
	const delay = 30 * time.Millisecond
	actor.onStep = func(begin []rollout.SeedKey) error {
		for _, key := range begin {
			if key.Member == 1 {
				if len(begin) == 1 {
					time.Sleep(delay)
				}
				return fmt.Errorf("no room: %w", model.ErrOutOfMemory)
			}
		}
		return nil
	}
	result := step(t, trainer, actor, "a")
	failed := result.Records[1]
	if failed.Stop != rollout.FailedEngine || !strings.HasPrefix(failed.StopDetail, "no_tokens") || failed.Score != nil {
		t.Errorf("it ended as %s (%s) with score %v", failed.Stop, failed.StopDetail, failed.Score)
	}
	if seconds := failed.ElapsedSeconds; seconds < delay.Seconds() || seconds > 30 {
		t.Errorf("it took %v s, which was not measured", seconds)
	}
	m := result.Metrics
	if m[metrics.ScoreEM] != 1 || m[metrics.ScoreTotal] != 1 || m[metrics.RolloutTurns] != 1 || !near(m[metrics.RolloutStop("failed_engine")], 1.0/3) {
		t.Errorf("EM %v, score %v, turns %v, failed %v", m[metrics.ScoreEM], m[metrics.ScoreTotal], m[metrics.RolloutTurns], m[metrics.RolloutStop("failed_engine")])
	}
}

// memoryProbability reads the probability of the answer from the memory ("p=0.7"); in the full
// context it is 0.5.
func memoryProbability(context string) float64 {
	if strings.Contains(context, "</think>") {
		return 0.5
	}
	var p float64
	at := strings.Index(context, "<mem>p=")
	if n, err := fmt.Sscanf(context[at:], "<mem>p=%g<", &p); n != 1 {
		panic(fmt.Sprint("the context of a memory is ", context, ": ", err))
	}
	return p
}

func TestMemoryAdvantageLandsOnMemoryTokensOnly(t *testing.T) {
	memories := []float64{0.52, 0.51, 0.53, 0.52}
	script := func(key rollout.SeedKey) string {
		if key.Turn == 0 {
			return searches("first", "x")
		}
		return answers(fmt.Sprint("p=", memories[key.Member]), "no")
	}
	tests := map[string]struct {
		change func(*Options)
		want   []float64
	}{
		"as it is":   {func(*Options) {}, []float64{0, -1.224745, 1.224745, 0}},
		"with floor": {func(o *Options) { o.Advantage.MemoryMinStd = 0.05 }, []float64{0, -0.2, 0.2, 0}},
		"gated":      {func(o *Options) { o.Advantage.MemoryGate = "any_success" }, []float64{0, 0, 0, 0}},
		"weighted":   {func(o *Options) { o.Advantage.MemoryWeight = 0.3 }, []float64{0, -0.3 * 1.224745, 0.3 * 1.224745, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := toyOptions(4)
			test.change(&o)
			trainer, actor := newToyTrainer(t, o, script)
			actor.probability = memoryProbability
			result := step(t, trainer, actor, "a")
			for i, record := range result.Records {
				second := record.Turns[1]
				if reward := float64(*second.MemoryReward); !near(reward, memories[i]-0.5) {
					t.Errorf("reward %d is %v, want %v", i, reward, memories[i]-0.5)
				}
				if record.Turns[0].MemoryReward != nil {
					t.Error("the first turn has a memory reward")
				}
				for k, got := range record.Advantages {
					want := 0.0
					if k >= second.Memory[0] && k < second.Memory[1] {
						want = test.want[i]
					}
					if math.Abs(float64(got)-want) > 1e-3*max(1, math.Abs(want)) {
						t.Fatalf("trajectory %d: token %d has advantage %v, want %v", i, k, got, want)
					}
				}
			}
		})
	}
}

// cut writes searches until a limit cuts it.
func cut(rollout.SeedKey) string { return searches("m", "x") }

func TestTruncatedTrajectories(t *testing.T) {
	script := func(key rollout.SeedKey) string {
		if key.Member < 2 {
			return cut(key)
		}
		return answers("m", map[bool]string{true: "A", false: "no"}[key.Member == 2])
	}
	for truncated, want := range map[string]int{"score": 4, "zero": 4, "mask": 2} {
		t.Run(truncated, func(t *testing.T) {
			o := toyOptions(4)
			o.Reward.Truncated = truncated
			trainer, actor := newToyTrainer(t, o, script)
			result := step(t, trainer, actor, "a")
			if rows := len(actor.rows()); rows != want {
				t.Errorf("%d rows were trained on, want %d", rows, want)
			}
			trained := 0
			for _, record := range result.Records[4-want:] {
				for _, sampled := range record.ResponseMask {
					trained += sampled
				}
			}
			checkTokenMean(t, actor.rows(), trained)
			for _, record := range result.Records[:2] {
				if record.Stop != rollout.MaxTurns || !record.Truncated {
					t.Errorf("a trajectory of searches ended as %s", record.Stop)
				}
			}
			// Masked or not, its score counts in the group: 0, 0, 1, 0.
			if advantage := advantagesOf(result)[2]; !near(advantage, 1.5) {
				t.Errorf("advantage %v, want 1.5", advantage)
			}
			if share := result.Metrics[metrics.RolloutTruncated]; share != 0.5 {
				t.Errorf("share of truncated ones %v", share)
			}
		})
	}
}

// checkTokenMean checks that the rows hold that many trained tokens, each of the same weight, and
// that the weights add up to 1.
func checkTokenMean(t *testing.T, rows []model.TrainRow, trained int) {
	t.Helper()
	tokens := 0
	for _, row := range rows {
		for _, weight := range row.Weights {
			tokens++
			if weight != 1/float32(trained) {
				t.Fatalf("a token weighs %v, want 1/%d", weight, trained)
			}
		}
	}
	if tokens != trained {
		t.Errorf("%d tokens are trained on, want %d", tokens, trained)
	}
}

func gradeAlone(t *testing.T, trainer *Trainer, trajectory *rollout.Trajectory) (Outcome, error) {
	t.Helper()
	return trainer.outcome(trajectory, reward.GradeTrajectory(trajectory, question("a").Objectives), reward.NewGrading(t.Context(), nil))
}

// An answer and a limit do not meet in a rollout; the rule is there all the same.
func TestATruncatedScoreIsTakenAway(t *testing.T) {
	for truncated, want := range map[string]float64{"score": 1, "zero": 0, "mask": 1} {
		o := toyOptions(2)
		o.Reward.Truncated, o.Reward.FormatReward = truncated, "off"
		trainer := &Trainer{Options: o}
		answer := "A"
		outcome, err := gradeAlone(t, trainer, &rollout.Trajectory{Stop: rollout.MaxResponse, Answer: &answer})
		if err != nil || outcome.Score != want || outcome.EM != 1 || outcome.FormatOK {
			t.Errorf("%s: %+v, %v; want the score %v", truncated, outcome, err, want)
		}
		outcome, err = gradeAlone(t, trainer, &rollout.Trajectory{Stop: rollout.FailedDeadline, Answer: &answer})
		if err != nil || outcome.Score != 0 || outcome.EM != 0 || outcome.Objectives != nil {
			t.Errorf("a failed trajectory is graded: %+v, %v", outcome, err)
		}
	}
}

func TestAGroupOfTooFewIsLeftOutAndCounted(t *testing.T) {
	o := toyOptions(3)
	o.Advantage.MinGroup = 3
	o.Tools.Search = failFor("broken")
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string {
		if key.Question == "b" && key.Member == 0 {
			return searches("m", "broken")
		}
		return answers("m", map[bool]string{true: "A", false: "no"}[key.Member == 1])
	})
	result := step(t, trainer, actor, "a", "b")
	if left := result.Metrics[metrics.TrainGroupsLeftOut]; left != 1 {
		t.Errorf("%v groups left out, want 1", left)
	}
	for _, row := range actor.rows() {
		if !strings.Contains(decode(row.IDs), "who is a?") {
			t.Errorf("trained on %q", decode(row.IDs))
		}
	}
	if rows := len(actor.rows()); rows != 3 {
		t.Errorf("%d rows, want 3", rows)
	}
	// Its trajectories are graded all the same.
	if em := result.Metrics[metrics.ScoreEM]; !near(em, 1.0/5) {
		t.Errorf("EM is %v, want 1/5", em)
	}
}

// One trajectory that asks no service is not enough for a step: all groups are too small.
func TestAStepThatFailuresLeaveNothingToTrainOnDoesNotCount(t *testing.T) {
	o := toyOptions(2)
	o.Tools.Search = failFor("broken")
	half := scripted([]string{searches("m", "broken")}, []string{answers("m", "A")})
	trainer, actor := newToyTrainer(t, o, half)
	result, err := trainer.Step(t.Context(), 1, drawn("a", "b"))
	var nothing *ErrNothingValid
	if !errors.As(err, &nothing) || nothing.MinGroup != 2 || !strings.Contains(err.Error(), "search service http://search.test/retrieve") || result != nil {
		t.Errorf("got %v, %v", result, err)
	}
	if len(actor.micro) != 0 || len(actor.gradients) != 0 || trainer.Counters != (Counters{}) {
		t.Errorf("%d micro-batches, %d updates, counters %+v", len(actor.micro), len(actor.gradients), trainer.Counters)
	}
	// Where one valid trajectory is enough for a question, it is a step.
	o.Advantage.MinGroup = 1
	trainer, actor = newToyTrainer(t, o, half)
	if m := step(t, trainer, actor, "a", "b").Metrics; m[metrics.ScoreEM] != 0.5 || m[metrics.TrainGroupsLeftOut] != 0 {
		t.Errorf("EM %v, left out %v", m[metrics.ScoreEM], m[metrics.TrainGroupsLeftOut])
	}
}

func TestAStepOfFailuresNamesTheService(t *testing.T) {
	o := toyOptions(2)
	o.Tools.Search = failFor("")
	trainer, actor := newToyTrainer(t, o, cut)
	result, err := trainer.Step(context.Background(), 1, drawn("a"))
	var nothing *ErrNothingValid
	if !errors.As(err, &nothing) || !strings.Contains(err.Error(), "search service http://search.test/retrieve") || result != nil {
		t.Errorf("got %v, %v", result, err)
	}
	if len(actor.calls) != 0 || len(actor.micro) != 0 {
		t.Error("a failed step was scored or trained on")
	}
}

// One call that never returns costs one trajectory, not the step; and it does so again when the
// step is taken anew.
func TestAStuckToolCostsOneTrajectory(t *testing.T) {
	t.Parallel()
	o := toyOptions(16)
	o.Rollout.TrajectoryDeadline = time.Second
	o.Tools.Search = searchFunc(func(ctx context.Context, query string) ([]retrieval.Passage, error) {
		if strings.Contains(query, "stuck") {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return echo(ctx, query)
	})
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string {
		switch {
		case key.Turn == 1:
			return answers("m", map[bool]string{true: "A", false: "no"}[key.Member%2 == 0])
		case key.Member == 5:
			return searches("m", "stuck")
		}
		return searches("m", "x")
	})
	begun := time.Now()
	result := step(t, trainer, actor, "a")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the step took %v", took)
	}
	if stop := result.Records[5].Stop; stop != rollout.FailedDeadline || result.Records[5].ElapsedSeconds < 1 {
		t.Errorf("the stuck one ended as %s after %v s", stop, result.Records[5].ElapsedSeconds)
	}
	if share := result.Metrics[metrics.RolloutStop("answered")]; share != 15.0/16 || len(actor.rows()) != 15 {
		t.Errorf("share of answered ones %v, %d rows trained on", share, len(actor.rows()))
	}
}
