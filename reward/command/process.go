package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"go.uber.org/zap"
)

const (
	maxReply = 1 << 20 // of one line, in bytes
	maxError = 4 << 10 // of one line of standard error that is logged
	grace    = time.Second
)

// process is one life of the program. It leads a process group of its own, so that what it starts
// ends with it, and a terminal's Ctrl-C does not reach it.
type process struct {
	input  *os.File
	lines  chan []byte   // that it wrote; closed when its output ends
	exited chan struct{} // closed when it has ended
	group  int
}

// start starts the program.
func start(command []string, logger *zap.Logger) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	// The kernel ends it even when this program is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var pipes []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			pipes = append(pipes, r, w)
		}
		return r, w, err
	}
	stdin, input, err1 := pipe()
	output, stdout, err2 := pipe()
	complaints, stderr, err3 := pipe()
	err := errors.Join(err1, err2, err3)
	p := &process{input: input, lines: make(chan []byte, 1), exited: make(chan struct{})}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		err = p.run(cmd)
	}
	if err != nil {
		for _, file := range pipes {
			file.Close()
		}
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	for _, file := range []*os.File{stdin, stdout, stderr} {
		file.Close() // the other ends are the child's
	}
	go p.read(output)
	go logLines(complaints, logger)
	return p, nil
}

// run starts the child and watches it, from a thread that lives as long: Pdeathsig is sent when the
// thread that started the child ends.
func (p *process) run(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return err
	}
	p.group = cmd.Process.Pid
	return nil
}

// read hands on the lines of the child's output. One that is too long ends it: it would be half read.
func (p *process) read(output *os.File) {
	defer output.Close()
	defer close(p.lines)
	scanner := bufio.NewScanner(output)
	scanner.Buffer(make([]byte, 0, 4<<10), maxReply)
	for scanner.Scan() {
		line := append([]byte{}, scanner.Bytes()...)
		select {
		case p.lines <- line:
			continue
		default: // more lines than were asked for
		}
		select {
		case p.lines <- line:
		case <-p.exited:
			return
		}
	}
}

// logLines logs what the child complains of, line by line.
func logLines(complaints *os.File, logger *zap.Logger) {
	defer complaints.Close()
	reader := bufio.NewReaderSize(complaints, maxError)
	for {
		line, _, err := reader.ReadLine() // long lines come in parts
		if err != nil {
			return
		}
		if len(line) > 0 {
			logger.Info("reward command", zap.ByteString("stderr", line))
		}
	}
}

// silent reports whether the child lives and has written nothing that nobody asked for.
func (p *process) silent() bool {
	select {
	case <-p.exited:
		return false
	case <-p.lines:
		return false
	default:
		return true
	}
}

var errDied = errors.New("it ended, or its output did, before it answered")

// ask writes a line and waits for the one that answers it.
func (p *process) ask(ctx context.Context, line []byte) ([]byte, error) {
	written := make(chan error, 1)
	go func() { // a child that does not read would block this
		_, err := p.input.Write(line)
		written <- err
	}()
	for {
		select {
		case err := <-written:
			if err != nil {
				return nil, errDied
			}
			written = nil
		case reply, open := <-p.lines:
			if !open {
				return nil, errDied
			}
			return reply, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// kill ends the child and all that it started at once.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	p.input.Close()
	<-p.exited
}

// end lets the child end by itself, and sees to it that it does.
func (p *process) end() {
	p.input.Close()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.exited:
			return
		case <-time.After(grace):
			p.signal(signal)
		}
	}
	<-p.exited
}

// signal signals the child's group, unless the child has ended: its number may be another's by then.
func (p *process) signal(signal syscall.Signal) {
	select {
	case <-p.exited:
	default:
		_ = syscall.Kill(-p.group, signal)
	}
}
