package reward

import "github.com/mempo-train/mempo-train/rollout"

// TrajectoryGrade says how well a trajectory answered and whether it kept the format.
type TrajectoryGrade struct {
	Grade
	Graded   *float64 // the score of a Grader, under the rule of Score; nil without one
	FormatOK bool     // every turn keeps the format and the last one answers
}

// GradeTrajectory grades what the model wrote in a trajectory that has ended, and nothing else. One
// that failed is not graded: its grade is zero and enters no statistic.
func GradeTrajectory(t *rollout.Trajectory, objectives [][]string) TrajectoryGrade {
	if t.Stop.Failed() {
		return TrajectoryGrade{}
	}
	grade := TrajectoryGrade{Grade: GradeAnswer(t.Answer, objectives), FormatOK: t.Stop == rollout.Answered}
	for _, turn := range t.Turns {
		grade.FormatOK = grade.FormatOK && turn.FormatError == ""
	}
	return grade
}
