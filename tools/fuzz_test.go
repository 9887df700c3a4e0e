package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFuzzScript has a go that says what go says.
func TestFuzzScript(t *testing.T) {
	const atTheEnd = "--- FAIL: FuzzA (60.13s)\n    context deadline exceeded\nFAIL\n"
	for name, c := range map[string]struct {
		says string
		code int // of go
		ok   bool
	}{
		"passes":              {"ok  \tpackage\t60.1s\n", 0, true},
		"its time was over":   {atTheEnd, 1, true},
		"an input fails":      {"--- FAIL: FuzzA (1s)\n    Failing input written to testdata/fuzz/FuzzA/1\n", 1, false},
		"an input times out":  {"    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzA/1\n", 1, false},
		"it does not compile": {"FAIL package [build failed]\n", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fake := "#!/bin/sh\ncat <<'E'\n" + c.says + "E\nexit " + string(rune('0'+c.code)) + "\n"
			if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o700); err != nil {
				t.Fatal(err)
			}
			command := exec.Command("./fuzz.sh", "./package:FuzzA", "60s", filepath.Join(dir, "log"))
			command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := command.CombinedOutput()
			if passed := err == nil && string(out) == "ok   fuzz ./package:FuzzA, 60s\n"; passed != c.ok || !c.ok && !strings.Contains(string(out), c.says) {
				t.Errorf("%v, %q", err, out)
			}
		})
	}
}
