// Package rundir is the folder of a run: who may write it, and where things lie in it.
//
//	config.toml                      the resolved settings
//	metrics.jsonl                    see package metrics
//	trajectories/step_NNNNNN.jsonl   one trajectory a line; of an evaluation, step_000000_CONTEXT.jsonl
//	results.json                     of an evaluation, see package eval
//	checkpoints/step_NNNNNN/         see package checkpoint
//	log.jsonl, report.html
//	lock                             held by the one process that writes
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// Dir is a run folder that this process alone may write.
type Dir struct {
	path string
	lock *os.File
}

// Open creates a run folder if it is not there and locks it. A folder that another process holds
// is a usage fault that names the process; one that cannot be written is a fault of the
// environment. The lock ends with Close or with the process, however it ends.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, notWritable(path, err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, notWritable(path, err)
	}
	if err := acquire(path, lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Dir{path: path, lock: lock}, nil
}

func notWritable(path string, err error) error {
	return fault.Environment(fmt.Errorf("run folder %s cannot be written: %w", path, durable.Bare(err)))
}

// acquire locks the file and writes the number of this process into it.
func acquire(path string, lock *os.File) error {
	err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fault.Usage(fmt.Errorf("run folder %s is in use by %s: one run at a time writes a folder", path, holder(lock)))
	}
	if err != nil {
		return fault.Environment(fmt.Errorf("run folder %s cannot be locked: %w", path, err))
	}
	if err := lock.Truncate(0); err != nil {
		return notWritable(path, err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return notWritable(path, err)
	}
	return nil
}

// Holder names the process that writes a run folder; "" if none does, or if there is no run. It
// changes nothing.
func Holder(path string) (string, error) {
	lock, err := os.Open(filepath.Join(path, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.Environment(fmt.Errorf("run folder %s cannot be read: %w", path, durable.Bare(err)))
	}
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) // given up with the file
	if errors.Is(err, unix.EWOULDBLOCK) {
		return holder(lock), nil
	}
	if err != nil {
		return "", fault.Environment(fmt.Errorf("the lock of run folder %s cannot be read: %w", path, err))
	}
	return "", nil
}

// holder names the process that holds the lock, as far as it has said so.
func holder(lock *os.File) string {
	var text [32]byte
	n, _ := lock.ReadAt(text[:], 0) // the end of the file is expected
	pid := strings.TrimSpace(string(text[:n]))
	if pid == "" {
		return "another process"
	}
	return "process " + pid
}

// Close gives the folder up.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("cannot unlock run folder %s: %w", d.path, err)
	}
	return nil
}

// Path is the folder.
func (d *Dir) Path() string { return d.path }

// MetricsPath is where metrics.jsonl lies.
func (d *Dir) MetricsPath() string { return filepath.Join(d.path, "metrics.jsonl") }

// LogPath is where log.jsonl lies.
func (d *Dir) LogPath() string { return filepath.Join(d.path, "log.jsonl") }

// WriteConfig replaces config.toml.
func (d *Dir) WriteConfig(text string) error {
	return durable.WriteFile(filepath.Join(d.path, "config.toml"), func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// TrajectoriesPath is where the trajectories of a step lie.
func (d *Dir) TrajectoriesPath(step int64) string {
	return filepath.Join(d.path, "trajectories", fmt.Sprintf("step_%06d.jsonl", step))
}

// EvaluationPath is where the trajectories of an evaluation in a context lie. It trains nothing:
// its step is 0.
func (d *Dir) EvaluationPath(context string) string {
	return filepath.Join(d.path, "trajectories", fmt.Sprintf("step_%06d_%s.jsonl", 0, context))
}

// WriteTrajectories replaces the trajectories of a step: one row a line, in plain UTF-8 with '<',
// '>' and '&' as they are. Bytes that are not UTF-8 become U+FFFD. A row that JSON cannot hold,
// such as one with a NaN, is an error that names it, and the file is as before.
func WriteTrajectories[T any](d *Dir, step int64, rows []T) error {
	return d.stream(d.TrajectoriesPath(step), func(write func(any) error) error {
		for _, row := range rows {
			if err := write(row); err != nil {
				return err
			}
		}
		return nil
	})
}

// WriteEvaluation replaces the trajectories of an evaluation, as WriteTrajectories does, by the rows
// that fill hands to write one by one. After an error of fill's the file is as before.
func (d *Dir) WriteEvaluation(context string, fill func(write func(row any) error) error) error {
	return d.stream(d.EvaluationPath(context), fill)
}

func (d *Dir) stream(path string, fill func(write func(row any) error) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return notWritable(d.path, err)
	}
	return durable.WriteFile(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		rows := 0
		return fill(func(row any) error {
			rows++
			if err := encoder.Encode(row); err != nil {
				return fmt.Errorf("row %d: %w", rows, err)
			}
			return nil
		})
	})
}
