//go:build shared

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The tables of the package are those the generator makes of the measured numbers.
func TestTablesAreUpToDate(t *testing.T) {
	root := os.Getenv("MEMPO_SHARED")
	if root == "" {
		t.Fatal("MEMPO_SHARED is not set")
	}
	numbers := filepath.Join(root, "golden", "tokenizers")
	out := filepath.Join(t.TempDir(), "unicode_tables.go")
	if err := run(filepath.Join(numbers, "onig_tables.json"), filepath.Join(numbers, "ccc_unicode9.json"), out); err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile("../../unicode_tables.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made, kept) {
		t.Error("unicode_tables.go differs from what gentables writes")
	}
}
