package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const example = `{"id": "q1", "question": "What is the capital of Peru?", "golden_answers": ["Lima"]}`

var errNoGolden = errors.New("no golden answer")

// Columns of the known shapes.
const (
	columnReward        = "reward_model"
	columnGroundTruth   = "reward_model.ground_truth"
	columnTarget        = "reward_model.ground_truth.target"
	columnAnswer        = "answer"
	columnAliases       = "answer_aliases"
	columnAnswerable    = "answerable" // MuSiQue
	columnHotpotID      = "_id"
	columnSupport       = "supporting_facts"
	columnEvidences     = "evidences"        // 2WikiMultihopQA
	columnPossible      = "possible_answers" // PopQA
	columnTriviaID      = "question_id"
	columnCapitalQuery  = "Question" // Bamboogle, TriviaQA's original
	columnCapitalAnswer = "Answer"
	columnCapitalID     = "QuestionId"
	columnPrompt        = "prompt"
	columnInnerQuestion = "extra_info.question"
	columnSource        = "data_source"
)

// Names of the shapes.
const (
	shapePlain     = "golden_answers"
	shapeMapped    = "data.fields"
	shapeVerl      = "verl / Search-R1"
	shapeHotpot    = "HotpotQA"
	shapeTwoWiki   = "2WikiMultihopQA"
	shapeMuSiQue   = "MuSiQue"
	shapePopQA     = "PopQA"
	shapeTrivia    = "TriviaQA"
	shapeNQ        = "NQ-open"
	shapeBamboogle = "Bamboogle"
	shapeWithID    = "id, question, answer"
)

// shape turns records into questions.
type shape struct{ fields map[string]string }

// columns lists the top-level columns that can matter, and the whole of mapped paths, which may be
// names with dots in them.
func (s shape) columns() []string {
	names := []string{
		fieldID, columnHotpotID, columnTriviaID, columnCapitalID, fieldQuestion, columnCapitalQuery, fieldGolden, columnReward,
		columnAnswer, columnAliases, columnAnswerable, columnAnswerID, columnCapitalAnswer, columnPossible, columnPrompt, "extra_info", columnSource, fieldHops,
	}
	for _, path := range s.fields {
		head, _, _ := strings.Cut(path, ".")
		names = append(names, head, path)
	}
	return names
}

// question reads a row and says which shape it has. A leftOut error is the reason why a good row is
// no question.
func (s shape) question(rec record) (q Question, form string, err error) {
	if q.Text, err = s.text(rec); err != nil {
		return q, "", err
	}
	if q.Objectives, form, err = s.objectives(rec); err != nil {
		return q, "", err
	}
	if q.ID, err = s.label(rec, fieldID, fieldID, columnHotpotID, columnTriviaID, columnCapitalID); err != nil {
		return q, "", err
	}
	if q.Source, err = s.label(rec, fieldSource, columnSource); err != nil {
		return q, "", err
	}
	if q.Hops, err = s.hops(rec, q.ID); err != nil {
		return q, "", err
	}
	if answerable, ok, err := rec.lookup(columnAnswerable); err != nil {
		return q, "", err
	} else if ok && (answerable == false || rec.untyped && strings.EqualFold(fmt.Sprint(answerable), "false")) {
		return q, "", leftOut("unanswerable (answerable is false)")
	}
	if err := rec.spelled(&q); err != nil {
		return q, "", err
	}
	q.Objectives, err = separable(q.Objectives)
	return q, form, err
}

// separable drops golden answers that hold the separator of several answers.
func separable(objectives [][]string) ([][]string, error) {
	if len(objectives) < 2 {
		return objectives, nil
	}
	for k, golden := range objectives {
		objectives[k] = slices.DeleteFunc(slices.Clone(golden), holdsSeparator)
		if len(objectives[k]) == 0 {
			return nil, leftOut(noSeparable)
		}
	}
	return objectives, nil
}

// holdsSeparator tells whether an answer cannot be one of several: ';' separates them.
func holdsSeparator(answer string) bool { return strings.Contains(answer, ";") }

const noSeparable = `with only golden answers that hold ';', which separates those of several objectives`

// text is the question's own text.
func (s shape) text(rec record) (string, error) {
	path, v, err := s.find(rec, fieldQuestion, columnInnerQuestion, fieldQuestion, columnPrompt, columnCapitalQuery)
	if err != nil {
		return "", err
	}
	if path == "" {
		return "", s.missing(rec, fieldQuestion, fieldQuestion)
	}
	if messages, ok := v.([]any); ok {
		return lastUserMessage(path, messages)
	}
	t, ok := text(v)
	if !ok {
		return "", fmt.Errorf("%s is %s, want a string or a list of {\"role\", \"content\"}", path, describe(v))
	}
	if strings.TrimSpace(t) == "" {
		return "", fmt.Errorf("%s is blank", path)
	}
	return t, nil
}

// lastUserMessage is the content of the last message whose role is "user".
func lastUserMessage(path string, messages []any) (string, error) {
	for k := len(messages) - 1; k >= 0; k-- {
		if role(messages[k]) != "user" {
			continue
		}
		content, ok := text(child(messages[k], "content"))
		if !ok || strings.TrimSpace(content) == "" {
			return "", fmt.Errorf("%s.%d.content is %s, want the question", path, k, describe(child(messages[k], "content")))
		}
		return content, nil
	}
	return "", fmt.Errorf("%s has no message with the role \"user\" among its %d", path, len(messages))
}

func role(message any) string {
	name, _ := text(child(message, "role"))
	return name
}

// label reads an id or a source: a string or a whole number, "" without one.
func (s shape) label(rec record, field string, columns ...string) (string, error) {
	path, v, err := s.find(rec, field, columns...)
	if err != nil {
		return "", err
	}
	if path == "" {
		if mapped := s.fields[field]; mapped != "" {
			return "", s.missing(rec, field, mapped)
		}
		return "", nil
	}
	if t, ok := text(v); ok {
		return t, nil
	}
	switch n := v.(type) {
	case json.Number:
		return n.String(), nil
	case int, int32, int64, uint, uint32, uint64:
		return fmt.Sprint(n), nil
	case float32:
		return strconv.FormatFloat(float64(n), 'f', -1, 32), nil
	case float64: // what pandas makes of whole numbers in a column with gaps
		return strconv.FormatFloat(n, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("%s is %s, want a string or a number", path, describe(v))
}

// hopsOfID matches MuSiQue's ids, such as 2hop__1_2 and 3hop1__1_2_3.
var hopsOfID = regexp.MustCompile(`^([1-9])hop[0-9]*__`)

// hops reads the number of hops; 0 without one.
func (s shape) hops(rec record, id string) (int, error) {
	path, v, err := s.find(rec, fieldHops, fieldHops)
	if err != nil {
		return 0, err
	}
	if path == "" && s.fields[fieldHops] != "" {
		return 0, s.missing(rec, fieldHops, fieldHops)
	}
	written := fmt.Sprint(v)
	if path == "" {
		match := hopsOfID.FindStringSubmatch(id)
		if match == nil {
			return 0, nil
		}
		written = match[1]
	}
	if _, isText := text(v); !isText || rec.untyped {
		if n, err := strconv.ParseFloat(written, 64); err == nil && n == math.Trunc(n) && n >= 1 && n <= maxHops {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%s is %s, want a whole number from 1 to %d", path, describe(v), maxHops)
}

// maxHops bounds what can be meant by a number of hops.
const maxHops = 1000

// find returns the first of the columns that the record has, or the mapped one; "" without any.
func (s shape) find(rec record, field string, columns ...string) (string, any, error) {
	if mapped := s.fields[field]; mapped != "" {
		columns = []string{mapped}
	}
	for _, path := range columns {
		v, ok, err := rec.lookup(path)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", path, err)
		}
		if ok {
			return path, v, nil
		}
	}
	return "", nil, nil
}

func (s shape) missingGolden(rec record) error {
	return s.missing(rec, fieldGolden, fieldGolden+" or "+columnTarget)
}

// missing says which column of a field is not there, or null, and what would be right.
func (s shape) missing(rec record, field, want string) error {
	if mapped := s.fields[field]; mapped != "" {
		want = mapped + " (from data.fields." + field + ")"
	} else if field == fieldGolden && slices.Contains(rec.columns, fieldGolden) {
		return fmt.Errorf("%s is null: %w", fieldGolden, errNoGolden)
	}
	return fmt.Errorf("missing column %s; columns found: %s; a right row: %s; other columns can be named in data.fields",
		want, listColumns(rec.columns), example)
}

func listColumns(columns []string) string {
	const limit = 20
	if len(columns) == 0 {
		return "none"
	}
	names := make([]string, min(len(columns), limit))
	for k := range names {
		names[k] = named(columns[k])
	}
	if len(columns) > limit {
		return fmt.Sprintf("%s, … (%d in all)", strings.Join(names, ", "), len(columns))
	}
	return strings.Join(names, ", ")
}
