package trainer

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// graderFunc is a grader made of a function.
type graderFunc func(reward.Answered) (float64, error)

func (f graderFunc) Grade(_ context.Context, a reward.Answered) (float64, error) { return f(a) }

// byMember writes an answer that names the member; that of member 3 breaks the format.
func byMember(key rollout.SeedKey) string {
	answer := answers("m", key.Question+string(rune('0'+key.Member)))
	if key.Member == 3 {
		return "x" + answer
	}
	return answer
}

func TestGraderTakesThePlaceOfTheExactMatch(t *testing.T) {
	o := toyOptions(4)
	var mutex sync.Mutex
	asked := map[string]reward.Answered{}
	slow := true
	o.Reward.Grader = graderFunc(func(a reward.Answered) (float64, error) {
		mutex.Lock()
		asked[*a.Answer] = a
		mutex.Unlock()
		if slow {
			time.Sleep(50 * time.Millisecond) // longer than the generation
		}
		if *a.Answer == "a1" {
			return 0, errors.New("no idea")
		}
		return float64((*a.Answer)[1]-'0') + 0.5, nil
	})
	take := func() *Result {
		trainer, actor := newToyTrainer(t, o, byMember)
		return step(t, trainer, actor, "a", "b")
	}
	result := take()
	if len(asked) != 6 || asked["b2"].Question != question("b").Text || !asked["b2"].FormatOK || len(asked["b2"].Turns) != 1 {
		t.Errorf("asked %+v", asked)
	}
	for _, r := range result.Records {
		want := float64(r.Member) + 0.5
		switch {
		case r.QuestionID == "a" && r.Member == 1:
			if r.Stop != rollout.FailedTool || !strings.Contains(r.StopDetail, "could not be graded: no idea") || r.Score != nil {
				t.Errorf("the grading of a1 failed: %s, %s, score %v", r.Stop, r.StopDetail, r.Score)
			}
			for k := range r.ResponseMask {
				if r.ResponseMask[k] != 0 || r.Advantages[k] != 0 {
					t.Fatal("it is trained on")
				}
			}
			continue
		case r.Member == 3:
			want = 0 // the gate
		}
		if r.Score == nil || float64(*r.Score) != want {
			t.Errorf("%s%d: score %v, want %v", r.QuestionID, r.Member, r.Score, want)
		}
	}
	m := result.Metrics
	if want := (0.5 + 2.5 + 0 + 0.5 + 1.5 + 2.5 + 0) / 7; math.Abs(m[metrics.ScoreTotal]-want) > 1e-12 || m[metrics.RewardFailed] != 1 {
		t.Errorf("score %v, want %v; %v failed", m[metrics.ScoreTotal], want, m[metrics.RewardFailed])
	}
	if m[metrics.RolloutStop("failed_tool")] != 1.0/8 || m[metrics.ToolsFailed] != 0 {
		t.Errorf("failed_tool %v, tools/failed %v", m[metrics.RolloutStop("failed_tool")], m[metrics.ToolsFailed])
	}
	slow = false
	for k, r := range take().Records {
		before := result.Records[k]
		if before.Stop != r.Stop || (r.Score == nil) != (before.Score == nil) || r.Score != nil && *r.Score != *before.Score {
			t.Errorf("record %d depends on how long grading takes", k)
		}
	}
}

func TestNothingIsGraded(t *testing.T) {
	o := toyOptions(2)
	o.Reward.Grader = graderFunc(func(reward.Answered) (float64, error) { return 0, errors.New("gone") })
	trainer, _ := newToyTrainer(t, o, func(rollout.SeedKey) string { return answers("m", "A") })
	_, err := trainer.Step(t.Context(), 1, drawn("a"))
	var nothing *ErrNothingValid
	if !errors.As(err, &nothing) || !strings.Contains(nothing.Detail, "gone") {
		t.Errorf("got %v", err)
	}
}

// A generation that fails does not wait for its graders.
func TestGradersEndWithAFailedGeneration(t *testing.T) {
	o := toyOptions(2)
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string {
		if key.Member == 0 {
			return answers("m", "A")
		}
		return searches("m", "q")
	})
	ended := make(chan struct{})
	trainer.Reward.Grader = endlessGrader{ended}
	actor.onStep = func(keys []rollout.SeedKey) error {
		if len(keys) > 0 && keys[0].Turn > 0 {
			return errors.New("broken")
		}
		return nil
	}
	if _, err := trainer.Step(t.Context(), 1, drawn("a")); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the grader goes on")
	}
}

// endlessGrader grades until its context ends.
type endlessGrader struct{ ended chan struct{} }

func (g endlessGrader) Grade(ctx context.Context, _ reward.Answered) (float64, error) {
	<-ctx.Done()
	close(g.ended)
	return 0, ctx.Err()
}
