package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// install runs the script on a program that needs nothing of libtorch.
func install(t *testing.T, prefix string) (string, error) {
	t.Helper()
	command := exec.Command("tools/image/install.sh", "/bin/sh", t.TempDir(), prefix)
	command.Dir = "../.."
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestInstallReplacesAnEarlierInstallation(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "a folder", "of its own")
	for _, state := range []string{"new", "installed before"} {
		if out, err := install(t, prefix); err != nil {
			t.Fatalf("%s: %v: %s", state, err, out)
		}
		for _, name := range []string{"bin/mempo-train", "configs/world/mempo.toml", "licenses/LICENSE", "lib"} {
			if _, err := os.Stat(filepath.Join(prefix, name)); err != nil {
				t.Errorf("%s: %v", state, err)
			}
		}
		if sources, err := filepath.Glob(filepath.Join(prefix, "configs", "*.go")); err != nil || len(sources) > 0 {
			t.Errorf("%s: %v (%v) are no configs", state, sources, err)
		}
		old := filepath.Join(prefix, "bin", "of an older version")
		if _, err := os.Stat(old); err == nil {
			t.Errorf("%s: %s is still there", state, old)
		}
		if err := os.WriteFile(old, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A prefix such as /usr/local has folders bin and lib of others.
func TestInstallLeavesOtherFoldersAlone(t *testing.T) {
	prefix := t.TempDir()
	other := filepath.Join(prefix, "bin", "other")
	if err := os.Mkdir(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{prefix, other, ""} {
		out, err := install(t, path)
		if err == nil || !strings.HasPrefix(out, "install.sh: PREFIX is ") || strings.Count(out, "\n") != 1 {
			t.Errorf("PREFIX=%s: %v, %q", path, err, out)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
