package world

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// someOptions are the entities of the quickstart with fewer questions and demonstrations.
func someOptions(seed uint64) Options {
	return Options{
		Seed: seed, People: 72, Towns: 48, Countries: 24, Companies: 32, Books: 32, HeldOut: 0.3333,
		Questions: QuestionOptions{
			Train: 300, Eval: 150, MaxTurns: 5, SystemPrompt: "Search, remember, answer.",
			Mix: map[string]float64{"1": 0.7, "2": 1.2, "3": 1.2, "1+1": 2, "2+1": 2, "1+2": 2},
		},
		Demonstrations: DemonstrationOptions{
			Worlds: 3, Clean: 600, Forgetful: 600, Flawed: 1200, Eval: 40, LimitedShare: 0.3333, AnswerShare: 0.2,
			ForgetfulShare: 0.5, MemoryDrop: 0.65, WrongQuery: 0.12, WrongValue: 0.5,
		},
		Model: ModelOptions{
			Hidden: 64, Layers: 2, Heads: 4, KVHeads: 2, Intermediate: 96, RopeTheta: 1000, MaxPositions: 512, CopyingStart: true,
		},
	}
}

// longer asks for chains of four hops and for many things at once.
func longer(o Options) Options {
	o.Questions.Mix = map[string]float64{"4": 1, "1+2+1": 1, "3+1+2": 1, "1+1+1+1": 1, "1+1+1+1+1+1+1+1+1+1": 0.2}
	o.Questions.MaxTurns = 11
	return o
}

// made writes a world into a new folder.
func made(t *testing.T, o Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "world")
	if err := Write(dir, o, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func planned(t *testing.T, o Options) *plan {
	t.Helper()
	p, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// readLines decodes the lines of a file, keys that T lacks being errors.
func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var value T
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, value)
	}
	return list
}

// demonstration is a line of a file of demonstrations.
type demonstration struct{ Messages []Message }

func loadTokenizer(t *testing.T, dir string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(filepath.Join(dir, ModelFolder))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// files are the contents of a folder by path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for _, pattern := range []string{"*", "*/*"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if data, err := os.ReadFile(path); err == nil {
				contents[strings.TrimPrefix(path, dir)] = string(data)
			}
		}
	}
	return contents
}

func sameFiles(a, b map[string]string) bool { return maps.Equal(a, b) }
