package world

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// writtenByChild names the folder that a child process writes and does not finish, and
// diesBehind what it says last.
const writtenByChild, diesBehind = "MEMPO_TEST_WRITE_WORLD", "MEMPO_TEST_DIE_BEHIND"

// writeAndDie makes a world until a line has been said, and is killed there.
func writeAndDie(dir string) {
	err := Write(dir, small(), func(line string) {
		if strings.HasPrefix(line, os.Getenv(diesBehind)) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	panic(err)
}

// A process that is killed leaves the world that was there, or none, and never a part of one; the
// next one makes it whole.
func TestAKilledProcessLeavesNoHalfWorld(t *testing.T) {
	want := files(t, made(t, small()))
	old := small()
	old.Seed = 2
	for _, behind := range []string{TrainFile, CorpusFile, DemonstrationsFile, ModelFolder} {
		for _, before := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "data")
			if before {
				if err := Write(dir, old, silent); err != nil {
					t.Fatal(err)
				}
			}
			var there map[string]string
			if before {
				there = files(t, dir)
			}
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), writtenByChild+"="+dir, diesBehind+"="+behind)
			out, _ := child.CombinedOutput()
			if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("the process ended with %v: %s", child.ProcessState, out)
			}
			if _, err := os.Stat(dir); before && !sameFiles(there, files(t, dir)) || !before && !os.IsNotExist(err) {
				t.Errorf("killed behind %s: the world has changed, %v", behind, err)
			}
			if err := Write(dir, small(), silent); err != nil || !sameFiles(want, files(t, dir)) {
				t.Errorf("after a kill behind %s the world is another, %v", behind, err)
			}
			alone(t, dir)
		}
	}
}
