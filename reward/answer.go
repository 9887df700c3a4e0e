// Package reward says what a trajectory is worth: how well its answer matches the golden ones,
// whether it kept the format, and what its memories are worth.
package reward

import (
	"fmt"
	"strings"
)

// Grade compares an answer with the golden answers of one or more objectives.
type Grade struct {
	EM         float64 // mean of the objectives' exact matches
	EMSum      float64 // their sum
	F1         float64 // mean of the objectives' F1
	Objectives []ObjectiveGrade
}

// ObjectiveGrade is the grade of one objective.
type ObjectiveGrade struct {
	Normalized string  // the part of the answer that belongs to this objective, normalised
	EM         float64 // 1 if it equals a golden answer, else 0
	F1         float64 // best token F1 over the golden answers
}

// Normalized is the whole answer normalised, objective by objective, joined by "; ".
func (g Grade) Normalized() string {
	parts := make([]string, len(g.Objectives))
	for k, objective := range g.Objectives {
		parts[k] = objective.Normalized
	}
	return strings.Join(parts, "; ")
}

// GradeAnswer grades a prediction, nil for none, against the golden answers of each objective.
// With several objectives the prediction is split at ';' and its parts are matched in order:
// missing parts get 0, extra ones are ignored.
func GradeAnswer(prediction *string, objectives [][]string) Grade {
	grade := Grade{Objectives: make([]ObjectiveGrade, len(objectives))}
	if prediction == nil || len(objectives) == 0 {
		return grade
	}
	parts := []string{*prediction}
	if len(objectives) > 1 {
		parts = strings.Split(*prediction, ";")
	}
	for k, golden := range objectives[:min(len(parts), len(objectives))] {
		objective := gradeObjective(parts[k], golden)
		grade.Objectives[k] = objective
		grade.EMSum += objective.EM
		grade.F1 += objective.F1
	}
	grade.EM = grade.EMSum / float64(len(objectives))
	grade.F1 /= float64(len(objectives))
	return grade
}

func gradeObjective(prediction string, golden []string) ObjectiveGrade {
	grade := ObjectiveGrade{Normalized: Normalize(prediction)}
	for _, answer := range golden {
		want := Normalize(answer)
		if grade.Normalized != "" && grade.Normalized == want {
			grade.EM = 1
		}
		grade.F1 = max(grade.F1, f1(grade.Normalized, want))
	}
	return grade
}

// f1 is the harmonic mean of the precision and recall of words, both texts normalised. yes, no and
// noanswer match whole or not at all, as in HotpotQA's scorer.
func f1(prediction, golden string) float64 {
	for _, text := range []string{prediction, golden} {
		if (text == "yes" || text == "no" || text == "noanswer") && prediction != golden {
			return 0
		}
	}
	predicted, wanted := strings.Fields(prediction), strings.Fields(golden)
	left := map[string]int{}
	for _, word := range wanted {
		left[word]++
	}
	common := 0
	for _, word := range predicted {
		if left[word] > 0 {
			left[word]--
			common++
		}
	}
	if common == 0 {
		return 0
	}
	return 2 * float64(common) / float64(len(predicted)+len(wanted))
}

// Score is the score of a trajectory by its outcome, which is the exact match, mean over objectives,
// or what a Grader says, under the rule of reward.format_reward. "gate": 0 when the format is broken;
// "bonus": weight is added when it holds; "off": the format does not count.
func Score(outcome float64, formatOK bool, formatReward string, weight float64) (float64, error) {
	switch formatReward {
	case "gate":
		if !formatOK {
			return 0, nil
		}
		return outcome, nil
	case "bonus":
		if formatOK {
			return outcome + weight, nil
		}
		return outcome, nil
	case "off":
		return outcome, nil
	}
	return 0, fmt.Errorf(`format_reward is %q, allowed: "gate", "bonus" or "off"`, formatReward)
}
