package engine

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
)

// kernelsLibrary holds the CUDA kernels of this program.
const kernelsLibrary = "libmempo_cuda.so"

// checkWhole refuses a file that is not a whole shared library. The loader only looks at its beginning: of one that was cut, by a
// copy that broke off or a full disk, it maps what is not there, and reading that ends the process.
func checkWhole(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	file, err := elf.Open(path) // reads the sections too, of which the list is at the end of the file
	if err != nil {
		return fmt.Errorf("%s is cut or no shared library: %w", path, err)
	}
	defer file.Close()
	for _, part := range file.Progs {
		if end := part.Off + part.Filesz; end < part.Off || end > uint64(info.Size()) {
			return fmt.Errorf("%s is cut: it has %d bytes, want at least %d", path, info.Size(), end)
		}
	}
	return nil
}

// findLibrary is the file that the loader finds for a library of this program: by LD_LIBRARY_PATH, then as the program was linked, in
// ../lib of its folder or in that itself. "" where there is none.
func findLibrary(library string) string {
	folders := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	if program, err := os.Executable(); err == nil {
		folder := filepath.Dir(program)
		folders = append(folders, filepath.Join(folder, "../lib"), folder)
	}
	for _, folder := range folders {
		path := filepath.Join(folder, library)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// loadTorchCUDA loads libtorch_cuda.so.
func loadTorchCUDA() error {
	path := cudaLibrary()
	if path != "" {
		if err := checkWhole(path); err != nil {
			return err
		}
	}
	return cudaLoad(path)
}

// loadKernels loads the CUDA kernels of this program.
func loadKernels() error {
	if path := findLibrary(kernelsLibrary); path != "" {
		if err := checkWhole(path); err != nil {
			return err
		}
	}
	return cudaKernelsLoad()
}
