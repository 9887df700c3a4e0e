package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// GivenVectors are vectors of passages that something else made, in a file of NumPy's format.
type GivenVectors struct {
	file             *mapped
	path             string
	start            int64 // of the numbers, in bytes
	rows, dimensions int
}

// maxNPYHeader bounds the header of a file, in bytes.
const maxNPYHeader = 1 << 16

// The parts of a header, a Python literal such as {'descr': '<f4', 'fortran_order': False, 'shape':
// (10, 384), }, as numpy.lib.format describes it.
var (
	npyType    = regexp.MustCompile(`'descr':\s*'([^']*)'`)
	npyFortran = regexp.MustCompile(`'fortran_order':\s*(True|False)`)
	npyShape   = regexp.MustCompile(`'shape':\s*\((\d+),\s*(\d+),?\s*\)`)
)

// OpenVectors opens a .npy file of float32 numbers, one row for each passage in the order of the
// corpus. Other types and shapes, and files that are cut, are errors that name the file.
func OpenVectors(path string) (*GivenVectors, error) {
	v, err := openVectorsFile(path)
	if err != nil {
		return nil, fmt.Errorf("vectors %s: %w", path, err)
	}
	return v, nil
}

func openVectorsFile(path string) (*GivenVectors, error) {
	if err := checkByteOrder(); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	file, err := mapFile(path, info.Size())
	if err != nil {
		return nil, err
	}
	v := &GivenVectors{file: file, path: path}
	if err := v.readHeader(file.data[:min(len(file.data), maxNPYHeader)]); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if want := v.start + 4*int64(v.rows)*int64(v.dimensions); info.Size() != want {
		return nil, errors.Join(fmt.Errorf("has %d bytes, want %d for %d rows of %d numbers", info.Size(), want, v.rows, v.dimensions), file.Close())
	}
	return v, nil
}

// readHeader reads where the numbers begin and their shape.
func (v *GivenVectors) readHeader(data []byte) error {
	if !bytes.HasPrefix(data, []byte("\x93NUMPY")) || len(data) < 12 {
		return errors.New("is not a .npy file; numpy.save writes one")
	}
	begin, length := 10, int(binary.LittleEndian.Uint16(data[8:]))
	if data[6] > 1 { // versions 2 and 3 have a longer length
		begin, length = 12, int(min(binary.LittleEndian.Uint32(data[8:]), maxNPYHeader))
	}
	if begin+length > len(data) {
		return errors.New("its header is cut")
	}
	header := string(data[begin : begin+length])
	kind, fortran, shape := npyType.FindStringSubmatch(header), npyFortran.FindStringSubmatch(header), npyShape.FindStringSubmatch(header)
	switch {
	case kind == nil || kind[1] != "<f4" || fortran == nil || fortran[1] != "False" || shape == nil:
		return fmt.Errorf("is %.200q, want a float32 matrix (descr '<f4', fortran_order False, a shape of two)", header)
	case (begin+length)%4 != 0:
		return errors.New("its numbers do not lie at a multiple of 4 bytes")
	}
	var errRows, errDimensions error
	v.rows, errRows = strconv.Atoi(shape[1])
	v.dimensions, errDimensions = strconv.Atoi(shape[2])
	if errors.Join(errRows, errDimensions) != nil || v.rows < 1 || v.rows > maxPassages || v.dimensions < 1 || v.dimensions > maxDimensions {
		return fmt.Errorf("its shape is (%s, %s), allowed: 1 to %d rows of 1 to %d numbers", shape[1], shape[2], maxPassages, maxDimensions)
	}
	v.start = int64(begin + length)
	return nil
}

// Dimensions is the length of a vector.
func (v *GivenVectors) Dimensions() int { return v.dimensions }

// Len is the number of vectors.
func (v *GivenVectors) Len() int { return v.rows }

// Path is the file.
func (v *GivenVectors) Path() string { return v.path }

// Close gives the memory back.
func (v *GivenVectors) Close() error { return v.file.Close() }

// chunk are the vectors from first up to end.
func (v *GivenVectors) chunk(first, end int) ([][]float32, error) {
	begin := int(v.start/4) + first*v.dimensions
	all, err := v.file.numbers(begin, begin+(end-first)*v.dimensions)
	if err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, v.dimensions)), nil
}
