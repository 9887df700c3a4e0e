package world

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestMain makes room for the folder that several tests read, or is a process that is to be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(writtenByChild); dir != "" {
		writeAndDie(dir)
	}
	dir, err := os.MkdirTemp("", "world")
	if err != nil {
		panic(err)
	}
	standardDir = filepath.Join(dir, "data")
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// standardDir is where standardFolder writes.
var standardDir string

// standard is a world of the usual sizes.
func standard() Options {
	return Options{
		Seed: 1, People: 72, Towns: 48, Countries: 24, Companies: 32, Books: 32, HeldOut: 0.3333,
		Questions: QuestionOptions{
			Train: 2000, Eval: 400, MaxTurns: 5, SystemPrompt: "Search, remember, answer.",
			Mix: map[string]float64{"1": 0.7, "2": 1.2, "3": 1.2, "1+1": 2, "2+1": 2, "1+2": 2},
		},
		Demonstrations: DemonstrationOptions{
			Worlds: 24, Clean: 12160, Forgetful: 2240, Flawed: 1920, Eval: 256, LimitedShare: 0.3333, AnswerShare: 0.2,
			ForgetfulShare: 0.5, MemoryDrop: 0.65, WrongQuery: 0.12, WrongValue: 0.5,
		},
		Model: ModelOptions{
			Hidden: 128, Layers: 3, Heads: 4, KVHeads: 4, Intermediate: 384, RopeTheta: 1000, MaxPositions: 1024, CopyingStart: true,
		},
	}
}

// small is a world that takes little time to make.
func small() Options {
	o := standard()
	o.People, o.Towns, o.Countries, o.Companies, o.Books = 18, 15, 9, 9, 9
	o.Questions.Train, o.Questions.Eval = 40, 12
	d := &o.Demonstrations
	d.Worlds, d.Clean, d.Forgetful, d.Flawed, d.Eval = 1, 120, 60, 60, 24
	o.Model = ModelOptions{Hidden: 16, Layers: 2, Heads: 2, KVHeads: 1, Intermediate: 16, RopeTheta: 1000, MaxPositions: 256, CopyingStart: true}
	return o
}

func silent(string) {}

var writeStandard = sync.OnceValue(func() error { return Write(standardDir, standard(), silent) })

// standardFolder is the folder of the standard world, to be read only.
func standardFolder(t *testing.T) string {
	t.Helper()
	if err := writeStandard(); err != nil {
		t.Fatal(err)
	}
	return standardDir
}

// asked is a line of a question file.
type asked struct {
	ID            string          `json:"id"`
	Question      string          `json:"question"`
	GoldenAnswers json.RawMessage `json:"golden_answers"`
	DataSource    string          `json:"data_source"`
	Hops          int             `json:"hops"`
}

// golden is the one answer of each objective.
func (a asked) golden(t *testing.T) []string {
	t.Helper()
	var lists [][]string
	if json.Unmarshal(a.GoldenAnswers, &lists) != nil {
		lists = make([][]string, 1)
		if err := json.Unmarshal(a.GoldenAnswers, &lists[0]); err != nil {
			t.Fatal(err)
		}
	} else if len(lists) < 2 {
		t.Errorf("%s: golden_answers is a list of lists for one objective", a.ID)
	}
	var answers []string
	for _, list := range lists {
		if len(list) != 1 {
			t.Errorf("%s: golden_answers %s, want one an objective", a.ID, a.GoldenAnswers)
		}
		answers = append(answers, list...)
	}
	return answers
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
