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
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	var passages []retrieval.Passage
	lines := map[string]int{} // of an id
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
			return nil, fmt.Errorf("line %d: %w; a right line: %s", n, err, corpusExample)
		}
		if passage.ID == "" {
			return nil, fmt.Errorf("line %d: no id; a right line: %s", n, corpusExample)
		}
		if first, ok := lines[passage.ID]; ok {
			return nil, fmt.Errorf("line %d: id %q is already that of line %d; ids must be unique", n, passage.ID, first)
		}
		lines[passage.ID] = n
		passages = append(passages, passage)
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d MiB", n+1, maxLine>>20)
	} else if err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(passages) == 0 {
		return nil, fmt.Errorf("holds no passage, want one a line: %s", corpusExample)
	}
	return passages, nil
}
