package index

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/mempo-train/mempo-train/retrieval"
)

// The files of the passages: ids and contents one behind the other, and where each begins and, with
// one more, where the last ends.
const (
	passagesFile = "passages.bin"
	offsetsFile  = "offsets.bin"
)

// maxPassages bounds a corpus: rows are 32-bit numbers with a sign.
const maxPassages = math.MaxInt32

// passageWriter writes the files of the passages in a folder.
type passageWriter struct {
	texts, offsets         *bufio.Writer
	textsFile, offsetsFile *os.File
	at                     uint64
	count                  int
	idHashes               []hashedRow
	err                    error
}

func newPassageWriter(dir string) (*passageWriter, error) {
	texts, err := os.Create(filepath.Join(dir, passagesFile))
	if err != nil {
		return nil, err
	}
	offsets, err := os.Create(filepath.Join(dir, offsetsFile))
	if err != nil {
		return nil, errors.Join(err, texts.Close())
	}
	w := &passageWriter{
		texts: bufio.NewWriterSize(texts, 1<<20), offsets: bufio.NewWriterSize(offsets, 1<<20),
		textsFile: texts, offsetsFile: offsets,
	}
	w.offset()
	return w, nil
}

// offset notes where the next text begins.
func (w *passageWriter) offset() {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], w.at)
	if _, err := w.offsets.Write(number[:]); w.err == nil {
		w.err = err
	}
}

func (w *passageWriter) text(text string) {
	if _, err := w.texts.WriteString(text); w.err == nil {
		w.err = err
	}
	w.at += uint64(len(text))
	w.offset()
}

func (w *passageWriter) add(p retrieval.Passage) error {
	if w.count == maxPassages {
		return fmt.Errorf("more than %d passages", maxPassages)
	}
	w.idHashes = append(w.idHashes, hashedRow{hashText(p.ID), uint32(w.count)})
	w.text(p.ID)
	w.text(p.Contents)
	w.count++
	return w.err
}

// close puts both files on disk.
func (w *passageWriter) close() error {
	return errors.Join(w.err, w.texts.Flush(), w.offsets.Flush(), w.textsFile.Sync(), w.offsetsFile.Sync(),
		w.textsFile.Close(), w.offsetsFile.Close())
}

// passages are those of an index, by their place in the corpus.
type passages struct {
	texts, offsets *mapped
	count          int
}

func openPassages(dir string, count int) (*passages, error) {
	offsets, err := mapFile(filepath.Join(dir, offsetsFile), 8*(2*int64(count)+1))
	if err != nil {
		return nil, err
	}
	p := &passages{offsets: offsets, count: count}
	size := offsets.uint64(2 * count)
	if size > math.MaxInt64 {
		return nil, errors.Join(fmt.Errorf("%s is broken: a text ends at byte %d", filepath.Join(dir, offsetsFile), size), p.Close())
	}
	if p.texts, err = mapFile(filepath.Join(dir, passagesFile), int64(size)); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *passages) Close() error { return errors.Join(p.texts.Close(), p.offsets.Close()) }

// bytes is the k-th text, ids and contents taking turns; it lies in the map.
func (p *passages) bytes(k int) ([]byte, error) {
	begin, end := p.offsets.uint64(k), p.offsets.uint64(k+1)
	if begin > end || end > uint64(len(p.texts.data)) {
		return nil, fmt.Errorf("the index is broken: passage %d lies from byte %d to %d of %d", k/2, begin, end, len(p.texts.data))
	}
	return p.texts.data[begin:end], nil
}

// at is a copy of the passage of a row.
func (p *passages) at(row int) (retrieval.Passage, error) {
	if row < 0 || row >= p.count {
		return retrieval.Passage{}, fmt.Errorf("the index is broken: it found passage %d of %d", row, p.count)
	}
	id, err := p.bytes(2 * row)
	if err != nil {
		return retrieval.Passage{}, err
	}
	contents, err := p.bytes(2*row + 1)
	return retrieval.Passage{ID: string(id), Contents: string(contents)}, err
}

// hashedRow is a passage with the hash of its id or title.
type hashedRow struct {
	hash uint64
	row  uint32
}

// hashText is FNV-1a: it is the same in every process. Equal hashes do not mean equal texts.
func hashText(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

func sortHashed(rows []hashedRow) {
	slices.SortFunc(rows, func(a, b hashedRow) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return int(int64(a.row) - int64(b.row))
	})
}

// checkUnique refuses passages with the same id.
func (p *passages) checkUnique(hashes []hashedRow) error {
	sortHashed(hashes)
	for k := 1; k < len(hashes); k++ {
		for other := k - 1; other >= 0 && hashes[other].hash == hashes[k].hash; other-- {
			a, err := p.bytes(2 * int(hashes[other].row))
			if err != nil {
				return err
			}
			b, err := p.bytes(2 * int(hashes[k].row))
			if err != nil {
				return err
			}
			if string(a) == string(b) {
				return fmt.Errorf("passages %d and %d, counted from 1, have the same id %q; ids must be unique", hashes[other].row+1, hashes[k].row+1, a)
			}
		}
	}
	return nil
}
