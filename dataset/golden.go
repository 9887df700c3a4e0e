package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// objectives reads the golden answers and says in which shape they came.
func (s shape) objectives(rec record) (objectives [][]string, form string, err error) {
	path, v, err := s.find(rec, fieldGolden, columnTarget, fieldGolden, columnGroundTruth)
	if err != nil {
		return nil, "", err
	}
	switch mapped := s.fields[fieldGolden] != ""; {
	case path == "" && mapped:
		return nil, "", s.missingGolden(rec)
	case path == "":
		return s.published(rec)
	case mapped:
		form = shapeMapped
	case strings.HasPrefix(path, columnReward):
		form = shapeVerl
	default:
		form = shapePlain
	}
	objectives, err = readGolden(rec, path, v)
	return objectives, form, err
}

// published reads the golden answers of benchmarks in the form of their authors. A bare pair of
// question and answer could be anything: HotpotQA and MuSiQue carry an id, NQ-open a list.
func (s shape) published(rec record) (objectives [][]string, form string, err error) {
	possible, ok, err := rec.lookup(columnPossible)
	if err != nil {
		return nil, "", err
	}
	if ok {
		if written, isText := text(possible); isText {
			if possible, err = jsonList(columnPossible, written); err != nil {
				return nil, "", err
			}
		}
		objectives, err = readObjectives(columnPossible, possible)
		return objectives, shapePopQA, err
	}
	path, answer, err := s.find(rec, "", columnAnswer, columnCapitalAnswer)
	if err != nil {
		return nil, "", err
	}
	idPath, _, err := s.find(rec, "", columnHotpotID, fieldID)
	if err != nil {
		return nil, "", err
	}
	switch members := answer.(type) {
	case map[string]any:
		objectives, err = triviaAnswers(path, members)
		return objectives, shapeTrivia, err
	case []any:
		if path == columnAnswer && idPath == "" {
			objectives, err = readObjectives(path, members)
			return objectives, shapeNQ, err
		}
	}
	switch {
	case path == columnCapitalAnswer:
		objectives, err = readGolden(rec, path, answer)
		return objectives, shapeBamboogle, err
	case path == "" || idPath == "":
		return nil, "", s.missingGolden(rec)
	}
	objectives, err = withAliases(rec, answer)
	return objectives, answerForm(rec, idPath), err
}

// answerForm tells the shapes apart that have an id and an answer.
func answerForm(rec record, idPath string) string {
	has := func(column string) bool { return slices.Contains(rec.columns, column) }
	switch {
	case has(columnEvidences):
		return shapeTwoWiki
	case has(columnAliases) || has(columnAnswerable):
		return shapeMuSiQue
	case has(columnSupport) || idPath == columnHotpotID:
		return shapeHotpot
	}
	return shapeWithID
}

// triviaAnswers reads TriviaQA's object: the value comes first, then its aliases, once each. The
// published test set has "<unk>" in place of answers.
func triviaAnswers(path string, members map[string]any) ([][]string, error) {
	list := []any{}
	for _, names := range [][2]string{{"value", "Value"}, {"aliases", "Aliases"}, {"normalized_aliases", "NormalizedAliases"}} {
		for _, name := range names {
			switch v := members[name].(type) {
			case nil:
			case []any:
				list = append(list, v...)
			default:
				list = append(list, v)
			}
		}
	}
	answers, err := readAnswers(path, list)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{"<unk>": true}
	answers = slices.DeleteFunc(answers, func(answer string) bool {
		known := seen[answer]
		seen[answer] = true
		return known
	})
	if len(answers) == 0 {
		return nil, fmt.Errorf("%s has no value and no aliases: %w", path, errNoGolden)
	}
	return [][]string{answers}, nil
}

// withAliases reads an answer, and aliases of it as MuSiQue has them.
func withAliases(rec record, answer any) ([][]string, error) {
	objectives, err := readGolden(rec, columnAnswer, answer)
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

// readGolden is readObjectives, for which a list in a file of strings alone stands as JSON.
func readGolden(rec record, path string, v any) ([][]string, error) {
	if written, isText := text(v); isText && rec.untyped {
		if trimmed := strings.TrimSpace(written); strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]") {
			list, err := jsonList(path, trimmed)
			if err != nil {
				return nil, err
			}
			v = list
		}
	}
	return readObjectives(path, v)
}

// jsonList reads a JSON list out of a string.
func jsonList(path, written string) ([]any, error) {
	decoder := json.NewDecoder(bytes.NewReader([]byte(written)))
	decoder.UseNumber()
	var list []any
	if err := decoder.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s is the string %s, want a JSON list such as [\"Lima\"]: %w", path, quote(written), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) || list == nil {
		return nil, fmt.Errorf("%s is the string %s, want one JSON list such as [\"Lima\"]", path, quote(written))
	}
	return list, nil
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
