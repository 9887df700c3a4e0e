package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// documentedExample is a shell block that pipes lines into a command, with the block of JSON lines
// that it prints behind it.
var documentedExample = regexp.MustCompile("(?s)```sh\necho '([^`]*?)' \\| bin/mempo-train ([^\n]*)\n```\n\n```json\n(.*?)\n```")

// What the documentation says that a command prints is what it prints, numbers to three digits.
func TestDocumentedExamples(t *testing.T) {
	world := filepath.Join(t.TempDir(), "world")
	if _, stderr, code := runProgram("", "world", "configs/world/world.toml", "--set", "world.dir="+world); code != 0 {
		t.Fatal(stderr)
	}
	seen := map[string]bool{}
	for _, path := range []string{"README.md", "docs/method.md"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range documentedExample.FindAllStringSubmatch(string(text), -1) {
			args := strings.Fields(strings.ReplaceAll(match[2], "runs/world/data", world))
			seen[args[0]] = true
			got, want := mustRun(t, match[1]+"\n", args...), strings.Split(match[3], "\n")
			if len(got) != len(want) {
				t.Errorf("%s: %s: %d lines, want %d", path, match[2], len(got), len(want))
				continue
			}
			for k := range want {
				if !nearlyEqual(decoded(t, got[k]), decoded(t, want[k])) {
					t.Errorf("%s: %s\nprints %s\nnot    %s", path, match[2], got[k], want[k])
				}
			}
		}
	}
	for _, command := range []string{"score", "generate", "tokenize", "grade", "advantage", "loss"} {
		if !seen[command] {
			t.Errorf("no example of %s was found", command)
		}
	}
}

func decoded(t *testing.T, line string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &value); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return value
}

// nearlyEqual compares values of JSON; numbers may be rounded otherwise by another processor.
func nearlyEqual(a, b any) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && math.Abs(a-b) <= 1e-3*max(1, math.Abs(b))
	case []any:
		b, ok := b.([]any)
		same := ok && len(a) == len(b)
		for k := 0; same && k < len(a); k++ {
			same = nearlyEqual(a[k], b[k])
		}
		return same
	case map[string]any:
		b, ok := b.(map[string]any)
		same := ok && len(a) == len(b)
		for key := range a {
			same = same && nearlyEqual(a[key], b[key])
		}
		return same
	}
	return reflect.DeepEqual(a, b)
}

func TestTheReadmeHasEveryCommand(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range (&program{}).app().Commands {
		if !strings.Contains(string(readme), "\n**"+command.Name+"** ") {
			t.Errorf("README.md does not tell of the command %s", command.Name)
		}
	}
}
