package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model/weights"
)

// steps lists the steps of the complete checkpoints.
func steps(t *testing.T, runDir string) []int64 {
	t.Helper()
	found, err := List(runDir)
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	for _, saved := range found {
		steps = append(steps, saved.Step)
	}
	return steps
}

func TestPruneKeepsTheNewestAndTheBest(t *testing.T) {
	t.Parallel()
	source, state := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	tests := map[string]struct {
		keep int
		best int64 // 0 = none
		want []int64
	}{
		"one":                       {1, 0, []int64{5}},
		"two":                       {2, 0, []int64{4, 5}},
		"two, an older one best":    {2, 2, []int64{2, 4, 5}},
		"one, the newest best":      {1, 5, []int64{5}},
		"more than there are":       {9, 0, []int64{1, 2, 3, 4, 5}},
		"none still keeps the last": {0, 0, []int64{5}},
		"best without a checkpoint": {1, 40, []int64{5}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			runDir := t.TempDir()
			for step := int64(1); step <= 5; step++ {
				record := recordOf(step)
				if test.best > 0 {
					record.Best = &Best{Metric: "eval/em", Value: 0.5, Step: test.best}
				}
				save(t, runDir, source, state, record)
			}
			if err := Prune(runDir, test.keep); err != nil {
				t.Fatal(err)
			}
			if got := steps(t, runDir); !slices.Equal(got, test.want) {
				t.Errorf("kept %v, want %v", got, test.want)
			}
			if left, err := filepath.Glob(filepath.Join(runDir, "checkpoints", "*.tmp")); err != nil || len(left) > 0 {
				t.Errorf("left behind %v, %v", left, err)
			}
		})
	}
}

// A new process knows nothing of what the one before it saved; the folder does.
func TestPruneRemovesCheckpointsOfAnEarlierProcess(t *testing.T) {
	dir := sourceFolder(t, config(true, "bfloat16"), weights.BF16)
	runDir := t.TempDir()
	source, state := open(t, dir)
	save(t, runDir, source, state, recordOf(1))
	path, err := Latest(runDir)
	if err != nil {
		t.Fatal(err)
	}
	source, state = open(t, dir)
	if _, err := Restore(path, state, run); err != nil {
		t.Fatal(err)
	}
	save(t, runDir, source, state, recordOf(2))
	if err := Prune(runDir, 1); err != nil {
		t.Fatal(err)
	}
	if got := steps(t, runDir); !slices.Equal(got, []int64{2}) {
		t.Errorf("kept %v, want only step 2", got)
	}
}

func TestListLooksAtCompleteFoldersOnly(t *testing.T) {
	runDir := t.TempDir()
	if got := steps(t, runDir); got != nil {
		t.Errorf("an empty run folder has %v", got)
	}
	root := filepath.Join(runDir, "checkpoints")
	for _, name := range []string{
		"step_000010/complete", "step_1000000/complete", "step_000009/complete", "step_000011/config.json",
		"step_000012.tmp/complete", "step_000013.old.tmp/complete", "step_14/complete", "step_00001x/complete", "best/complete",
	} {
		put(t, filepath.Join(root, name), "")
	}
	if got := steps(t, runDir); !slices.Equal(got, []int64{9, 10, 1000000}) {
		t.Errorf("found %v", got)
	}
	if path, err := Latest(runDir); err != nil || path != filepath.Join(root, "step_1000000") {
		t.Errorf("latest is %s, %v", path, err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	put(t, root, "a file")
	if _, err := List(runDir); err == nil {
		t.Error("a file in place of the folder is no error")
	}
}
