// Package jsonl is what the commands that read and write JSON lines have in common: strict
// reading, errors that name the line, and output without HTML escapes.
package jsonl

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Transform calls answer on each line of r that is not blank and writes its result to w as one
// line of JSON. Output is flushed whenever no further input is waiting, so that a program at the
// other end of a pipe can ask line by line. The first error ends it, with the line number in front.
func Transform(r io.Reader, w io.Writer, answer func(line []byte) (any, error)) error {
	in, out := bufio.NewReaderSize(r, 1<<16), bufio.NewWriterSize(w, 1<<16)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for number := 1; ; number++ {
		line, readErr := in.ReadBytes('\n')
		if readErr != nil && readErr != io.EOF {
			return errors.Join(fmt.Errorf("line %d: %w", number, readErr), out.Flush())
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := one(line, encoder, answer); err != nil {
				return errors.Join(fmt.Errorf("line %d: %w", number, err), out.Flush())
			}
		}
		if readErr == io.EOF || in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return fmt.Errorf("writing the answer to line %d: %w", number, err)
			}
		}
		if readErr == io.EOF {
			return nil
		}
	}
}

func one(line []byte, encoder *json.Encoder, answer func([]byte) (any, error)) error {
	result, err := answer(line)
	if err != nil {
		return err
	}
	return encoder.Encode(result)
}

// Decode reads one JSON object into v, which points to a struct. Unknown fields, a wrong type and
// anything after the object are errors in the words of JSON, not of Go.
func Decode(line []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return explain(err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("more than one JSON value on the line")
	}
	return nil
}

func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field == "" {
			return fmt.Errorf("found %s, want %s", wrong.Value, name(wrong.Type))
		}
		return fmt.Errorf("%s: found %s, want %s", wrong.Field, wrong.Value, name(wrong.Type))
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

// name is what JSON calls a Go type.
func name(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return name(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}
