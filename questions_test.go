package main

import (
	"strings"
	"testing"
)

func TestTextsOutOfFilesStayOnALine(t *testing.T) {
	for text, want := range map[string]string{
		"Müller → 京":               "Müller → 京",
		"a\x1b[2J\nb":              `"a\x1b[2J\nb"`,
		strings.Repeat("é", 1<<20): strings.Repeat("é", 300) + "…",
		strings.Repeat("é", 300):   strings.Repeat("é", 300),
	} {
		if got := onALine(text); got != want {
			t.Errorf("%.60q becomes %.60q", text, got)
		}
	}
}
