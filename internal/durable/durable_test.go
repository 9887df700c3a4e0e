package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func TestWriteFileReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, text := range []string{"first, and longer", "second"} {
		if err := WriteFile(path, write(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
}

func TestWriteFileKeepsTheOldContentAfterAnError(t *testing.T) {
	broken := errors.New("broken pipe of words")
	tests := map[string]struct {
		prepare func(path string) error
		fill    func(io.Writer) error
		want    error
	}{
		"fill fails": {func(string) error { return nil }, func(w io.Writer) error {
			return errors.Join(write("half")(w), broken)
		}, broken},
		"disk full": {func(path string) error { return os.Symlink("/dev/full", path+TempSuffix) }, write("x"), syscall.ENOSPC},
		"disk full in a large write": {
			func(path string) error { return os.Symlink("/dev/full", path+TempSuffix) },
			write(strings.Repeat("x", 1<<20)), syscall.ENOSPC,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x")
			if err := errors.Join(WriteFile(path, write("old")), test.prepare(path)); err != nil {
				t.Fatal(err)
			}
			err := WriteFile(path, test.fill)
			if !errors.Is(err, test.want) || !strings.HasPrefix(err.Error(), "cannot write "+path+": ") {
				t.Errorf("got error %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
				t.Errorf("the file holds %q, %v", got, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

func TestWriteFileIntoAMissingFolder(t *testing.T) {
	err := WriteFile(filepath.Join(t.TempDir(), "no", "x"), write("x"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestCreateSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	if err := CreateSynced(path, write("text")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := CreateSynced("/dev/full", write("text")); !errors.Is(err, syscall.ENOSPC) || err.Error() != "cannot write /dev/full: no space left on device" {
		t.Errorf("got %v", err)
	}
}
