package metrics

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPlainLines(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	progress := &lines{out: &out, now: func() time.Time { return clock }}
	stage := progress.Stage("step 1: generate", 8)
	for range 4 {
		clock = clock.Add(10 * time.Second)
		stage.Add(2)
	}
	stage.Done()
	progress.Line("step 1: score 0.5")
	open := progress.Stage("tokens", 0)
	open.Add(7)
	open.Done()
	progress.Close()
	const want = "step 1: generate: 6 of 8, 30.0 s\nstep 1: generate: 8 of 8, 40.0 s\nstep 1: score 0.5\ntokens: 7, 0.0 s\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestAFileGetsPlainLines(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	progress := NewProgress(file)
	useFromManyGoroutines(progress)
	text, err := os.ReadFile(file.Name())
	if err != nil || strings.ContainsAny(string(text), "\r\x1b") || !strings.HasPrefix(string(text), "work: 40 of 40, ") || !strings.HasSuffix(string(text), "\nbye\n") {
		t.Errorf("got %q, %v", text, err)
	}
}

func useFromManyGoroutines(progress Progress) {
	stage := progress.Stage("work", 40)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10 {
				stage.Add(1)
			}
		})
	}
	group.Wait()
	stage.Done()
	progress.Line("bye")
	progress.Close()
}

// terminal opens a pair of pseudo-terminal ends.
func terminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return user, program
}

func TestATerminalGetsBarsAndLinesThatStay(t *testing.T) {
	user, program := terminal(t)
	defer user.Close()
	seen := make(chan string)
	go func() {
		text, _ := io.ReadAll(user) // ends with an error when the other end is closed
		seen <- string(text)
	}()
	progress := NewProgress(program)
	abandoned := progress.Stage("abandoned", 3)
	abandoned.Add(1)
	time.Sleep(400 * time.Millisecond) // bars are redrawn every 150 ms
	abandoned.Done()
	progress.Stage("never ended", 0).Add(2)
	useFromManyGoroutines(progress)
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	text := <-seen
	if !strings.Contains(text, "abandoned 1 / 3") || !strings.Contains(text, "bye") || !strings.Contains(text, "\x1b[") {
		t.Errorf("the terminal shows %q", text)
	}
}
