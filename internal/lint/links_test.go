package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// anchors are the names that links into a Markdown text may end in: its headings in lower case, without punctuation,
// with dashes for spaces.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, heading := range headingPattern.FindAllStringSubmatch(text, -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])] = true
	}
	return found
}

// brokenLink says what is wrong with a link in a Markdown file, given relative to the root, or returns "".
func brokenLink(t *testing.T, file, link string) string {
	t.Helper()
	if strings.Contains(link, "://") {
		return ""
	}
	target, anchor, _ := strings.Cut(link, "#")
	goal := file
	if target != "" {
		goal = path.Join(path.Dir(file), target)
	}
	if _, err := os.Stat(filepath.Join(root, goal)); err != nil {
		return "there is no " + goal
	}
	if anchor != "" && !anchors(read(t, goal))[anchor] {
		return goal + " has no heading for #" + anchor
	}
	return ""
}

func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, file := range sourceFiles(t, ".md") {
		for _, match := range linkPattern.FindAllStringSubmatch(read(t, file), -1) {
			links++
			if fault := brokenLink(t, file, match[1]); fault != "" {
				t.Errorf("%s: link %s: %s", file, match[1], fault)
			}
		}
	}
	if links == 0 {
		t.Error("no link was found")
	}
}

func TestBrokenLink(t *testing.T) {
	cases := []struct {
		link   string
		broken bool
	}{
		{"LICENSE", false},
		{"no-such-file.md", true},
		{"docs/config.md", false},
		{"docs/config.md#run", false},
		{"docs/config.md#no-such-heading", true},
		{"#limits-of-this-version", false},
		{"#nowhere", true},
		{"https://example.org/nowhere", false},
	}
	for _, c := range cases {
		if fault := brokenLink(t, "README.md", c.link); (fault != "") != c.broken {
			t.Errorf("brokenLink(%q) = %q, want a fault: %v", c.link, fault, c.broken)
		}
	}
}

// Every folder of the tree is in the README's table of them.
func TestTheReadmeNamesEveryFolder(t *testing.T) {
	readme := read(t, "README.md")
	for _, file := range sourceFiles(t, ".go", ".cpp") {
		top, _, inside := strings.Cut(file, "/")
		if inside && !regexp.MustCompile("(?m)^\\| .*`"+top+"`").MatchString(readme) {
			t.Errorf("README.md does not name the folder %s", top)
		}
	}
}
