package weights

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// raw is a safetensors file with this header and so many bytes of data.
func raw(header string, data int) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), make([]byte, data)...)
}

func TestOpenFileRefusesBrokenFiles(t *testing.T) {
	const two = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[%s]}}`
	tests := map[string]struct {
		data []byte
		want string
	}{
		"empty":               {nil, "0 bytes are too few"},
		"seven bytes":         {make([]byte, 7), "7 bytes are too few"},
		"cut in the header":   {raw(fmt.Sprintf(two, "8,12"), 12)[:40], "cut short: its header needs"},
		"cut in the data":     {raw(fmt.Sprintf(two, "8,12"), 11), `cut short: tensor "b" ends at byte 12 of the data, of which there are 11`},
		"huge header":         {append(binary.LittleEndian.AppendUint64(nil, 1<<62), make([]byte, 64)...), "header of 4611686018427387904 bytes, allowed are"},
		"not JSON":            {raw("hello", 0), "broken header"},
		"a list":              {raw("[]", 0), "broken header"},
		"null tensor":         {raw(`{"a":null}`, 0), "broken header"},
		"unknown data type":   {raw(`{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}`, 1), "F4"},
		"negative shape":      {raw(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "broken header"},
		"overlap":             {raw(fmt.Sprintf(two, "4,8"), 12), `tensor "b" overlaps`},
		"hole":                {raw(fmt.Sprintf(two, "9,13"), 13), `tensor "b" begins at byte 9`},
		"backwards":           {raw(fmt.Sprintf(two, "8,4"), 12), `tensor "b" ends at byte 4`},
		"out of the file":     {raw(fmt.Sprintf(two, "8,18446744073709551615"), 12), `tensor "b" ends at byte 18446744073709551615`},
		"data after the last": {raw(fmt.Sprintf(two, "8,12"), 13), "1 bytes follow the last tensor"},
		"size against shape":  {raw(fmt.Sprintf(two, "8,16"), 16), `tensor "b" has 8 bytes`},
		"product overflows":   {raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}}`, 0), `tensor "a" has 0 bytes`},
		"huge empty shape":    {raw(`{"a":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]}}`, 0), `tensor "a" has shape`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.safetensors")
			writeText(t, path, string(test.data))
			file, err := OpenFile(path)
			if err == nil {
				file.Close()
				t.Fatal("accepted")
			}
			if text := err.Error(); !strings.Contains(text, test.want) || !strings.Contains(text, path) || strings.Contains(text, "\n") {
				t.Errorf("message %q lacks %q", text, test.want)
			}
		})
	}
	if _, err := OpenFile(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}

// Whatever the bytes, a file is refused or every tensor lies within it.
func FuzzParse(f *testing.F) {
	f.Add(raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,1],"data_offsets":[8,10]}}`, 10))
	f.Add(raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8))
	f.Add(raw(`{"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1))
	f.Add(raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkHeaderLength(bytes.NewReader(data), int64(len(data))) != nil {
			return
		}
		tensors, err := parse(data) // a range outside of data would crash
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range tensors {
			total += len(tensor.Data)
			if size := elementBytes(tensor.DType); size > 0 && elements(tensor.Shape)*int64(size) != int64(len(tensor.Data)) {
				t.Errorf("tensor %q of shape %v has %d bytes", tensor.Name, tensor.Shape, len(tensor.Data))
			}
		}
		if total > len(data) {
			t.Errorf("%d bytes of tensors in a file of %d", total, len(data))
		}
	})
}

func elements(shape []int64) int64 {
	product := int64(1)
	for _, length := range shape {
		product *= length
	}
	return product
}
