package dataset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// readTable reads CSV or TSV (RFC 4180: quotes around a value that holds the separator, a quote or a
// newline; quotes in it doubled), the names of the columns first. An empty value counts as absent.
func readTable(r io.Reader, comma rune, e emit) error {
	bounded := &boundedReader{from: r}
	table := csv.NewReader(bounded)
	table.Comma = comma
	bounded.left = maxLine
	header, err := table.Read()
	if errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	header[0] = strings.TrimPrefix(header[0], string(byteOrderMark))
	columns := slices.Sorted(slices.Values(header))
	if len(slices.Compact(slices.Clone(columns))) < len(columns) {
		return fmt.Errorf("the header names a column twice: %s", listColumns(columns))
	}
	for line := 1; ; {
		bounded.left = maxLine
		values, err := table.Read()
		var broken *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, csv.ErrFieldCount):
			line, _ = table.FieldPos(0)
			e(line, record{}, fmt.Errorf("broken table: %d values, want %d as in the header", len(values), len(header)))
		case errors.As(err, &broken):
			line = broken.StartLine
			e(line, record{}, fmt.Errorf("broken table: %w, in line %d", broken.Err, broken.Line))
		case err != nil:
			return fmt.Errorf("behind line %d: %w", line, err)
		default:
			line, _ = table.FieldPos(0)
			e(line, tableRecord(columns, header, values), nil)
		}
	}
}

// tableRecord is a row of a table, of as many values as the header has.
func tableRecord(columns, header, values []string) record {
	row := make(map[string]string, len(header))
	broken := false
	for k, name := range header {
		row[name] = values[k]
		broken = broken || !utf8.ValidString(values[k])
	}
	return record{columns: columns, broken: broken, untyped: true, value: func(column string) (any, bool, error) {
		v := row[column]
		return v, v != "", nil
	}}
}

// boundedReader fails after so many bytes: a quote that is never closed would take in a whole file.
type boundedReader struct {
	from io.Reader
	left int
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a row is longer than %d MiB", maxLine>>20)
	}
	n, err := b.from.Read(p)
	b.left -= n
	return n, err
}
