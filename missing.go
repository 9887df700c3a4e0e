package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// modelPresent refuses a model whose folder is not there, and tells what gets it.
func modelPresent(m config.Model) error {
	if _, err := os.Stat(m.Path); errors.Is(err, fs.ErrNotExist) {
		return fault.Usage(withGet(&missingFolder{m.Path}, m.Get))
	}
	return nil
}

// withGet adds to an error about a file that is not there what gets it, where the config says so.
func withGet(err error, get string) error {
	if get == "" || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w; to get it: %s", err, get)
}

// missingFolder is an error like that of a file that is not there.
type missingFolder struct{ path string }

func (m *missingFolder) Error() string {
	return fmt.Sprintf("the model folder %s with its config.json is missing", m.path)
}

// Is makes it one of fs.ErrNotExist.
func (m *missingFolder) Is(target error) bool { return target == fs.ErrNotExist }
