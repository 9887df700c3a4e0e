package weights

import (
	"fmt"
	"io"

	"github.com/nlpodyssey/safetensors"

	"github.com/mempo-train/mempo-train/internal/durable"
)

// Entry is a tensor to be written.
type Entry struct {
	Name  string
	DType string // F32, BF16 or F16, or another name of the format
	Shape []int64
	// Data gives the tensor's little-endian bytes. It is called once, when their turn comes, and
	// they may be dropped after the next call.
	Data func() ([]byte, error)
}

// WriteFile writes a safetensors file that transformers loads: tensors sorted by size of their
// data type and then by name, the header padded to 8 bytes, the metadata {"format":"pt"}. The same
// entries give the same bytes. One tensor is held at a time. The file appears under its name once
// it is whole and on disk.
func WriteFile(path string, entries []Entry) error {
	views := make(map[string]*pending, len(entries))
	var failure error
	for _, entry := range entries {
		view, err := newPending(entry, &failure)
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
		if views[entry.Name] != nil {
			return fmt.Errorf("cannot write %s: tensor %q occurs twice", path, entry.Name)
		}
		views[entry.Name] = view
	}
	return durable.WriteFile(path, func(w io.Writer) error {
		err := safetensors.SerializeToWriter(views, map[string]string{"format": "pt"}, w)
		if failure != nil {
			return failure
		}
		return err
	})
}

// Bytes is the size of a tensor's data; 0 for a data type that is no weight's.
func Bytes(dtype string, shape []int64) int64 {
	bytes := int64(elementBytes(dtype))
	for _, length := range shape {
		bytes *= length
	}
	return bytes
}

// pending is an entry as the serialiser sees it: it asks for the data when it is to be written.
type pending struct {
	entry   Entry
	dtype   safetensors.DType
	shape   []uint64
	bytes   uint64
	failure *error // the first failure of any entry
}

func newPending(entry Entry, failure *error) (*pending, error) {
	dtype, err := safetensors.ParseDType(entry.DType)
	if err != nil {
		return nil, fmt.Errorf("tensor %q has unknown data type %q", entry.Name, entry.DType)
	}
	view := &pending{entry: entry, dtype: dtype, shape: make([]uint64, len(entry.Shape)), bytes: dtype.Size(), failure: failure}
	for axis, length := range entry.Shape {
		if length < 0 {
			return nil, fmt.Errorf("tensor %q has shape %v", entry.Name, entry.Shape)
		}
		view.shape[axis] = uint64(length)
		view.bytes *= uint64(length)
	}
	return view, nil
}

func (p *pending) DType() safetensors.DType { return p.dtype }
func (p *pending) Shape() []uint64          { return p.shape }
func (p *pending) DataLen() uint64          { return p.bytes }

// Data asks the entry for its bytes. After a failure nothing more is asked for.
func (p *pending) Data() []byte {
	if *p.failure != nil {
		return nil
	}
	data, err := p.entry.Data()
	if err == nil && uint64(len(data)) != p.bytes {
		err = fmt.Errorf("%d bytes of data, shape %v of data type %s needs %d", len(data), p.shape, p.dtype, p.bytes)
	}
	if err != nil {
		*p.failure = fmt.Errorf("tensor %q: %w", p.entry.Name, err)
		return nil
	}
	return data
}
