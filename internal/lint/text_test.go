package lint

import (
	"regexp"
	"strings"
	"testing"
)

// unwanted is text that does not belong into a repository: folders of one machine, and notes of unfinished work.
var unwanted = []struct {
	what    string
	pattern *regexp.Regexp
}{
	{"a path of one machine", regexp.MustCompile(`(^|[\s"'(=:])/(root|work|Users|home/[a-z][\w-]*)(/|\b)`)},
	{"a note of unfinished work", regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)},
	{"the marker of a merge conflict", regexp.MustCompile(`^(<<<<<<<|>>>>>>>) `)},
}

// findUnwanted returns what is wrong with a line, or "".
func findUnwanted(line string) string {
	for _, u := range unwanted {
		if u.pattern.MatchString(line) {
			return u.what
		}
	}
	return ""
}

func TestNoUnwantedText(t *testing.T) {
	for _, file := range sourceFiles(t, ".go", ".cpp", ".h", ".cu", ".py", ".sh", ".mk", ".md", ".toml", ".txt", ".yml", ".json") {
		if strings.HasPrefix(file, "internal/lint/") { // it has to name them
			continue
		}
		for i, line := range strings.Split(read(t, file), "\n") {
			if what := findUnwanted(line); what != "" {
				t.Errorf("%s:%d: %s: %.120s", file, i+1, what, strings.TrimSpace(line))
			}
		}
	}
}

func TestFindUnwanted(t *testing.T) {
	cases := []struct {
		line  string
		found bool
	}{
		{`path = "/root/.cache"`, true},
		{"see /home/someone/notes", true},
		{"cd /" + "work/main", true},
		{"a tree/" + "work/sheet", false},
		{"https://example.org/root/x", false},
		{"// TO" + "DO: later", true},
		{"methods of doing", false},
		{"<<<<<<< HEAD", true},
	}
	for _, c := range cases {
		if got := findUnwanted(c.line); (got != "") != c.found {
			t.Errorf("findUnwanted(%q) = %q, want a finding: %v", c.line, got, c.found)
		}
	}
}
