package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"unicode/utf8"
)

// maxLine bounds one line of a JSONL file, in bytes.
const maxLine = 64 << 20

var byteOrderMark = []byte("\xef\xbb\xbf")

// readLines reads JSONL: one object a line. Blank lines, CRLF and a byte order mark are let pass.
func readLines(r io.Reader, e emit) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	row := 0
	for scanner.Scan() {
		row++
		line := scanner.Bytes()
		if row == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		rec, err := jsonRecord(line)
		e(row, rec, err)
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d MiB", row+1, maxLine>>20)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", row+1, err)
	}
	return nil
}

func skipByteOrderMark(r *bufio.Reader) {
	if start, err := r.Peek(len(byteOrderMark)); err == nil && bytes.Equal(start, byteOrderMark) {
		_, _ = r.Discard(len(byteOrderMark)) // just seen, so it is there
	}
}

// readArray reads one JSON array of objects, as HotpotQA is published.
func readArray(r *bufio.Reader, e emit) error {
	skipByteOrderMark(r)
	decoder := json.NewDecoder(r)
	row, err := elements(decoder, e)
	if err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows the array of %d elements", row)
	}
	return nil
}

// dataMember begins a file of TriviaQA's original.
var dataMember = regexp.MustCompile(`^\{\s*"Data"\s*:\s*\[`)

// readData reads {"Data": [objects], …}, as TriviaQA is published.
func readData(r *bufio.Reader, e emit) error {
	skipByteOrderMark(r)
	decoder := json.NewDecoder(r)
	for range 2 { // the brace and the name
		if _, err := decoder.Token(); err != nil {
			return fmt.Errorf("broken JSON: %w", err)
		}
	}
	row, err := elements(decoder, e)
	if err != nil {
		return err
	}
	for depth := 1; depth > 0; { // the other members
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("after element %d: broken JSON, the object is not closed: %w", row, err)
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows the object with %d elements", row)
	}
	return nil
}

// elements reads an array of objects and returns their number.
func elements(decoder *json.Decoder, e emit) (row int, err error) {
	if opening, err := decoder.Token(); err != nil {
		return 0, fmt.Errorf("broken JSON: %w", err)
	} else if opening != json.Delim('[') {
		return 0, fmt.Errorf("broken JSON: %v, want an array", opening)
	}
	for decoder.More() {
		row++
		var element json.RawMessage
		if err := decoder.Decode(&element); err != nil {
			return row, fmt.Errorf("element %d: broken JSON: %w", row, err)
		}
		rec, err := jsonRecord(element)
		e(row, rec, err)
	}
	if _, err := decoder.Token(); err != nil {
		return row, fmt.Errorf("after element %d: broken JSON, the array is not closed: %w", row, err)
	}
	return row, nil
}

// errNoObject marks a row that is no record at all.
var errNoObject = errors.New("want an object")

// jsonRecord reads an object; the values of its columns are decoded when asked for, as most of an
// original file (HotpotQA's paragraphs) never is.
func jsonRecord(data []byte) (record, error) {
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(data, &columns); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			return record{}, fmt.Errorf("is a JSON %s, %w", wrongType.Value, errNoObject)
		}
		return record{}, fmt.Errorf("broken JSON: %w, in %s", err, quote(string(data[:min(len(data), 100)])))
	}
	if columns == nil {
		return record{}, fmt.Errorf("is null, %w", errNoObject)
	}
	value := func(column string) (any, bool, error) {
		raw, ok := columns[column]
		if !ok {
			return nil, false, nil
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber()
		var v any
		if err := decoder.Decode(&v); err != nil {
			return nil, false, fmt.Errorf("broken JSON: %w", err)
		}
		return v, true, nil
	}
	return record{columns: slices.Sorted(maps.Keys(columns)), broken: !utf8.Valid(data), value: value}, nil
}
