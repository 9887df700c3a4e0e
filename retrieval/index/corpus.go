package index

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/mempo-train/mempo-train/retrieval"
)

// maxLine bounds one line of a corpus file, in bytes.
const maxLine = 64 << 20

const corpusExample = `{"id": "1", "contents": "\"Title\"\ntext"} or {"id": "1", "title": "Title", "text": "text"}`

// LoadCorpus reads a JSONL corpus, one passage a line: {"id", "contents"} or {"id", "title",
// "text"}, the id a string or a number. Blank lines, CRLF and a byte order mark are let pass. A
// broken line, a missing or repeated id and a corpus without a passage are errors that name the
// file and the line.
func LoadCorpus(path string) ([]retrieval.Passage, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	defer f.Close()
	passages, err := readCorpus(f)
	if err != nil {
		return nil, fmt.Errorf("corpus %s: %w", path, err)
	}
	return passages, nil
}

func readCorpus(r io.Reader) ([]retrieval.Passage, error) {
	var passages []retrieval.Passage
	lines := map[string]int{} // of an id
	err := scanCorpus(r, func(line int, passage retrieval.Passage) error {
		if first, ok := lines[passage.ID]; ok {
			return fmt.Errorf("id %q is already that of line %d; ids must be unique", passage.ID, first)
		}
		lines[passage.ID] = line
		passages = append(passages, passage)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(passages) == 0 {
		return nil, fmt.Errorf("holds no passage, want one a line: %s", corpusExample)
	}
	return passages, nil
}

// scanCorpus calls each with every passage and its line, counted from 1. Its errors name the line.
func scanCorpus(r io.Reader, each func(line int, passage retrieval.Passage) error) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for scanner.Scan() {
		n++
		line := scanner.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		passage, err := retrieval.ParsePassage(line)
		if err != nil {
			return fmt.Errorf("line %d: %w; a right line: %s", n, err, corpusExample)
		}
		if passage.ID == "" {
			return fmt.Errorf("line %d: no id; a right line: %s", n, corpusExample)
		}
		if err := each(n, passage); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d: longer than %d MiB", n+1, maxLine>>20)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// Overview is what a corpus file holds.
type Overview struct {
	Passages int
	Bytes    int64 // of contents
	First    []retrieval.Passage
}

// Survey reads a corpus file through as LoadCorpus does, but for ids that are repeated, and keeps its
// first passages.
func Survey(path string, first int) (*Overview, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	defer f.Close()
	o := &Overview{}
	err = scanCorpus(f, func(_ int, passage retrieval.Passage) error {
		o.Passages++
		o.Bytes += int64(len(passage.Contents))
		if len(o.First) < first {
			o.First = append(o.First, passage)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("corpus %s: %w", path, err)
	}
	return o, nil
}
