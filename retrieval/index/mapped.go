package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"unsafe"

	"github.com/edsrzf/mmap-go"
)

// mapped is a file in memory, of which the system holds what is used. An empty file has no bytes, and no file that is held open.
type mapped struct {
	data mmap.MMap
	file *os.File
}

// mapFile maps a file that must have a length, in bytes.
func mapFile(path string, want int64) (*mapped, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if !info.Mode().IsRegular() || info.Size() != want {
		return nil, errors.Join(fmt.Errorf("%s has %d bytes, want %d: it was cut or changed", path, info.Size(), want), file.Close())
	}
	if want == 0 {
		return &mapped{}, file.Close()
	}
	data, err := mmap.Map(file, mmap.RDONLY, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot map %s: %w", path, err), file.Close())
	}
	return &mapped{data, file}, nil
}

// Close gives the memory back; nothing that was read may be used after it.
func (m *mapped) Close() error {
	if m == nil || m.data == nil {
		return nil
	}
	return errors.Join(m.data.Unmap(), m.file.Close())
}

// whole tells whether the file is as long as it was when it was mapped. It is asked before memory is handed to what cannot be
// guarded. Reading bytes that are gone ends the process there, and a file that is cut between this call and the end of such a
// reading still does that: to be safe from it, every search would have to copy all vectors out of the file.
func (m *mapped) whole() error {
	if m.file == nil {
		return nil
	}
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < int64(len(m.data)) {
		return fmt.Errorf("%s has %d bytes, want %d: the file was cut while it was in use", m.file.Name(), info.Size(), len(m.data))
	}
	return nil
}

// numbers are copies of the file's float32 numbers from first up to end.
func (m *mapped) numbers(first, end int) (copies []float32, err error) {
	defer guarded(m.file.Name(), &err)()
	return slices.Clone(m.float32s()[first:end]), nil
}

// float32s is the file as little-endian numbers, as they are in memory.
func (m *mapped) float32s() []float32 {
	if len(m.data) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&m.data[0])), len(m.data)/4) // a map begins at a page
}

// uint64 is the k-th number of the file, and uint32 that of one of narrower numbers; there must be
// one.
func (m *mapped) uint64(k int) uint64 { return binary.LittleEndian.Uint64(m.data[8*k:]) }
func (m *mapped) uint32(k int) uint32 { return binary.LittleEndian.Uint32(m.data[4*k:]) }

// errByteOrder keeps indexes, which are little-endian, off machines that are not.
var errByteOrder = errors.New("an index needs a little-endian machine")

func checkByteOrder() error {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errByteOrder
	}
	return nil
}

// guarded is for reading what is mapped, as defer guarded(what, &err)(): a panic becomes an error, and
// so does the fault of a file that was cut after it was mapped, or whose disk fails, which otherwise
// ends the process.
func guarded(what string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		broken := recover()
		if broken == nil {
			return
		}
		if _, fault := broken.(interface{ Addr() uintptr }); fault {
			broken = "a file was cut while it was in use, or its disk fails"
		}
		*err = fmt.Errorf("%s is broken: %v", what, broken)
	}
}
