package checkpoint

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// The model folder holds what a checkpoint holds of the model, and nothing else; saved again, it is
// replaced.
func TestSaveModelIsTheModelAlone(t *testing.T) {
	dir := sourceFolder(t, config(false, "bfloat16"), weights.BF16)
	source, state := open(t, dir)
	runDir := t.TempDir()
	path := filepath.Join(runDir, "model")
	put(t, filepath.Join(path+".tmp", "left"), "by a process that died")
	for step := range int64(2) {
		if err := SaveModel(path, source, state.fill(step)); err != nil {
			t.Fatal(err)
		}
		if found := names(t, runDir); !slices.Equal(found, []string{"model"}) {
			t.Errorf("the run folder holds %v", found)
		}
		if found, want := names(t, path), names(t, dir); !slices.Equal(found, want) {
			t.Errorf("the model folder holds %v, the source %v", found, want)
		}
		compareFolders(t, dir, path, state)
		for _, name := range []string{"config.json", "tokenizer.json", "chat_template.jinja"} {
			if get(t, filepath.Join(path, name)) != get(t, filepath.Join(dir, name)) {
				t.Errorf("%s is not the source's", name)
			}
		}
	}
}

func TestSaveModelSurvivesFailures(t *testing.T) {
	dir := sourceFolder(t, config(true, "float32"), weights.F32)
	source, state := open(t, dir)
	runDir := t.TempDir()
	path := filepath.Join(runDir, "model")
	if err := SaveModel(path, source, state.fill(1)); err != nil {
		t.Fatal(err)
	}
	before := get(t, filepath.Join(path, weights.SingleFile))
	lost := errors.New("lost")
	state.fill(2).onRead = func(model.TensorKind, string) error { return lost }
	if err := SaveModel(path, source, state); !errors.Is(err, lost) {
		t.Errorf("a weight that cannot be read: %v", err)
	}
	state.onRead = nil
	state.tensors["master/"+state.parameters[0].Name][3] = float32(math.NaN())
	if err := SaveModel(path, source, state); err == nil {
		t.Error("a weight that is no number was saved")
	}
	if get(t, filepath.Join(path, weights.SingleFile)) != before || !slices.Equal(names(t, runDir), []string{"model"}) {
		t.Errorf("the folder is not as before, beside it lies %v", names(t, runDir))
	}
}
