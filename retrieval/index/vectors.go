package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/mempo-train/mempo-train/retrieval"
)

// The files of the vectors: one of as many numbers as the encoder has for each passage, and a
// checksum for each chunk of passages, by which building goes on where it stopped.
const (
	vectorsFile = "vectors.bin"
	sumsFile    = "vectors.sums"
)

// chunkPassages are encoded between two syncs to disk: seconds of work on a CPU.
const chunkPassages = 512

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// vectorWriter appends chunks of vectors.
type vectorWriter struct {
	vectors, sums *os.File
	dimensions    int
	done          int // passages
}

// openVectors opens the files of vectors in a folder, new or with whole chunks from before: what
// stands behind the first chunk that is not as its checksum says is cut off.
func openVectors(dir string, dimensions, count int) (w *vectorWriter, err error) {
	w = &vectorWriter{dimensions: dimensions}
	if w.vectors, err = os.OpenFile(filepath.Join(dir, vectorsFile), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if w.sums, err = os.OpenFile(filepath.Join(dir, sumsFile), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, errors.Join(err, w.vectors.Close())
	}
	chunks, err := w.verify(count)
	if err == nil {
		err = errors.Join(cutAt(w.vectors, int64(w.done)*4*int64(dimensions)), cutAt(w.sums, 4*int64(chunks)))
	}
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func cutAt(file *os.File, size int64) error {
	if err := file.Truncate(size); err != nil {
		return err
	}
	_, err := file.Seek(size, io.SeekStart)
	return err
}

// verify counts whole chunks, and with them the passages that are done.
func (w *vectorWriter) verify(count int) (chunks int, err error) {
	buffer := make([]byte, chunkPassages*4*w.dimensions)
	for w.done < count {
		n := min(chunkPassages, count-w.done)
		chunk := buffer[:n*4*w.dimensions]
		var sum [4]byte
		if _, err := io.ReadFull(w.sums, sum[:]); err != nil {
			return chunks, ifNotEnd(err)
		}
		if _, err := io.ReadFull(w.vectors, chunk); err != nil {
			return chunks, ifNotEnd(err)
		}
		if crc32.Checksum(chunk, castagnoli) != binary.LittleEndian.Uint32(sum[:]) {
			return chunks, nil
		}
		w.done += n
		chunks++
	}
	return chunks, nil
}

func ifNotEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// add appends a chunk and waits until it is on disk, its checksum last.
func (w *vectorWriter) add(vectors [][]float32) error {
	chunk := make([]byte, 0, len(vectors)*4*w.dimensions)
	for k, vector := range vectors {
		if err := checkVector(vector, w.dimensions); err != nil {
			return fmt.Errorf("the vector of passage %d, counted from 1, %w", w.done+k+1, err)
		}
		for _, x := range vector {
			chunk = binary.LittleEndian.AppendUint32(chunk, math.Float32bits(x))
		}
	}
	if _, err := w.vectors.Write(chunk); err != nil {
		return err
	}
	if err := w.vectors.Sync(); err != nil {
		return err
	}
	if _, err := w.sums.Write(binary.LittleEndian.AppendUint32(nil, crc32.Checksum(chunk, castagnoli))); err != nil {
		return err
	}
	w.done += len(vectors)
	return w.sums.Sync()
}

// checkVector refuses what is no vector of so many finite numbers.
func checkVector(vector []float32, dimensions int) error {
	if len(vector) != dimensions {
		return fmt.Errorf("has %d numbers, want %d", len(vector), dimensions)
	}
	for _, x := range vector {
		if x-x != 0 {
			return fmt.Errorf("holds %v", x)
		}
	}
	return nil
}

func (w *vectorWriter) close() error { return errors.Join(w.vectors.Close(), w.sums.Close()) }

// writeVectors writes the vectors of the passages that have none yet; chunk makes those of the
// passages from first up to end.
func writeVectors(dir string, dimensions, count int, chunk func(first, end int) ([][]float32, error), done func(int)) (err error) {
	w, err := openVectors(dir, dimensions, count)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	done(w.done)
	for w.done < count {
		n := min(chunkPassages, count-w.done)
		vectors, err := chunk(w.done, w.done+n)
		if err != nil {
			return err
		}
		if len(vectors) != n {
			return fmt.Errorf("the encoder gave %d vectors for %d passages", len(vectors), n)
		}
		if err := w.add(vectors); err != nil {
			return err
		}
		done(n)
	}
	return nil
}

// encodedBytes is how much text goes to the encoder at once, so that long passages do not fill memory.
const encodedBytes = 16 << 20

// encodeChunk makes the vectors of passages.
func encodeChunk(ctx context.Context, p *passages, encoder retrieval.Encoder, prefix string, first, end int) ([][]float32, error) {
	vectors := make([][]float32, 0, end-first)
	for first < end {
		var texts []string
		for size := 0; first < end && size < encodedBytes; first++ {
			contents, err := p.bytes(2*first + 1)
			if err != nil {
				return nil, err
			}
			texts = append(texts, prefix+string(contents))
			size += len(contents)
		}
		some, err := encoder.Encode(ctx, texts)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, some...)
	}
	return vectors, nil
}
