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
	columnHotpotID      = "_id"
	columnPrompt        = "prompt"
	columnInnerQuestion = "extra_info.question"
	columnSource        = "data_source"
)

// shape turns records into questions.
type shape struct{ fields map[string]string }

// columns lists the top-level columns that can matter, and the whole of mapped paths, which may be
// names with dots in them.
func (s shape) columns() []string {
	names := []string{
		fieldID, columnHotpotID, fieldQuestion, fieldGolden, columnReward, columnAnswer, columnAliases,
		columnPrompt, "extra_info", columnSource, fieldHops,
	}
	for _, path := range s.fields {
		head, _, _ := strings.Cut(path, ".")
		names = append(names, head, path)
	}
	return names
}

func (s shape) question(rec record) (Question, error) {
	var q Question
	var err error
	if q.Text, err = s.text(rec); err != nil {
		return q, err
	}
	if q.Objectives, err = s.objectives(rec); err != nil {
		return q, err
	}
	if q.ID, err = s.label(rec, fieldID, fieldID, columnHotpotID); err != nil {
		return q, err
	}
	if q.Source, err = s.label(rec, fieldSource, columnSource); err != nil {
		return q, err
	}
	q.Hops, err = s.hops(rec, q.ID)
	return q, err
}

// text is the question's own text.
func (s shape) text(rec record) (string, error) {
	path, v, err := s.find(rec, fieldQuestion, columnInnerQuestion, fieldQuestion, columnPrompt)
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

// objectives reads the golden answers.
func (s shape) objectives(rec record) ([][]string, error) {
	path, v, err := s.find(rec, fieldGolden, columnTarget, fieldGolden, columnGroundTruth)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return readObjectives(path, v)
	}
	if s.fields[fieldGolden] == "" {
		return s.answerWithAliases(rec)
	}
	return nil, s.missingGolden(rec)
}

// answerWithAliases reads the HotpotQA and MuSiQue originals, which carry an id: a bare pair of
// question and answer could be anything.
func (s shape) answerWithAliases(rec record) ([][]string, error) {
	_, hotpotID, err := rec.lookup(columnHotpotID)
	if err != nil {
		return nil, err
	}
	_, id, err := rec.lookup(fieldID)
	if err != nil {
		return nil, err
	}
	answer, ok, err := rec.lookup(columnAnswer)
	if err != nil {
		return nil, err
	}
	if !ok || !(id || hotpotID) {
		return nil, s.missingGolden(rec)
	}
	objectives, err := readObjectives(columnAnswer, answer)
	if err != nil {
		return nil, err
	}
	aliases, ok, err := rec.lookup(columnAliases)
	if err != nil || !ok {
		return objectives, err
	}
	list, ok := aliases.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is %s, want a list of strings", columnAliases, describe(aliases))
	}
	more, err := readAnswers(columnAliases, list)
	if err != nil || len(objectives) > 1 {
		return objectives, err
	}
	return [][]string{append(objectives[0], more...)}, nil
}

// readObjectives reads a string, a list of strings or a list of lists of strings.
func readObjectives(path string, v any) ([][]string, error) {
	if t, ok := text(v); ok {
		v = []any{t}
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s is %s, want a string, a list of strings or a list of lists", path, describe(v))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s is empty: %w", path, errNoGolden)
	}
	if _, several := list[0].([]any); !several {
		list = []any{list}
	}
	objectives := make([][]string, len(list))
	for k, element := range list {
		at := path
		if len(list) > 1 {
			at = fmt.Sprintf("%s.%d", path, k)
		}
		alternatives, ok := element.([]any)
		if !ok {
			return nil, fmt.Errorf("%s is %s, want a list of strings like its neighbours", at, describe(element))
		}
		answers, err := readAnswers(at, alternatives)
		if err != nil {
			return nil, err
		}
		if len(answers) == 0 {
			return nil, fmt.Errorf("%s holds only blanks: %w", at, errNoGolden)
		}
		objectives[k] = answers
	}
	return objectives, nil
}

// readAnswers reads a list of strings, without the blank ones.
func readAnswers(path string, list []any) ([]string, error) {
	answers := make([]string, 0, len(list))
	for k, element := range list {
		t, ok := text(element)
		if !ok {
			return nil, fmt.Errorf("%s.%d is %s, want a string (in quotes, also for a number)", path, k, describe(element))
		}
		if strings.TrimSpace(t) != "" {
			answers = append(answers, t)
		}
	}
	return answers, nil
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
	if _, isText := text(v); !isText {
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
	if len(columns) > limit {
		return fmt.Sprintf("%s, … (%d in all)", strings.Join(columns[:limit], ", "), len(columns))
	}
	return strings.Join(columns, ", ")
}
