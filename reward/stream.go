package reward

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mempo-train/mempo-train/internal/jsonl"
)

// request is one line of the grade command. A raw message is nil when the key is absent.
type request struct {
	Prediction json.RawMessage `json:"prediction"`
	Turns      *[]string       `json:"turns"`
	Prefill    *string         `json:"prefill"`
	Golden     json.RawMessage `json:"golden_answers"`
}

// response is what the command writes for one line.
type response struct {
	Answer      *string `json:"answer"`
	EM          float64 `json:"em"`
	F1          float64 `json:"f1"`
	FormatOK    *bool   `json:"format_ok"`
	FormatError string  `json:"format_error"`
	Score       float64 `json:"score"`
	Normalized  *string `json:"normalized"`
}

// GradeStream reads one line {"prediction":"…","golden_answers":[…]} or {"turns":["…",…],
// "prefill":"…","golden_answers":[…]} and writes {"answer","em","f1","format_ok","format_error",
// "score","normalized"} for it. golden_answers is a list of strings, one string, or a list of such
// lists for several objectives. prediction may be null, for no answer. The score is the exact
// match, mean over objectives, 0 where turns break the format; with prediction format_ok is null.
// answer and normalized are null without an answer. Errors name the line.
func GradeStream(r io.Reader, w io.Writer) error {
	return jsonl.Transform(r, w, func(line []byte) (any, error) {
		var q request
		if err := jsonl.Decode(line, &q); err != nil {
			return nil, err
		}
		objectives, err := goldenAnswers(q.Golden)
		if err != nil {
			return nil, err
		}
		switch {
		case q.Prediction != nil && q.Turns != nil, q.Prediction == nil && q.Turns == nil:
			return nil, errors.New(`want "prediction" or "turns", one of the two`)
		case q.Turns != nil:
			prefill := ""
			if q.Prefill != nil {
				prefill = *q.Prefill
			}
			return answerTurns(GradeTurns(*q.Turns, prefill, objectives))
		case q.Prefill != nil:
			return nil, errors.New(`"prefill" belongs to "turns", not to "prediction"`)
		}
		var prediction *string
		if err := jsonl.Decode(q.Prediction, &prediction); err != nil {
			return nil, fmt.Errorf("prediction: %w", err)
		}
		grade := GradeAnswer(prediction, objectives)
		return newResponse(prediction, grade, grade.EM), nil
	})
}

func answerTurns(grade TurnsGrade) (any, error) {
	ok := grade.FormatError == ""
	score, err := Score(grade.EM, ok, "gate", 0)
	if err != nil {
		return nil, err
	}
	answer := newResponse(grade.Answer, grade.Grade, score)
	answer.FormatOK, answer.FormatError = &ok, grade.FormatError
	return answer, nil
}

func newResponse(answer *string, grade Grade, score float64) response {
	r := response{Answer: answer, EM: grade.EM, F1: grade.F1, Score: score}
	if answer != nil {
		normalized := grade.Normalized()
		r.Normalized = &normalized
	}
	return r
}

// goldenAnswers reads a string, a list of strings, or a list of lists of strings.
func goldenAnswers(data json.RawMessage) ([][]string, error) {
	if data == nil {
		return nil, errors.New(`no "golden_answers"`)
	}
	var one string
	if json.Unmarshal(data, &one) == nil && string(data) != "null" {
		return [][]string{{one}}, nil
	}
	var list []*string
	var lists [][]*string
	if json.Unmarshal(data, &list) == nil {
		lists = [][]*string{list}
	} else if json.Unmarshal(data, &lists) != nil {
		return nil, errors.New("golden_answers: want a string, a list of strings, or a list of lists of strings")
	}
	objectives := make([][]string, len(lists))
	for k, answers := range lists {
		if len(answers) == 0 {
			return nil, errors.New("golden_answers: no golden answer")
		}
		for _, answer := range answers {
			if answer == nil {
				return nil, errors.New("golden_answers: found null, want a string")
			}
			objectives[k] = append(objectives[k], *answer)
		}
	}
	return objectives, nil
}
