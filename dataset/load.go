package dataset

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Options say how a question file is read.
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

// Set is a checked set of questions in the order of its files.
type Set struct {
	Questions []Question
	// Hash is Hash of the questions: equal hashes mean that the same draws give the same questions,
	// whatever the format of the files.
	Hash string
}

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

// Load reads and checks one or more question files, as one set. A file is Parquet, JSONL or one
// JSON array, told apart by its first bytes. A row has one of these shapes, told apart by its
// columns (a column that is null counts as absent):
//
//   - {"id", "question", "golden_answers"}, with "data_source" and "hops" optional
//   - verl and Search-R1: golden answers in reward_model.ground_truth.target (or ground_truth
//     itself), source in data_source; the question is extra_info.question, else the column
//     question, else prompt; where that is a list of messages, the content of the last one with
//     the role "user", as it stands
//   - HotpotQA: {"_id", "question", "answer"}; MuSiQue: {"id", "question", "answer",
//     "answer_aliases"}
//
// Golden answers are a string (one answer), a list of strings (alternatives), or a list of lists
// (several objectives). Numbers are refused. Blank strings in a list are dropped, as they would
// match nothing. A row without an id gets its number in the set, from 1. Two rows with the same
// id and source are refused; where only the sources differ, every id of the set is written as
// "source/id", so that ids are unique. The number of hops is a whole number from 1 in the column
// "hops", else that of an id as MuSiQue has them ("2hop__…"), else not known.
func Load(paths []string, options Options) (*Set, error) {
	if len(paths) == 0 {
		return nil, errors.New("no question file given")
	}
	if err := checkFields(options.Fields); err != nil {
		return nil, err
	}
	l := loader{shape: shape{fields: options.Fields}, seen: map[key]place{}}
	for _, path := range paths {
		if err := l.file(path); err != nil {
			return nil, err
		}
	}
	l.qualifyIDs()
	return &Set{Questions: l.questions, Hash: Hash(l.questions)}, nil
}

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

// key identifies a question: sources number their questions independently of each other.
type key struct{ source, id string }

type loader struct {
	shape     shape
	questions []Question
	seen      map[key]place
}

func (l *loader) file(path string) error {
	return readFile(path, content{name: "question", example: example, columns: l.shape.columns(), add: l.add})
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

// add checks one row and appends its question.
func (l *loader) add(rec record, at place) error {
	q, err := l.shape.question(rec)
	if err != nil {
		return err
	}
	if q.ID == "" {
		q.ID = strconv.Itoa(len(l.questions) + 1)
	}
	k := key{q.Source, q.ID}
	if first, ok := l.seen[k]; ok {
		return fmt.Errorf("id %q is already that of %s; ids must be unique", q.ID, first)
	}
	l.seen[k] = at
	l.questions = append(l.questions, q)
	return nil
}

// qualifyIDs puts the source before every id if an id occurs under more than one source.
func (l *loader) qualifyIDs() {
	ids := make(map[string]bool, len(l.questions))
	for _, q := range l.questions {
		ids[q.ID] = true
	}
	if len(ids) == len(l.questions) {
		return
	}
	for k := range l.questions {
		q := &l.questions[k]
		q.ID = q.Source + "/" + q.ID
	}
}

// reader tells the format of a file by its first bytes and returns what it counts and how to
// read its records.
func reader(f *os.File, columns []string) (unit string, read func(emit) error, err error) {
	start := make([]byte, 64)
	n, err := f.ReadAt(start, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", nil, err
	}
	start = start[:n]
	if bytes.HasPrefix(start, []byte("PAR1")) {
		return "row", func(e emit) error { return readParquet(f, columns, e) }, nil
	}
	buffered := bufio.NewReaderSize(f, 1<<20)
	if bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(start, byteOrderMark)), []byte("[")) {
		return "element", func(e emit) error { return readArray(buffered, e) }, nil
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

// Hash is the SHA-256, in hex, of questions with their ids, golden answers and sources, in order.
func Hash(questions []Question) string { return hash(questions) }

func hash[T any](set []T) string {
	h := sha256.New()
	encoder := json.NewEncoder(h) // a JSON value a line: no two lists are written alike
	for _, member := range set {
		if err := encoder.Encode(member); err != nil {
			panic(err) // strings always encode, and a hash never fails to take them
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
