// Package weights reads and writes safetensors: single files, and the weights of a HuggingFace
// model folder checked against its architecture. Files are mapped into memory, so reading copies
// nothing; a file that another process cuts short while it is open ends the program.
package weights

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/edsrzf/mmap-go"
	"github.com/nlpodyssey/safetensors"
)

// maxHeaderBytes bounds the header of a safetensors file; that of a model of 1000 layers has
// about 2 MB.
const maxHeaderBytes = 32 << 20

// lengthBytes is the size of the number at the start of a file that tells the header's length.
const lengthBytes = 8

// Tensor is one tensor of a safetensors file.
type Tensor struct {
	Name  string
	DType string  // F32, BF16, F16, or another name of the format, such as I32
	Shape []int64 // empty for a scalar
	Data  []byte  // little-endian, row-major, of any alignment; valid until the file is closed
}

// Float32 converts the elements of a tensor of type F32, BF16 or F16.
func (t Tensor) Float32() ([]float32, error) {
	values, err := DecodeFloat32(t.DType, t.Data)
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
	}
	return values, nil
}

// File is an open safetensors file.
type File struct {
	path    string
	mapping mmap.MMap
	tensors []Tensor
	byName  map[string]int
}

// OpenFile maps a safetensors file and checks its header: every tensor lies inside the file, none
// overlap, and sizes follow from shapes and data types.
func OpenFile(path string) (*File, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("weight file %s is missing", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open weight file: %w", err)
	}
	defer file.Close() // the mapping outlives the handle
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot open weight file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("weight file %s is not a regular file", path)
	}
	if err := checkHeaderLength(file, info.Size()); err != nil {
		return nil, fmt.Errorf("weight file %s: %w", path, err)
	}
	mapping, err := mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot map weight file %s into memory: %w", path, err)
	}
	opened := &File{path: path, mapping: mapping}
	if opened.tensors, err = parse(mapping); err != nil {
		return nil, errors.Join(fmt.Errorf("weight file %s: %w", path, err), mapping.Unmap())
	}
	opened.byName = make(map[string]int, len(opened.tensors))
	for k, tensor := range opened.tensors {
		opened.byName[tensor.Name] = k
	}
	return opened, nil
}

// checkHeaderLength refuses a file that cannot hold the header it announces, or announces one of
// an absurd length.
func checkHeaderLength(file io.ReaderAt, size int64) error {
	var start [lengthBytes]byte
	if _, err := file.ReadAt(start[:], 0); err != nil {
		return fmt.Errorf("%d bytes are too few for a safetensors file: it is cut short or something else", size)
	}
	length := binary.LittleEndian.Uint64(start[:])
	switch {
	case length > maxHeaderBytes:
		return fmt.Errorf("header of %d bytes, allowed are %d: this is no safetensors file", length, maxHeaderBytes)
	case int64(length)+lengthBytes > size:
		return fmt.Errorf("the file is cut short: its header needs %d bytes, it has %d", length+lengthBytes, size)
	}
	return nil
}

// parse lists the tensors of a mapped file in the order of their data.
func parse(data []byte) ([]Tensor, error) {
	content, err := safetensors.Deserialize(data)
	if err != nil {
		return nil, explain(data, err)
	}
	views := content.Tensors()
	tensors := make([]Tensor, len(views))
	for k, view := range views {
		shape := make([]int64, len(view.TensorView.Shape()))
		for axis, length := range view.TensorView.Shape() {
			if int64(length) < 0 {
				return nil, fmt.Errorf("tensor %q has shape %v", view.Name, view.TensorView.Shape())
			}
			shape[axis] = int64(length)
		}
		tensors[k] = Tensor{Name: view.Name, DType: view.TensorView.DType().String(), Shape: shape, Data: view.TensorView.Data()}
	}
	return tensors, nil
}

// place is where the header puts a tensor.
type place struct {
	name       string
	begin, end uint64 // of the data section
	info       *safetensors.TensorInfo
}

// explain turns an error of the reader into one that names the tensor, where there is one to name.
func explain(data []byte, cause error) error {
	start := lengthBytes + int(binary.LittleEndian.Uint64(data))
	var header safetensors.Metadata
	if json.Unmarshal(data[lengthBytes:start], &header) != nil {
		return fmt.Errorf("broken header: %w", cause)
	}
	var places []place
	for name, info := range header.Tensors() {
		places = append(places, place{name, info.DataOffsets[0], info.DataOffsets[1], info})
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end), cmp.Compare(a.name, b.name))
	})
	size, previous := uint64(len(data)-start), uint64(0)
	for _, p := range places {
		if err := p.check(previous, size); err != nil {
			return err
		}
		previous = p.end
	}
	if previous < size {
		return fmt.Errorf("%d bytes follow the last tensor", size-previous)
	}
	return cause
}

// check holds a tensor against the end of the one before it and the size of the data section.
func (p place) check(previous, size uint64) error {
	switch {
	case p.begin < previous:
		return fmt.Errorf("tensor %q overlaps the one before it: it begins at byte %d, that one ends at %d", p.name, p.begin, previous)
	case p.begin > previous:
		return fmt.Errorf("tensor %q begins at byte %d, the one before it ends at %d", p.name, p.begin, previous)
	case p.end < p.begin:
		return fmt.Errorf("tensor %q ends at byte %d, before it begins at %d", p.name, p.end, p.begin)
	case p.end > size:
		return fmt.Errorf("the file is cut short: tensor %q ends at byte %d of the data, of which there are %d", p.name, p.end, size)
	case !fills(p.info.Shape, p.info.DType.Size(), p.end-p.begin):
		return fmt.Errorf("tensor %q has %d bytes, which is not what shape %v and data type %s need", p.name, p.end-p.begin, p.info.Shape, p.info.DType)
	}
	return nil
}

// fills reports whether elements of elementSize bytes in this shape take exactly the given bytes.
func fills(shape []uint64, elementSize, bytes uint64) bool {
	if slices.Contains(shape, 0) {
		return bytes == 0
	}
	need := elementSize
	for _, length := range shape {
		if need > bytes/length {
			return false // also where the product would overflow
		}
		need *= length
	}
	return need == bytes
}

// Path is where the file lies.
func (f *File) Path() string { return f.path }

// Tensors lists the tensors in the order of their data.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor finds a tensor by name.
func (f *File) Tensor(name string) (Tensor, bool) {
	k, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[k], true
}

// Close unmaps the file; the data of its tensors must not be touched afterwards.
func (f *File) Close() error {
	if f.mapping == nil {
		return nil
	}
	f.tensors, f.byName = nil, nil
	if err := f.mapping.Unmap(); err != nil {
		return fmt.Errorf("cannot unmap weight file %s: %w", f.path, err)
	}
	return nil
}
