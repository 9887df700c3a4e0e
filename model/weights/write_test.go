package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestWriteFileReadsBackAndRepeats(t *testing.T) {
	dir := t.TempDir()
	entries := []Entry{entry("b<&>", BF16, 3, 2), entry("a", F32, 2), entry("scalar", F16), entry("empty", F32, 0, 4), entry("ids", "I32", 5)}
	writeEntries(t, filepath.Join(dir, "x.safetensors"), entries)
	slices.Reverse(entries)
	writeEntries(t, filepath.Join(dir, "y.safetensors"), entries)
	x, errX := os.ReadFile(filepath.Join(dir, "x.safetensors"))
	y, errY := os.ReadFile(filepath.Join(dir, "y.safetensors"))
	if errX != nil || errY != nil || string(x) != string(y) {
		t.Errorf("the same entries give different files: %v, %v", errX, errY)
	}
	if header := binary.LittleEndian.Uint64(x); header%8 != 0 || !strings.Contains(string(x[8:8+header]), `"__metadata__":{"format":"pt"}`) {
		t.Errorf("header of %d bytes: %s", header, x[8:8+header])
	}
	file, err := OpenFile(filepath.Join(dir, "x.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range entries {
		data, _ := want.Data()
		got, ok := file.Tensor(want.Name)
		if !ok || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || string(got.Data) != string(data) {
			t.Errorf("%s came back as %v", want.Name, got)
		}
	}
	if len(file.Tensors()) != len(entries) {
		t.Errorf("%d tensors", len(file.Tensors()))
	}
	if err := errors.Join(file.Close(), file.Close()); err != nil {
		t.Error(err)
	}
}

func TestWriteFileHoldsOneTensorAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	shared := make([]byte, 1<<20) // reused: each tensor must be on its way before the next is asked for
	var entries []Entry
	for k := range 4 {
		entries = append(entries, Entry{Name: fmt.Sprint(k), DType: F32, Shape: []int64{1 << 18}, Data: func() ([]byte, error) {
			for i := range shared {
				shared[i] = byte(k + 1)
			}
			return shared, nil
		}})
	}
	writeEntries(t, path, entries)
	file, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for k, tensor := range file.Tensors() {
		if slices.ContainsFunc(tensor.Data, func(b byte) bool { return b != byte(k+1) }) {
			t.Errorf("tensor %s was overwritten", tensor.Name)
		}
	}
}

func TestWriteFileRefuses(t *testing.T) {
	short := entry("short", F32, 2)
	short.Data = func() ([]byte, error) { return make([]byte, 4), nil }
	failing := entry("failing", F32, 2)
	failing.Data = func() ([]byte, error) { return nil, errors.New("device lost") }
	tests := map[string]struct {
		entries []Entry
		want    string
	}{
		"data too short": {[]Entry{entry("a", F32, 1), short}, `tensor "short": 4 bytes of data`},
		"data fails":     {[]Entry{failing, entry("z", F32, 1)}, `tensor "failing": device lost`},
		"twice":          {[]Entry{entry("a", F32, 1), entry("a", BF16, 1)}, `tensor "a" occurs twice`},
		"data type":      {[]Entry{{Name: "a", DType: "F8"}}, `tensor "a" has unknown data type "F8"`},
		"shape":          {[]Entry{{Name: "a", DType: F32, Shape: []int64{-1}}}, `tensor "a" has shape [-1]`},
	}
	for name, test := range tests {
		dir := t.TempDir()
		err := WriteFile(filepath.Join(dir, "x.safetensors"), test.entries)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "x.safetensors") {
			t.Errorf("%s: %v", name, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: left behind %v, %v", name, entries, err)
		}
	}
}

func TestWriteFileOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.Symlink("/dev/full", path+".tmp"); err != nil {
		t.Fatal(err)
	}
	err := WriteFile(path, []Entry{entry("a", F32, 1<<16)})
	if !errors.Is(err, syscall.ENOSPC) || err.Error() != "cannot write "+path+": no space left on device" {
		t.Errorf("got %v", err)
	}
}
