package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

func emptyFile(name string) damage { return replace(name, "") }

func emptyFolder(name string) damage {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRunFoldersThatCannotBeWritten(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	notAFolder := write(t, filepath.Join(t.TempDir(), "file"), "")
	for _, runDir := range []string{notAFolder, filepath.Join(notAFolder, "run"), "/proc/run", "/proc/self/run", "/dev/null/run", "/dev/full"} {
		path, _ := tinyConfig(t, dir)
		refused(t, runTrain(t.Context(), path, []string{"run.dir=" + runDir}, nil), fault.CodeEnvironment, runDir)
	}
	for name, blocked := range map[string]damage{
		"lock": emptyFolder("lock"), "log.jsonl": emptyFolder("log.jsonl"), "metrics.jsonl": emptyFolder("metrics.jsonl"),
		"config.toml": emptyFolder("config.toml"), "trajectories": emptyFile("trajectories"), "checkpoints": emptyFile("checkpoints"),
	} {
		t.Run("something else is called "+name, func(t *testing.T) {
			path, runDir := tinyConfig(t, dir)
			emptyFolder("run")(t, filepath.Dir(runDir))
			blocked(t, runDir)
			refused(t, runTrain(t.Context(), path, nil, nil), fault.CodeEnvironment, runDir)
		})
	}
}

func TestTwoRunsInOneFolder(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	first, err := rundir.Open(runDir)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, runTrain(t.Context(), path, nil, nil), fault.CodeUsage, runDir, "in use by process")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	train(t, path, "run.steps=1")
}

func TestCheckpointsThatDoNotBelongToTheRun(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, runDir := tinyConfig(t, dir)
	train(t, path, "run.steps=1")
	saved := filepath.Join(runDir, "checkpoints", "step_000001")

	other := tinyFolder(t, "llama-tiny")
	data := write(t, filepath.Join(t.TempDir(), "other.jsonl"), goodQuestion)
	retokenized := tinyFolder(t, "qwen2-tiny")
	swap("tokenizer.json", "<search", "<answer")(t, retokenized)
	for _, test := range []struct {
		set   string
		named []string
	}{
		{"model.path=" + other, []string{saved, dir, other}},
		{"model.path=" + retokenized, []string{saved, "tokenizer"}},
		{"data.train=" + data, []string{saved, "training data"}},
		{"run.resume=never", []string{runDir, "run.resume"}},
	} {
		refused(t, runTrain(t.Context(), path, []string{test.set}, nil), fault.CodeUsage, test.named...)
	}
	lines := metricLines(t, runDir)
	if len(lines) != 1 {
		t.Errorf("%d lines of metrics are left of 1", len(lines))
	}

	// A copy of the same folders is the same model and the same data.
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	train(t, path, "run.steps=2", "model.path="+copied)
}

func TestCheckpointsThatWereDamaged(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, runDir := tinyConfig(t, dir)
	train(t, path, "run.steps=1")
	const record, master, moment = "trainer_state/record.json", "trainer_state/master.safetensors", "trainer_state/exp_avg.safetensors"
	tests := []struct {
		name   string
		damage damage
		named  []string
	}{
		{"no record", remove(record), []string{record}},
		{"record is cut", cut(record, 20), []string{record}},
		{"record of a newer version", set(record, map[string]any{"format_version": 99}), []string{record, "99"}},
		{"record without a position", set(record, map[string]any{"sampler": nil}), []string{"step 1"}},
		{"position of another data set", set(record, map[string]any{"sampler": map[string]any{"epoch": -3}}), []string{"saved position"}},
		{"no weights", remove(master), []string{master}},
		{"weights are cut", cut(master, 9000), []string{master}},
		{"moments are cut", cut(moment, 9000), []string{moment}},
		{"moments are something else", replace(moment, "moments"), []string{moment}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "run")
			if err := os.CopyFS(copied, os.DirFS(runDir)); err != nil {
				t.Fatal(err)
			}
			test.damage(t, filepath.Join(copied, "checkpoints", "step_000001"))
			refused(t, runTrain(t.Context(), path, []string{"run.dir=" + copied}, nil), fault.CodeUsage, test.named...)
		})
	}
	damagedMetrics := write(t, filepath.Join(runDir, "metrics.jsonl"), "no metrics")
	refused(t, runTrain(t.Context(), path, nil, nil), fault.CodeUsage, damagedMetrics, "line 1")
}

// An update beyond all bounds ends the run, and the checkpoint from before it stands.
func TestWeightsThatAreNoNumbersAreNotSaved(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	train(t, path, "run.steps=1")
	refused(t, runTrain(t.Context(), path, []string{"optimizer.learning_rate=1e37", "optimizer.weight_decay=1e10"}, nil), fault.CodeOther, "checkpoint of step 2", "master is", "finite")
	onlyCheckpoint(t, runDir, 1)
	refused(t, runTrain(t.Context(), path, []string{"optimizer.learning_rate=1e30", "optimizer.weight_decay=0"}, nil), fault.CodeOther, "not finite")
}

func TestExitCodesOfRuns(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	empty := t.TempDir()
	for _, test := range []struct {
		sets []string
		code int
		last string // of what it tells
	}{
		{nil, 0, "done: "},
		{[]string{"model.path=" + empty}, fault.CodeUsage, "mempo-train: cannot read " + empty},
		{[]string{"tools.search.backend=http", "tools.search.url=http://127.0.0.1:1", "tools.search.tries=1"}, fault.CodeEnvironment, "mempo-train: search service http://127.0.0.1:1"},
		{[]string{"optimizer.learning_rate=1e30"}, fault.CodeOther, "mempo-train: generation"},
	} {
		path, _ := tinyConfig(t, dir)
		r := startRun(t, path, test.sets...)
		code, _ := r.end()
		if last := r.lines[len(r.lines)-1]; code != test.code || !strings.HasPrefix(last, test.last) {
			t.Errorf("%q: exit code %d, want %d, and %q", test.sets, code, test.code, last)
		}
	}
}

// asMounted makes a test run again in a process with file systems of its own.
const asMounted = "MEMPO_TEST_AS_MOUNTED"

// mounted mounts an empty file system for the rest of the test, in a process of its own so that it
// ends with it; it reports false in the process that only waits for that one.
func mounted(t *testing.T, options string) (dir string, here bool) {
	t.Helper()
	if os.Getenv(asMounted) == "" {
		command := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		command.Env = append(os.Environ(), asMounted+"=1")
		command.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		text, err := command.CombinedOutput()
		if command.ProcessState == nil || strings.Contains(string(text), "may not mount") {
			t.Skipf("this user may not mount a file system: %v", err)
		}
		if err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		return "", false
	}
	dir = t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("this user may not mount a file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir, true
}

func TestFullDiskWhileACheckpointIsWritten(t *testing.T) {
	disk, here := mounted(t, "size=3m") // room for one checkpoint and a half
	if !here {
		return
	}
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	runDir := filepath.Join(disk, "run")
	refused(t, runTrain(t.Context(), path, []string{"run.dir=" + runDir}, nil), fault.CodeEnvironment, "checkpoint of step 2", runDir, "no space left on device")
	onlyCheckpoint(t, runDir, 1)
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size=50m"); err != nil {
		t.Fatal(err)
	}
	train(t, path, "run.dir="+runDir)
	everyStepOnce(t, runDir, 3)
}

func TestFullDiskWhileAStepIsWritten(t *testing.T) {
	disk, here := mounted(t, "size=24k")
	if !here {
		return
	}
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	runDir := filepath.Join(disk, "run")
	refused(t, runTrain(t.Context(), path, []string{"run.dir=" + runDir}, nil), fault.CodeEnvironment, runDir, "no space left on device")
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT, "size=50m"); err != nil {
		t.Fatal(err)
	}
	train(t, path, "run.dir="+runDir)
	everyStepOnce(t, runDir, 3)
}

func TestReadOnlyDisk(t *testing.T) {
	disk, here := mounted(t, "size=1m")
	if !here {
		return
	}
	if err := unix.Mount("none", disk, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	runDir := filepath.Join(disk, "run")
	refused(t, runTrain(t.Context(), path, []string{"run.dir=" + runDir}, nil), fault.CodeEnvironment, runDir, "read-only file system")
}

// A limit on the size of files, as `ulimit -f` sets it, is a full disk to the program.
func TestFilesMayNotGrowToACheckpoint(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	command := process(path)
	command.Path, command.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -f 200; exec "$0" "$@"`}, command.Args...)
	text, _ := command.CombinedOutput()
	code := command.ProcessState.ExitCode()
	last := string(text[strings.LastIndex("\n"+strings.TrimSpace(string(text)), "\n"):])
	if code != fault.CodeEnvironment || !oneSentence(last) || !strings.Contains(last, "file too large") {
		t.Errorf("exit code %d, want %d: %s", code, fault.CodeEnvironment, last)
	}
	if found, err := checkpoint.List(runDir); err != nil || len(found) > 0 {
		t.Errorf("checkpoints %v, %v", found, err)
	}
	train(t, path)
	everyStepOnce(t, runDir, 3)
}

// onlyCheckpoint checks that a run folder holds the checkpoint of one step and nothing unfinished.
func onlyCheckpoint(t *testing.T, runDir string, step int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(runDir, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := checkpoint.List(runDir)
	if err != nil || len(entries) != 1 || len(found) != 1 || found[0].Step != step {
		t.Errorf("entries %v, checkpoints %v, %v; want that of step %d", entries, found, err, step)
	}
}

// everyStepOnce checks that a run has the metrics of steps 1 to n, each once and in order.
func everyStepOnce(t *testing.T, runDir string, n int) {
	t.Helper()
	lines := metricLines(t, runDir)
	if len(lines) != n {
		t.Errorf("%d lines of metrics, want %d", len(lines), n)
	}
	for k, line := range lines {
		if line["step"] != float64(k+1) {
			t.Errorf("line %d is of step %v", k+1, line["step"])
		}
	}
}

func TestTheFolderOfAnEvaluationIsRefused(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	path, runDir := tinyConfig(t, dir)
	start, startDir := tinySFT(t, dir)
	for _, folder := range []string{runDir, startDir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, "results.json"), "{}")
	}
	refused(t, runTrain(t.Context(), path, nil, nil), fault.CodeUsage, runDir, "the folder of an evaluation")
	refused(t, runSFT(t.Context(), start, nil, nil), fault.CodeUsage, startDir, "the folder of an evaluation")
}
