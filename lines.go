package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/internal/jsonl"
)

// lines reads JSON lines one after the other and knows where it is.
type lines struct {
	in     *bufio.Reader
	number int // of the line read last, from 1
}

func newLines(r io.Reader) *lines { return &lines{in: bufio.NewReaderSize(r, 1<<16)} }

// next decodes the next line that is not blank. io.EOF is the end; other errors name the line.
func (l *lines) next(into any) error {
	for {
		line, err := l.in.ReadBytes('\n')
		l.number++
		if err != nil && !errors.Is(err, io.EOF) {
			return l.fault(err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return l.fault(jsonl.Decode(line, into))
		}
		if err != nil {
			return io.EOF
		}
	}
}

// fault marks an error as one of the line read last.
func (l *lines) fault(err error) error {
	if err == nil {
		return nil
	}
	return fault.Usage(fmt.Errorf("line %d: %w", l.number, err))
}

// answers writes JSON lines.
type answers struct {
	buffer  *bufio.Writer
	encoder *json.Encoder
}

func newAnswers(w io.Writer) *answers {
	a := &answers{buffer: bufio.NewWriterSize(w, 1<<16)}
	a.encoder = json.NewEncoder(a.buffer)
	a.encoder.SetEscapeHTML(false)
	return a
}

func (a *answers) write(answer any) error {
	if err := a.encoder.Encode(answer); err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	return nil
}

func (a *answers) flush() error {
	if err := a.buffer.Flush(); err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	return nil
}

// orNull makes a list that JSON can hold: a number that is not finite becomes null.
func orNull[T float32 | float64](values []T) []*T {
	list := make([]*T, len(values))
	for k := range values {
		if value := float64(values[k]); !math.IsNaN(value) && !math.IsInf(value, 0) {
			list[k] = &values[k]
		}
	}
	return list
}
