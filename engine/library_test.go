package engine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compiledLibrary is a small shared library.
func compiledLibrary(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "whole.so")
	command := exec.Command("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path)
	command.Stdin = strings.NewReader("int numbers[5000] = {1}; int first(void) { return numbers[0]; }\n")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// Kernels of which a part is missing, and what is no library at all, are an error before the loader maps them.
func TestKernelsThatAreCut(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LD_LIBRARY_PATH", dir)
	whole := compiledLibrary(t)
	path := filepath.Join(dir, kernelsLibrary)
	put := func(content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(whole)
	if err := checkWhole(findLibrary(kernelsLibrary)); err != nil {
		t.Fatal(err)
	}
	for size := 0; size < len(whole); size += 1 + size/8 {
		put(whole[:size])
		if err := loadKernels(); err == nil || !strings.Contains(err.Error(), path+" is cut") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d of %d bytes: %v", size, len(whole), err)
		}
	}
	put([]byte(strings.Repeat("no library\n", 1000)))
	if err := loadKernels(); err == nil || !strings.Contains(err.Error(), path+" is cut or no shared library") {
		t.Errorf("a text: %v", err)
	}
}
