package engine

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// figure is the comparison of a test that came closest to its tolerance.
type figure struct{ largest, tolerance float64 }

// figures holds one figure a test; tests run one after the other.
var figures = map[string]figure{}

// record keeps a largest deviation and what was allowed for the report of a machine that is seldom
// at hand. Exact comparisons have nothing to report.
func record(t *testing.T, largest, tolerance float64) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if before, found := figures[name]; tolerance > 0 && (!found || !(largest/tolerance <= before.largest/before.tolerance)) {
		figures[name] = figure{largest, tolerance}
	}
}

// writeFigures leaves the figures in the file that MEMPO_TEST_FIGURES names, one test a line: its
// name, the largest deviation and the tolerance.
func writeFigures() error {
	path := os.Getenv("MEMPO_TEST_FIGURES")
	if path == "" {
		return nil
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		fmt.Fprintf(&text, "%s\t%.2g\t%.2g\n", name, figures[name].largest, figures[name].tolerance)
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}
