package index

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// npy is a file as numpy.save writes it.
func npy(header string, numbers []float32) []byte {
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	data := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	data, err := binary.Append(append(data, header...), binary.LittleEndian, numbers)
	if err != nil {
		panic(err)
	}
	return data
}

func npyFile(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vectors.npy")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAnIndexOfGivenVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	all := madeUp(r, 2*chunkPassages+5)
	numbers := wholeNumbers(r, 4*len(all))
	given, err := OpenVectors(npyFile(t, npy(fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 4), }", len(all)), numbers)))
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	o, _ := buildOptions(t, all)
	o.Encoder, o.Vectors, o.Identity = nil, given, EncoderIdentity{Dimensions: 4, Vectors: "hash"}
	built(t, o)
	x := opened(t, o.Dir, Options{Method: MethodDense})
	query := []float32{1, -2, 3, 1}
	found, err := x.SearchVectors(t.Context(), [][]float32{query}, 20)
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range sortedRows(query, numbers)[:20] {
		// Candidates are chosen among a few more: of many equal ones those are found that come first.
		if found[0][k].Passage != all[row] {
			t.Errorf("passage %d is %s, want %s", k, found[0][k].ID, all[row].ID)
		}
	}
	if _, err := x.SearchBatch(t.Context(), []string{"lima"}, 1); err == nil || !strings.Contains(err.Error(), "without an encoder") {
		t.Errorf("a text: %v", err)
	}
	o.Dir += "2"
	o.Corpus = []string{corpusOf(t, all[1:])}
	if _, err := Build(t.Context(), o); fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), fmt.Sprintf("%d vectors, the corpus %d passages", len(all), len(all)-1)) {
		t.Errorf("one too many: %v", err)
	}
}

func TestVectorsThatAreRefused(t *testing.T) {
	good := "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
	whole := npy(good, make([]float32, 4))
	for _, c := range []struct {
		data []byte
		want string
	}{
		{nil, "not a .npy file"},
		{[]byte("PK\x03\x04 an archive of numpy"), "not a .npy file"},
		{whole[:40], "header is cut"},
		{whole[:len(whole)-1], "bytes, want"},
		{append(slices.Clone(whole), 0), "bytes, want"},
		{npy(strings.Replace(good, "<f4", "<f8", 1), make([]float32, 8)), "want a float32 matrix"},
		{npy(strings.Replace(good, "False", "True", 1), make([]float32, 4)), "want a float32 matrix"},
		{npy(strings.Replace(good, "(2, 2)", "(4,)", 1), make([]float32, 4)), "want a float32 matrix"},
		{npy(strings.Replace(good, "(2, 2)", "(0, 2)", 1), nil), "its shape is (0, 2)"},
		{npy(strings.Replace(good, "(2, 2)", "(99999999999999999999, 2)", 1), nil), "its shape is"},
	} {
		if _, err := OpenVectors(npyFile(t, c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q: want %q, got %v", c.data, c.want, err)
		}
	}
	if _, err := OpenVectors(filepath.Join(t.TempDir(), "none.npy")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
}

func FuzzVectors(f *testing.F) {
	f.Add(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", make([]float32, 4)))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := OpenVectors(npyFile(t, data))
		if err != nil {
			return
		}
		all, err := v.chunk(0, v.Len())
		if err != nil || len(all) != v.rows || len(all[v.rows-1]) != v.dimensions {
			t.Errorf("%d rows, want %d of %d: %v", len(all), v.rows, v.dimensions, err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
}
