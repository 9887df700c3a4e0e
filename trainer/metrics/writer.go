package metrics

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// Number is a measured number; in JSON, NaN and infinities are null.
type Number float64

// MarshalJSON writes null for what JSON has no number for.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Writer appends to metrics.jsonl: for each step one object, "step" first, then the metrics in the
// order of their list. A line is on disk when Write returns. Writing a step's line before its
// checkpoint keeps the file without a gap whenever the process dies. TensorBoard events of the same
// figures lie beside it.
type Writer struct {
	file   *os.File
	events *events
	last   int64
}

// Open opens or creates a metrics file for a run that goes on after step resumed (0 for a run from
// the start). Lines of later steps, and a last line that was not finished, are dropped, so that
// every step occurs once. The events are made anew from the lines that stay.
func Open(path string, resumed int64) (*Writer, error) {
	kept, dropped, err := readUpTo(path, resumed)
	if err != nil {
		return nil, err
	}
	written := time.Now()
	if info, err := os.Stat(path); err == nil {
		written = info.ModTime()
	}
	if dropped {
		err := durable.WriteFile(path, func(w io.Writer) error {
			_, err := w.Write(kept)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fault.Environment(fmt.Errorf("cannot write metrics: %w", err))
	}
	events, err := openEvents(filepath.Dir(path), kept, written)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Writer{file: file, events: events, last: resumed}, nil
}

// readUpTo reads the lines of steps up to resumed, and tells whether there is more in the file.
func readUpTo(path string, resumed int64) (kept []byte, dropped bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fault.Environment(fmt.Errorf("cannot read metrics: %w", err))
	}
	defer file.Close()
	lines := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, readErr := lines.ReadBytes('\n')
		if readErr == io.EOF {
			return kept, dropped || len(line) > 0, nil
		}
		if readErr != nil {
			return nil, false, fault.Environment(fmt.Errorf("cannot read metrics: %w", readErr))
		}
		var entry struct {
			Step int64 `json:"step"`
		}
		if err := json.Unmarshal(line, &entry); err != nil || entry.Step < 1 {
			return nil, false, fault.Usage(fmt.Errorf("%s line %d is not the metrics of a step from 1: %s", path, number, shown(line)))
		}
		if entry.Step > resumed {
			dropped = true
			continue
		}
		kept = append(kept, line...)
	}
}

// shown is a line as an error quotes it.
func shown(line []byte) string {
	const limit = 60
	line = bytes.TrimSpace(line)
	if len(line) > limit {
		return fmt.Sprintf("%q…", line[:limit])
	}
	return fmt.Sprintf("%q", line)
}

// Write appends the line of a step, which must come after the one before. A name that is not on
// the list is an error; NaN and infinities are written as null.
func (w *Writer) Write(step int64, values map[string]float64) error {
	if step <= w.last {
		return fmt.Errorf("metrics of step %d come after those of step %d", step, w.last)
	}
	line := fmt.Appendf(nil, `{"step":%d`, step)
	for _, name := range inOrder(values) {
		if !Known(name) {
			return fmt.Errorf("%q is not the name of a metric", name)
		}
		value, err := Number(values[name]).MarshalJSON()
		if err != nil {
			return fmt.Errorf("metric %s: %w", name, err)
		}
		line = fmt.Appendf(line, `,"%s":%s`, name, value) // known names need no escapes
	}
	line = append(line, "}\n"...)
	if _, err := w.file.Write(line); err != nil {
		return fmt.Errorf("cannot write metrics: %w", err)
	}
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("cannot write metrics: %w", err)
	}
	w.last = step
	return w.events.write(step, values)
}

// Close closes the files.
func (w *Writer) Close() error {
	if err := errors.Join(w.file.Close(), w.events.file.Close()); err != nil {
		return fmt.Errorf("cannot close metrics: %w", err)
	}
	return nil
}
