package reward

import (
	"strings"

	"github.com/mempo-train/mempo-train/model/chat"
)

// TurnsGrade is the grade of a trajectory given as the texts of its turns.
type TurnsGrade struct {
	Grade
	Answer      *string // nil without one
	FormatError string  // one of chat.FormatErrors, "" when the format holds
}

// GradeTurns grades what the model wrote, turn by turn. prefill is the opening text that every
// turn was given: it counts for tags and format, never for the answer.
func GradeTurns(turns []string, prefill string, objectives [][]string) TurnsGrade {
	whole := make([]string, len(turns))
	for k, text := range turns {
		whole[k] = prefill + text
	}
	answer := findAnswer(whole, len(prefill))
	return TurnsGrade{
		Grade:       GradeAnswer(answer, objectives),
		Answer:      answer,
		FormatError: chat.ParseTrajectory(whole),
	}
}

// findAnswer returns the content of the first action that is an answer, as far as it lies behind
// the first prefill bytes of its turn; nil without an answer, or with one that the prefill gave
// whole.
func findAnswer(turns []string, prefill int) *string {
	for _, text := range turns {
		turn := chat.ParseTurn(text)
		if turn.Action != chat.ActionAnswer {
			continue
		}
		if turn.ActionSpan.End <= prefill {
			return nil
		}
		end := turn.ActionSpan.End - len("</answer>")
		start := min(max(turn.ActionSpan.Start+len("<answer>"), prefill), end)
		answer := strings.TrimSpace(text[start:end])
		return &answer
	}
	return nil
}
