package world

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// encyclopedia maps a title to the facts of its passage, from relation to value. It is read from
// text alone.
type encyclopedia map[string]map[string]string

var (
	passageForm = regexp.MustCompile(`^"(\w+)"\n(\w+): (\w+) (\w+); (\w+) (\w+)$`)
	resultForm  = regexp.MustCompile(`^<information>\nDoc 1\(Title: ("\w+")\) (.*)\n</information>$`)
)

// learn enters a passage.
func (x encyclopedia) learn(contents string) error {
	parts := passageForm.FindStringSubmatch(contents)
	if parts == nil || parts[1] != parts[2] || parts[3] == parts[5] {
		return fmt.Errorf("%q is no passage", contents)
	}
	x[parts[1]] = map[string]string{parts[3]: parts[4], parts[5]: parts[6]}
	return nil
}

// learnResult enters the passage of a search result.
func (x encyclopedia) learnResult(result string) error {
	parts := resultForm.FindStringSubmatch(result)
	if parts == nil {
		return fmt.Errorf("%q is no result", result)
	}
	return x.learn(parts[1] + "\n" + parts[2])
}

type corpusLine struct{ ID, Contents string }

func readCorpus(t *testing.T, dir string) encyclopedia {
	t.Helper()
	x := encyclopedia{}
	ids := map[string]bool{}
	lines := readLines[corpusLine](t, filepath.Join(dir, CorpusFile))
	for _, line := range lines {
		if err := x.learn(line.Contents); err != nil {
			t.Fatal(err)
		}
		ids[line.ID] = true
	}
	if len(x) != len(lines) || len(ids) != len(lines) {
		t.Errorf("%d passages have %d ids and %d titles", len(lines), len(ids), len(x))
	}
	return x
}

// step is a look-up of a question.
type step struct{ subject, relation, value string }

// fact is what a memory says of a step.
func (s step) fact() string { return s.relation + " " + s.value }

// solve answers a question by looking up one passage after the other: the steps of each objective.
func (x encyclopedia) solve(question string) ([][]step, error) {
	rest, found := strings.CutPrefix(question, "Find ")
	if !found {
		return nil, fmt.Errorf("%q begins otherwise", question)
	}
	var objectives [][]step
	for objective := range strings.SplitSeq(rest, "; ") {
		words := strings.Split(objective, " of ")
		slices.Reverse(words)
		at := words[0]
		var steps []step
		for _, relation := range words[1:] {
			value, known := x[at][relation]
			if !known {
				return nil, fmt.Errorf("%q: nothing says what the %s of %s is", question, relation, at)
			}
			steps = append(steps, step{at, relation, value})
			at = value
		}
		if len(steps) == 0 {
			return nil, fmt.Errorf("%q asks nothing of %s", question, at)
		}
		objectives = append(objectives, steps)
	}
	return objectives, nil
}

// relationsAsked lists the relations of a question in the order of its look-ups, and how many each
// objective has. It needs no encyclopedia.
func relationsAsked(question string) (relations []string, hops []int) {
	for objective := range strings.SplitSeq(strings.TrimPrefix(question, "Find "), "; ") {
		words := strings.Split(objective, " of ")
		slices.Reverse(words)
		relations = append(relations, words[1:]...)
		hops = append(hops, len(words)-1)
	}
	return relations, hops
}

// answers are the last facts of each objective.
func answers(objectives [][]step) []string {
	var list []string
	for _, steps := range objectives {
		list = append(list, steps[len(steps)-1].fact())
	}
	return list
}

func TestTheSolverFindsWhatIsWrong(t *testing.T) {
	x := encyclopedia{}
	for _, contents := range []string{"\"Anan\"\nAnan: seat Beth; founder Cin", "\"Beth\"\nBeth: country Dia; mayor Cin"} {
		if err := x.learn(contents); err != nil {
			t.Fatal(err)
		}
	}
	got, err := x.solve("Find country of seat of Anan; mayor of Beth")
	if want := []string{"country Dia", "mayor Cin"}; err != nil || !slices.Equal(answers(got), want) {
		t.Errorf("%v, %v, want %q", got, err, want)
	}
	for _, question := range []string{"Find mayor of Anan", "Find country of mayor of Beth", "Anan", "Find Anan"} {
		if got, err := x.solve(question); err == nil {
			t.Errorf("%q is answered by %v", question, got)
		}
	}
	for _, contents := range []string{"\"A\"\nB: seat C; founder D", "\"A\"\nA: seat C; seat D", "\"A\"\nA: seat C"} {
		if x.learn(contents) == nil {
			t.Errorf("%q is taken", contents)
		}
	}
}
