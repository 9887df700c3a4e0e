package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Options say how question files are read.
type Options struct {
	// Fields maps "id", "question", "golden_answers", "source" or "hops" to the column that holds it, in
	// place of the columns of the known shapes. A dotted path reaches into objects and lists:
	// "answers.0" is the first element of the list "answers".
	Fields map[string]string
}

// The keys of Options.Fields.
const (
	fieldID       = "id"
	fieldQuestion = "question"
	fieldGolden   = "golden_answers"
	fieldSource   = "source"
	fieldHops     = "hops"
)

// place is where a question stood, for messages about it.
type place struct {
	path string
	unit string // what the file counts: line, element or row
	row  int    // from 1
}

func (p place) String() string { return fmt.Sprintf("%s: %s %d", p.path, p.unit, p.row) }

// emit takes the next record of a file. A non-nil bad is the row's own error: reading goes on
// behind it.
type emit func(row int, rec record, bad error)

func checkFields(fields map[string]string) error {
	allowed := []string{fieldID, fieldQuestion, fieldGolden, fieldSource, fieldHops}
	for name, path := range fields {
		if !slices.Contains(allowed, name) {
			return fmt.Errorf("data.fields: unknown field %q, allowed: %s", name, strings.Join(allowed, ", "))
		}
		if path == "" {
			return fmt.Errorf("data.fields.%s: empty, want the name of a column", name)
		}
	}
	return nil
}

// content is what a file holds, one a row.
type content struct {
	name    string // in messages
	example string // of a right row
	columns []string
	add     func(rec record, at place) error
}

// readFile hands each row of a file to c.add; the error is that of the first bad row, and counts
// the others.
func readFile(path string, c content) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe would wait
		return fmt.Errorf("%s file %s: is no regular file", c.name, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s file: %w", c.name, err)
	}
	defer f.Close()
	unit, read, err := reader(f, c.columns)
	if err != nil {
		return fmt.Errorf("%s file %s: %w", c.name, path, err)
	}
	rows := 0
	var problems rowErrors
	err = read(func(row int, rec record, bad error) {
		rows++
		if bad == nil {
			bad = c.add(rec, place{path, unit, row})
		} else if errors.Is(bad, errNoObject) {
			bad = fmt.Errorf("%w such as %s", bad, c.example)
		}
		problems.add(row, bad)
	})
	if problems.first != nil {
		return fmt.Errorf("%s file %s: %s %w", c.name, path, unit, problems.err())
	}
	if err != nil {
		return fmt.Errorf("%s file %s: %w", c.name, path, err)
	}
	if rows == 0 {
		return fmt.Errorf("%s file %s: holds no %s, want one a %s, e.g. %s", c.name, path, c.name, unit, c.example)
	}
	return nil
}

// reader tells the format of a file and returns what it counts and how to read its records: by its
// name for CSV and TSV, which begin with anything, and by its first bytes for the others.
func reader(f *os.File, columns []string) (unit string, read func(emit) error, err error) {
	start := make([]byte, 64)
	n, err := f.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", nil, err
	}
	start = start[:n]
	if bytes.HasPrefix(start, []byte("PAR1")) {
		info, err := f.Stat()
		if err != nil {
			return "", nil, err
		}
		return "row", func(e emit) error { return readParquet(f, info.Size(), columns, e) }, nil
	}
	buffered := bufio.NewReaderSize(f, 1<<20)
	start = bytes.TrimSpace(bytes.TrimPrefix(start, byteOrderMark))
	switch extension := strings.ToLower(filepath.Ext(f.Name())); {
	case extension == ".csv" || extension == ".tsv":
		comma := map[string]rune{".csv": ',', ".tsv": '\t'}[extension]
		return "line", func(e emit) error { return readTable(buffered, comma, e) }, nil
	case bytes.HasPrefix(start, []byte("[")):
		return "element", func(e emit) error { return readArray(buffered, e) }, nil
	case dataMember.Match(start):
		return "element of Data", func(e emit) error { return readData(buffered, e) }, nil
	}
	return "line", func(e emit) error { return readLines(buffered, e) }, nil
}

// rowErrors keeps the first error of a file and the numbers of the other bad rows.
type rowErrors struct {
	firstRow int
	first    error
	others   []string // as many as are listed
	more     int      // bad rows after the first
}

const listedRows = 10

func (e *rowErrors) add(row int, err error) {
	switch {
	case err == nil:
	case e.first == nil:
		e.firstRow, e.first = row, err
	default:
		e.more++
		if len(e.others) < listedRows {
			e.others = append(e.others, strconv.Itoa(row))
		}
	}
}

func (e *rowErrors) err() error {
	if e.more == 0 {
		return fmt.Errorf("%d: %w", e.firstRow, e.first)
	}
	list := strings.Join(e.others, ", ")
	if e.more > len(e.others) {
		list += ", …"
	}
	return fmt.Errorf("%d: %w (%d more are bad: %s)", e.firstRow, e.first, e.more, list)
}
