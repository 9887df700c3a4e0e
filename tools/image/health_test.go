// Package image is the test of what goes into the image beside the program.
package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// health runs health.sh over a folder of runs; it returns the exit code and the lines.
func health(t *testing.T, runs string) (int, string) {
	t.Helper()
	command := exec.Command("./health.sh")
	command.Env = append(os.Environ(), "MEMPO_RUNS="+runs, "MEMPO_HEALTH_MINUTES=30")
	out, err := command.CombinedOutput()
	if err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

// run makes a run folder whose files were written some time ago; held says whether a process writes it.
func run(t *testing.T, folder string, age time.Duration, held bool, metrics string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lock": "1\n", "metrics.jsonl": metrics} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if !held {
		return
	}
	lock, err := os.Open(filepath.Join(folder, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
}

func TestHealth(t *testing.T) {
	const metrics = "{\"step\":1,\"loss/kl\":0}\n{\"step\":12,\"loss/kl\":0.5}\n"
	cases := []struct {
		name string
		make func(runs string)
		code int
		says string
	}{
		{"no folder", func(string) {}, 0, "no run is at work"},
		{"a run that has ended", func(runs string) { run(t, filepath.Join(runs, "a"), time.Hour, false, metrics) }, 0, "no run is at work"},
		{"a run at work", func(runs string) { run(t, filepath.Join(runs, "a"), time.Minute, true, metrics) }, 0, "a is working, last step: 12"},
		{"a run that has just begun", func(runs string) { run(t, filepath.Join(runs, "a b"), 0, true, "") }, 0, "a b is working, last step: none"},
		{"a silent run", func(runs string) { run(t, filepath.Join(runs, "a"), time.Hour, true, metrics) }, 1, "has written nothing for 30 minutes, last step: 12"},
		{"a silent one of two", func(runs string) {
			run(t, filepath.Join(runs, "a"), time.Hour, true, metrics)
			run(t, filepath.Join(runs, "world", "b"), time.Minute, true, metrics)
		}, 1, "b is working"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			runs := filepath.Join(t.TempDir(), "runs")
			c.make(runs)
			if code, said := health(t, runs); code != c.code || !strings.Contains(said, c.says) {
				t.Errorf("exit code %d and %q, want %d and %q", code, said, c.code, c.says)
			}
		})
	}
}
