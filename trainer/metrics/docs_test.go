package metrics

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The reference lists every name once, in the order of a line.
func TestTheReferenceListsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\|$").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[1])
	}
	if !slices.Equal(documented, names) {
		t.Errorf("docs/metrics.md has %v\nwant %v", documented, names)
	}
}
