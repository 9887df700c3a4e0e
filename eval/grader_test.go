package eval

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/reward"
	"github.com/mempo-train/mempo-train/rollout"
)

type graderFunc func(reward.Answered) (float64, error)

func (f graderFunc) Grade(_ context.Context, a reward.Answered) (float64, error) { return f(a) }

func TestGrader(t *testing.T) {
	o := options()
	o.FormatReward = "bonus"
	o.FormatWeight = 0.25
	o.Grader = graderFunc(func(a reward.Answered) (float64, error) {
		if *a.Answer == "fail" {
			return 0, errors.New("no idea")
		}
		return float64(len(*a.Answer)), nil
	})
	kept := 0
	o.Keep = func(_ dataset.Question, _ int, trajectory *rollout.Trajectory, grade reward.TrajectoryGrade) error {
		if kept++; (grade.Graded == nil) != trajectory.Stop.Failed() {
			t.Errorf("%s: graded %v", trajectory.Stop, grade.Graded)
		}
		return nil
	}
	result := run(t, newWriter(answersAtOnce), questions("yes", "fail", "no"), o)
	if f := result.Overall; kept != 3 || f.Failed != 1 || f.EM != 0.5 || f.Score == nil || *f.Score != 2.75 {
		t.Errorf("%+v", f)
	}
	answers := result.Answers
	if *answers[0].Score != 3.25 || answers[1].Score != nil || answers[1].Stop != rollout.FailedTool || *answers[2].Score != 2.25 {
		t.Errorf("%+v", answers)
	}
	var table bytes.Buffer
	if err := (&Results{Contexts: []*Result{result}}).WriteTable(&table); err != nil || !strings.Contains(table.String(), "score") || !strings.Contains(table.String(), "2.750") {
		t.Errorf("%v:\n%s", err, &table)
	}
	o.Grader, o.Keep = nil, nil
	if f := run(t, newWriter(answersAtOnce), questions("yes"), o).Overall; f.Score != nil {
		t.Error("a score without a grader")
	}
}
