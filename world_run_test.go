package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/world"
)

// smallWorld is the file of a world that takes no time to make.
func smallWorld(t *testing.T) (path, dir string) {
	t.Helper()
	folder := t.TempDir()
	dir = filepath.Join(folder, "data")
	return write(t, filepath.Join(folder, "world.toml"),
		`[world]`, `dir = "`+dir+`"`, `seed = 3`, `people = 18`, `towns = 15`, `countries = 9`, `companies = 9`, `books = 9`,
		`[questions]`, `train = 30`, `eval = 10`,
		`[demonstrations]`, `worlds = 1`, `clean = 12`, `forgetful = 8`, `flawed = 4`, `eval = 4`,
		`[model]`, `hidden = 16`, `layers = 2`, `heads = 2`, `kv_heads = 1`, `intermediate = 32`, `max_positions = 256`), dir
}

func TestWorldCommand(t *testing.T) {
	path, dir := smallWorld(t)
	stdout, stderr, code := runProgram("", "world", path)
	if code != 0 || stdout != dir+"\n" {
		t.Fatalf("exit code %d, output %q, %s", code, stdout, stderr)
	}
	for file, lines := range map[string]int{
		world.TrainFile: 30, world.EvalFile: 10, world.CorpusFile: 60, world.DemonstrationsFile: 24, world.EvalDemonstrationsFile: 4,
	} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if count := strings.Count(string(data), "\n"); err != nil || count != lines {
			t.Errorf("%s has %d lines, want %d, %v", file, count, lines, err)
		}
		if !strings.Contains(stderr, file+": ") {
			t.Errorf("nothing is said of %s in %s", file, stderr)
		}
	}
	first, err := os.ReadFile(filepath.Join(dir, world.DemonstrationsFile))
	if err != nil {
		t.Fatal(err)
	}
	// Again, and again with another seed: the settings of the file and of --set both arrive.
	for _, test := range []struct {
		seed string
		same bool
	}{{"3", true}, {"4", false}} {
		if _, stderr, code := runProgram("", "world", path, "--set", "world.seed="+test.seed); code != 0 {
			t.Fatalf("exit code %d, %s", code, stderr)
		}
		again, err := os.ReadFile(filepath.Join(dir, world.DemonstrationsFile))
		if same := string(first) == string(again); err != nil || same != test.same {
			t.Errorf("seed %s: the same demonstrations %v, want %v, %v", test.seed, same, test.same, err)
		}
	}
}

// The model of a world is a folder like any other for the commands that take one.
func TestWorldModelIsAnOrdinaryFolder(t *testing.T) {
	path, dir := smallWorld(t)
	if _, stderr, code := runProgram("", "world", path); code != 0 {
		t.Fatal(stderr)
	}
	folder := filepath.Join(dir, world.ModelFolder)
	data, err := os.ReadFile(filepath.Join(dir, world.TrainFile))
	if err != nil {
		t.Fatal(err)
	}
	var asked struct{ Question string }
	if err := json.Unmarshal(data[:strings.IndexByte(string(data), '\n')], &asked); err != nil {
		t.Fatal(err)
	}
	got := tokenize(t, folder, textLine(asked.Question))
	if words := strings.Fields(strings.ReplaceAll(asked.Question, ";", " ;")); len(got.IDs) != len(words) || got.Text != asked.Question {
		t.Errorf("%q is the tokens %v", asked.Question, got)
	}
	var scored scoreLine
	decodeLine(t, mustRun(t, idsLine(got.IDs), "score", "--model", folder, "--threads", "1")[0], &scored)
	if !slices.Equal(scored.IDs, got.IDs) || len(scored.LogProbs) != len(got.IDs) {
		t.Errorf("scored %+v", scored)
	}
	for _, value := range scored.LogProbs[1:] {
		if value == nil || *value >= 0 {
			t.Errorf("log-probabilities %v", scored.LogProbs)
			break
		}
	}
}

func TestWorldCommandRefuses(t *testing.T) {
	for _, test := range []struct {
		want string
		sets []string
	}{
		{`shape "0" is not the hops of each objective`, []string{"questions.mix={\"0\"=1}"}},
		{`shape "1+" is not the hops of each objective`, []string{"questions.mix={\"1+\"=1}"}},
		{`shape "1+1+1+1+1+1+1+1+1+1+1" has 11 objectives, allowed are up to 10`, []string{"questions.mix={\"1+1+1+1+1+1+1+1+1+1+1\"=1}"}},
		{`shape "3" needs 4 turns, questions.max_turns allows 3`, []string{"questions.mix={\"3\"=1}", "questions.max_turns=3"}},
		{"held_out is 0.05, which puts all entities of the kind", []string{"world.held_out=0.05"}},
		{"questions.train: no further question of shape", []string{"questions.train=100000"}},
		{"world.held_out", []string{"world.held_out=1.5"}},
		{"world.peple", []string{"world.peple=20"}},
	} {
		path, dir := smallWorld(t)
		args := []string{"world", path}
		for _, set := range test.sets {
			args = append(args, "--set", set)
		}
		stdout, stderr, code := runProgram("", args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%q: exit code %d, output %q, %s; want %q", test.sets, code, stdout, stderr, test.want)
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
			t.Errorf("%q: beside the settings lie %v, %v", test.sets, entries, err)
		}
	}
	if _, stderr, code := runProgram("", "world"); code != 2 || !strings.Contains(stderr, "world needs a TOML file") {
		t.Errorf("without a file: exit code %d, %s", code, stderr)
	}
}

func TestWorldCommandLeavesOtherFoldersAlone(t *testing.T) {
	path, dir := smallWorld(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	thesis := write(t, filepath.Join(dir, "thesis.txt"), "years of work")
	for _, command := range []string{"world", "check"} {
		stdout, stderr, code := runProgram("", command, path)
		if said := stdout + stderr; code != 2 || !strings.Contains(said, dir+" is a folder without "+world.MarkFile) {
			t.Errorf("%s: exit code %d, %s", command, code, said)
		}
	}
	entries, err := os.ReadDir(dir)
	if text, readErr := os.ReadFile(thesis); err != nil || readErr != nil || len(entries) != 1 || string(text) != "years of work\n" {
		t.Errorf("the folder holds %v, %v, the file %q, %v", entries, err, text, readErr)
	}
}

func TestCheckOfAWorldWritesNothing(t *testing.T) {
	path, dir := smallWorld(t)
	stdout, stderr, code := runProgram("", "check", path)
	if code != 0 || !strings.Contains(stdout, world.TrainFile+": 30 questions") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", dir, err)
	}
}
