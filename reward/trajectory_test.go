package reward

import (
	"testing"

	"github.com/mempo-train/mempo-train/rollout"
)

func TestGradeTrajectory(t *testing.T) {
	answer, objectives := "Ada; no", [][]string{{"ada"}, {"bob"}}
	good, bad := rollout.Turn{}, rollout.Turn{FormatError: "missing_mem"}
	for _, test := range []struct {
		name   string
		turns  []rollout.Turn
		stop   rollout.StopReason
		em     float64
		format bool
	}{
		{"answered", []rollout.Turn{good, good}, rollout.Answered, 0.5, true},
		{"one turn breaks the format", []rollout.Turn{bad, good}, rollout.Answered, 0.5, false},
		{"the last turn does not answer", []rollout.Turn{good, good}, rollout.MaxTurns, 0.5, false},
		{"a failed one is not graded", []rollout.Turn{good}, rollout.FailedTool, 0, false},
	} {
		got := GradeTrajectory(&rollout.Trajectory{Turns: test.turns, Stop: test.stop, Answer: &answer}, objectives)
		if got.EM != test.em || got.EMSum != 2*test.em || got.FormatOK != test.format {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
}
