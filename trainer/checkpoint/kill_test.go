package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// saverVariable makes the test program a process that saves checkpoints until it is killed:
// its value is the run folder, the source model lies in the folder "source" beside it.
const saverVariable = "MEMPO_TEST_SAVER"

func TestMain(m *testing.M) {
	if runDir := os.Getenv(saverVariable); runDir != "" {
		fmt.Fprintln(os.Stderr, saveForever(runDir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// saveForever goes on from the newest checkpoint as the trainer does.
func saveForever(runDir string) error {
	sourceDir := filepath.Join(filepath.Dir(runDir), "source")
	source, err := ReadSource(sourceDir)
	if err != nil {
		return err
	}
	architecture, err := model.LoadArchitecture(sourceDir)
	if err != nil {
		return err
	}
	state := newFakeState(architecture.Parameters())
	found, err := List(runDir)
	if err != nil {
		return err
	}
	step := int64(0)
	if len(found) > 0 {
		step = found[len(found)-1].Step
	}
	for {
		step++
		if _, err := Save(runDir, source, state.fill(step), recordOf(step)); err != nil {
			return err
		}
		if err := Prune(runDir, 2); err != nil {
			return err
		}
	}
}

func TestKilledAtAnyMomentLeavesOnlyWholeCheckpoints(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := os.Rename(sourceFolder(t, config(false, "bfloat16"), weights.BF16), filepath.Join(base, "source")); err != nil {
		t.Fatal(err)
	}
	runDir := filepath.Join(base, "run")
	architecture, err := model.LoadArchitecture(filepath.Join(base, "source"))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	unfinished, newest := 0, int64(0)
	kills := 0
	for ; kills < 20 || newest < 5 || unfinished < 3; kills++ {
		if kills == 400 {
			t.Fatalf("%d steps saved and %d kills inside a save: the test does not test", newest, unfinished)
		}
		saver := exec.Command(os.Args[0])
		saver.Env = append(os.Environ(), saverVariable+"="+runDir)
		saver.Stderr = os.Stderr
		if err := saver.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(40+random.IntN(120)) * time.Millisecond)
		if err := saver.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := saver.Wait(); saver.ProcessState.Exited() {
			t.Fatalf("the saver ended by itself: %v", err)
		}
		found, err := List(runDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, saved := range found {
			checkWhole(t, saved, architecture.Parameters())
		}
		if len(found) > 3 { // two kept, one not yet removed
			t.Errorf("%d checkpoints: %v", len(found), found)
		}
		if len(found) > 0 {
			if last := found[len(found)-1].Step; last < newest {
				t.Errorf("the newest checkpoint went back from step %d to %d", newest, last)
			}
			newest = found[len(found)-1].Step
		}
		left, err := filepath.Glob(filepath.Join(runDir, "checkpoints", "*.tmp"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 2 {
			t.Errorf("unfinished folders pile up: %v", left)
		}
		unfinished += len(left)
	}
	t.Logf("%d steps, %d of %d kills left an unfinished folder", newest, unfinished, kills)
}

// checkWhole checks that a checkpoint holds the values of its step everywhere.
func checkWhole(t *testing.T, saved Saved, parameters []model.Parameter) {
	t.Helper()
	restored := newFakeState(parameters)
	record, err := Restore(saved.Path, restored, run)
	if err != nil || record.Step != saved.Step {
		t.Fatalf("step %d: record of step %d, %v", saved.Step, record.Step, err)
	}
	want := newFakeState(parameters).fill(saved.Step)
	if name := want.difference(restored); name != "" {
		t.Errorf("step %d: %s does not hold the values of its step", saved.Step, name)
	}
	folder, err := weights.Open(saved.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	for _, tensor := range folder.Tensors() {
		data, err := weights.EncodeFloat32(tensor.DType, want.tensors["master/"+tensor.Name])
		if err != nil || string(data) != string(tensor.Data) {
			t.Errorf("step %d: saved weight %s, %v", saved.Step, tensor.Name, err)
		}
	}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja"} {
		if get(t, filepath.Join(saved.Path, name)) != get(t, filepath.Join(filepath.Dir(saved.Path), "..", "..", "source", name)) {
			t.Errorf("step %d: %s differs from the source", saved.Step, name)
		}
	}
}
