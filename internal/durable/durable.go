// Package durable writes files so that a crash leaves either the old content or the new, never a
// part of it.
package durable

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// TempSuffix ends the names of files that are not finished.
const TempSuffix = ".tmp"

// bufferBytes gathers small writes; larger ones go to the file as they are.
const bufferBytes = 1 << 16

// WriteFile creates or replaces path with what fill writes: under a temporary name beside it,
// synced to disk, renamed, and the folder synced. After an error path is as before and the
// temporary file is gone.
func WriteFile(path string, fill func(io.Writer) error) error {
	temporary := path + TempSuffix
	if err := createSynced(temporary, fill); err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", path, Bare(err)), removeIfThere(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", path, Bare(err)), removeIfThere(temporary))
	}
	return SyncDir(filepath.Dir(path))
}

// CreateSynced writes path directly and waits until it is on disk: for files in a folder that is
// itself not finished. The name is on disk after SyncDir of the folder.
func CreateSynced(path string, fill func(io.Writer) error) error {
	if err := createSynced(path, fill); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, Bare(err))
	}
	return nil
}

func createSynced(path string, fill func(io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	buffered := bufio.NewWriterSize(file, bufferBytes)
	if err := fill(buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return file.Sync()
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// SyncDir waits until the names in a folder are on disk.
func SyncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync folder %s: %w", dir, Bare(err))
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("cannot sync folder %s: %w", dir, Bare(err))
	}
	return nil
}

// Bare takes the path off an error of package os, for messages that name it already.
func Bare(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
