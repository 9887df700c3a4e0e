package index

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	bleveindex "github.com/blevesearch/bleve_index_api"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// The files of BM25: bleve's inverted index, the row of each of its documents (its numbers are in no
// order), and the words of all passages together.
const (
	wordsFolder  = "words"
	wordRowsFile = "word_rows.bin"
)

// contentsField is the one field of a document.
const contentsField = "contents"

// The inverted index is built of parts of so many passages, of which so many are merged at once.
const (
	segmentPassages = 8000
	mergedSegments  = 32
)

// wordAnalyzer cuts texts into the words that BM25 in memory has.
type wordAnalyzer struct{}

// Analyze implements analysis.Analyzer.
func (wordAnalyzer) Analyze(text []byte) analysis.TokenStream {
	var stream analysis.TokenStream
	tokens(string(text), func(word []byte) {
		stream = append(stream, &analysis.Token{Term: append([]byte{}, word...), Position: len(stream) + 1})
	})
	return stream
}

// buildWords writes the inverted index of the passages into a folder and returns the number of
// words in all.
func buildWords(ctx context.Context, dir string, p *passages, done func(int)) (words int64, err error) {
	folder, parts := filepath.Join(dir, wordsFolder), filepath.Join(dir, wordsFolder+durable.TempSuffix)
	if err := errors.Join(os.RemoveAll(folder), os.RemoveAll(parts)); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(parts, 0o755); err != nil {
		return 0, err
	}
	builder, err := scorch.NewBuilder(map[string]any{"path": folder, "buildPathPrefix": parts, "batchSize": segmentPassages, "mergeMax": mergedSegments})
	if err != nil {
		return 0, err
	}
	for row := range p.count {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		contents, err := p.bytes(2*row + 1)
		if err != nil {
			return 0, err
		}
		tokens(string(contents), func([]byte) { words++ })
		d := document.NewDocument(strconv.Itoa(row))
		d.AddField(document.NewTextFieldCustom(contentsField, nil, contents, bleveindex.IndexField, wordAnalyzer{}))
		if err := builder.Index(d); err != nil {
			return 0, fault.Environment(err) // bleve leaves only the text of a full disk
		}
		done(1)
	}
	if err := builder.Close(); err != nil {
		return 0, fault.Environment(err)
	}
	return words, errors.Join(writeWordRows(dir, p.count), os.RemoveAll(parts))
}

// writeWordRows writes the row of each document of the inverted index.
func writeWordRows(dir string, count int) (err error) {
	reader, index, err := openWords(filepath.Join(dir, wordsFolder))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Close(), index.Close()) }()
	return durable.CreateSynced(filepath.Join(dir, wordRowsFile), func(w io.Writer) error {
		var id bleveindex.IndexInternalID
		var number [4]byte
		for k := range count {
			id = bleveindex.NewIndexInternalID(id, uint64(k))
			name, err := reader.ExternalID(id)
			if err != nil {
				return err
			}
			row, err := strconv.ParseUint(name, 10, 31)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(number[:], uint32(row))
			if _, err := w.Write(number[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

func openWords(folder string) (reader bleveindex.IndexReader, index bleveindex.Index, err error) {
	if _, err := os.Stat(filepath.Join(folder, "root.bolt")); err != nil {
		return nil, nil, err
	}
	index, err = scorch.NewScorch(scorch.Name, map[string]any{"path": folder, "read_only": true}, bleveindex.NewAnalysisQueue(1))
	if err != nil {
		return nil, nil, err
	}
	if err := index.Open(); err != nil {
		return nil, nil, err
	}
	if reader, err = index.Reader(); err != nil {
		return nil, nil, errors.Join(err, index.Close())
	}
	return reader, index, nil
}

// storedBM25 ranks passages as BM25 does, to the same scores, from files. The inverted index is
// bleve's; its formula is not: its BM25 squares the inverse document frequency, takes the root of
// the counts and divides lengths by the number of different words.
type storedBM25 struct {
	reader bleveindex.IndexReader
	index  bleveindex.Index
	rows   *mapped
	count  int
	mean   float64 // words of a passage
}

func openBM25(dir string, count int, words int64) (x *storedBM25, err error) {
	defer guarded("the inverted index", &err)()
	rows, err := mapFile(filepath.Join(dir, wordRowsFile), 4*int64(count))
	if err != nil {
		return nil, err
	}
	x = &storedBM25{rows: rows, count: count, mean: max(float64(words), 1) / float64(count)}
	if x.reader, x.index, err = openWords(filepath.Join(dir, wordsFolder)); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open %s: %w", filepath.Join(dir, wordsFolder), err), rows.Close())
	}
	if documents, err := x.reader.DocCount(); err != nil || documents != uint64(count) {
		return nil, errors.Join(fmt.Errorf("%s holds %d passages, want %d", filepath.Join(dir, wordsFolder), documents, count), err, x.Close())
	}
	return x, nil
}

// Close gives files and memory back.
func (x *storedBM25) Close() error {
	return errors.Join(x.reader.Close(), x.index.Close(), x.rows.Close())
}

// wordCursor goes through the passages of one word of a query.
type wordCursor struct {
	reader bleveindex.TermFieldReader
	buffer bleveindex.TermFieldDoc
	now    *bleveindex.TermFieldDoc // nil behind the last
	weight float64                  // more than the word can add to a score
}

func (c *wordCursor) next() (err error) {
	c.now, err = c.reader.Next(c.buffer.Reset())
	return err
}

// at reports whether a document has the word; the cursor moves on to it, never back.
func (c *wordCursor) at(number uint64, id bleveindex.IndexInternalID) (bool, error) {
	if c.now != nil && c.now.ID.Value() < number {
		var err error
		if c.now, err = c.reader.Advance(id, c.buffer.Reset()); err != nil {
			return false, err
		}
	}
	return c.now != nil && c.now.ID.Value() == number, nil
}

// search ranks the topk passages. Its errors are of broken files, or the context's. Words that could
// not bring a passage among the best by themselves are only looked up in passages that have others
// (MaxScore: Turtle and Flood, Query evaluation, 1995), which leaves out most of the work of frequent
// words.
func (x *storedBM25) search(ctx context.Context, query string, topk int) (_ []hit, err error) {
	defer guarded("the inverted index", &err)()
	cursors, err := x.cursors(ctx, query)
	defer func() {
		for _, c := range cursors {
			err = errors.Join(err, c.reader.Close())
		}
	}()
	if err != nil || topk < 1 {
		return nil, err
	}
	byWeight := slices.Clone(cursors)
	slices.SortStableFunc(byWeight, func(a, b *wordCursor) int { return cmp.Compare(a.weight, b.weight) })
	best, below := ranking{limit: topk}, 0.0 // what the words that are left out can add
	var id bleveindex.IndexInternalID
	for passed := 0; ; passed++ {
		if passed%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		number, found := lowest(byWeight)
		if !found {
			return best.hits, nil
		}
		if number >= uint64(x.count) {
			return nil, fmt.Errorf("the inverted index is broken: it found document %d of %d", number, x.count)
		}
		id = bleveindex.NewIndexInternalID(id, number)
		score, err := x.score(cursors, number, id)
		if err != nil {
			return nil, err
		}
		best.offer(hit{x.rows.uint32(int(number)), score})
		for len(best.hits) == topk && len(byWeight) > 0 && below+byWeight[0].weight < best.hits[topk-1].score {
			below += byWeight[0].weight
			byWeight = byWeight[1:]
		}
		for _, c := range byWeight {
			if c.now != nil && c.now.ID.Value() == number {
				if err := c.next(); err != nil {
					return nil, err
				}
			}
		}
	}
}

// score is that of a document: the sum over the words in the order of the query.
func (x *storedBM25) score(cursors []*wordCursor, number uint64, id bleveindex.IndexInternalID) (float64, error) {
	score := 0.0
	for _, c := range cursors {
		has, err := c.at(number, id)
		if err != nil {
			return 0, err
		}
		if has {
			length := math.Round(1 / (c.now.Norm * c.now.Norm))
			tf := float64(c.now.Freq)
			score += c.weight * tf / (tf + k1*(1-b+b*length/x.mean))
		}
	}
	return score, nil
}

// cursors stand at the first passage of each word of a query that a passage has, with the word's
// part of the formula.
func (x *storedBM25) cursors(ctx context.Context, query string) ([]*wordCursor, error) {
	counts := map[string]float64{}
	var words []string
	tokens(query, func(word []byte) {
		if counts[string(word)]++; counts[string(word)] == 1 {
			words = append(words, string(word))
		}
	})
	var cursors []*wordCursor
	n := float64(x.count)
	for _, word := range words {
		reader, err := x.reader.TermFieldReader(ctx, []byte(word), contentsField, true, true, false)
		if err != nil {
			return cursors, err
		}
		df := float64(reader.Count())
		cursors = append(cursors, &wordCursor{reader: reader, weight: counts[word] * math.Log(1+(n-df+0.5)/(df+0.5)) * (k1 + 1)})
		if err := cursors[len(cursors)-1].next(); err != nil {
			return cursors, err
		}
	}
	return cursors, nil
}

// lowest is the first document that a cursor stands at.
func lowest(cursors []*wordCursor) (number uint64, found bool) {
	for _, c := range cursors {
		if c.now != nil {
			if at := c.now.ID.Value(); !found || at < number {
				number, found = at, true
			}
		}
	}
	return number, found
}
