package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/mempo-train/mempo-train/internal/durable"
)

// folderName is where the checkpoints of a run lie.
const folderName = "checkpoints"

var stepPattern = regexp.MustCompile(`^step_([0-9]{6,18})$`)

func stepName(step int64) string { return fmt.Sprintf("step_%06d", step) }

// Saved is a complete checkpoint in a run folder.
type Saved struct {
	Path string
	Step int64
}

// List finds the complete checkpoints of a run folder, oldest first. A run folder without any is
// no error.
func List(runDir string) ([]Saved, error) {
	root := filepath.Join(runDir, folderName)
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read folder %s: %w", root, durable.Bare(err))
	}
	var found []Saved
	for _, entry := range entries {
		match := stepPattern.FindStringSubmatch(entry.Name())
		if match == nil {
			continue
		}
		path := filepath.Join(root, entry.Name())
		if _, err := os.Stat(filepath.Join(path, marker)); err != nil {
			continue
		}
		step, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cannot read the step of checkpoint %s: %w", path, err)
		}
		found = append(found, Saved{path, step})
	}
	slices.SortFunc(found, func(a, b Saved) int { return cmp.Compare(a.Step, b.Step) })
	return found, nil
}

// Latest is the folder of the newest complete checkpoint of a run, "" if there is none.
func Latest(runDir string) (string, error) {
	found, err := List(runDir)
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[len(found)-1].Path, nil
}

// Prune removes all complete checkpoints but the newest ones, keep of them and at least one, and
// the best one that the newest knows of. It looks at the folder, so checkpoints of earlier
// processes count.
func Prune(runDir string, keep int) error {
	found, err := List(runDir)
	if err != nil || len(found) == 0 {
		return err
	}
	newest, err := ReadRecord(found[len(found)-1].Path)
	if err != nil {
		return err
	}
	for _, saved := range found[:max(0, len(found)-max(1, keep))] {
		if newest.Best != nil && newest.Best.Step == saved.Step {
			continue
		}
		if err := discard(saved.Path); err != nil {
			return err
		}
	}
	return nil
}

// discard removes a checkpoint. It first takes the name away, so that a process that dies in
// between leaves no folder that looks complete.
func discard(path string) error {
	aside, err := moveAside(path)
	if err != nil {
		return err
	}
	return removeAll(aside)
}

// moveAside gives a folder, if it is there, a name by which nobody takes it for a checkpoint.
func moveAside(path string) (aside string, err error) {
	aside = path + ".old" + durable.TempSuffix
	if err := os.Rename(path, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot rename checkpoint %s: %w", path, durable.Bare(err))
	}
	return aside, nil
}

// removeAll removes a folder with its content, if it is there.
func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("cannot remove %s: %w", path, durable.Bare(err))
	}
	return nil
}
