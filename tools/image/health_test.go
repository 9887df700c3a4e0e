// Package image is the test of what goes into the image beside the program.
package image

import (
	"context"
	"errors"
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "./health.sh")
	command.WaitDelay = time.Second // what it has started may hold its output open
	command.Env = append(os.Environ(), "MEMPO_RUNS="+runs, "MEMPO_HEALTH_MINUTES=30")
	out, err := command.CombinedOutput()
	if command.ProcessState == nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
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

// pipe puts a pipe that nobody writes to in place of a file.
func pipe(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)); err != nil {
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
		{"a name of two lines", func(runs string) {
			run(t, filepath.Join(runs, "a\nb\\c"), time.Minute, true, metrics)
		}, 0, "runs/a?b\\c is working, last step: 12\n"},
		{"a run that has ended, of two lines", func(runs string) {
			run(t, filepath.Join(runs, "a\nb"), time.Minute, false, metrics)
			run(t, filepath.Join(runs, "c"), time.Minute, true, metrics)
		}, 0, "runs/c is working, last step: 12\n"},
		{"metrics that are a pipe", func(runs string) {
			run(t, filepath.Join(runs, "a"), time.Minute, true, metrics)
			pipe(t, filepath.Join(runs, "a", "metrics.jsonl"))
		}, 0, "a is working, last step: none"},
		{"a lock that is a pipe", func(runs string) {
			run(t, filepath.Join(runs, "a"), time.Minute, false, metrics)
			pipe(t, filepath.Join(runs, "a", "lock"))
		}, 0, "no run is at work"},
		{"metrics that are a folder", func(runs string) {
			run(t, filepath.Join(runs, "a"), time.Minute, true, metrics)
			metrics := filepath.Join(runs, "a", "metrics.jsonl")
			if err := errors.Join(os.Remove(metrics), os.Mkdir(metrics, 0o755)); err != nil {
				t.Fatal(err)
			}
		}, 0, "a is working, last step: none"},
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
