package checkpoint

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

func TestRestoreRefusesACheckpointOfSomethingElse(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	path := save(t, t.TempDir(), source, state, recordOf(2))
	other := func(change func(*Identity)) Identity {
		identity := run
		change(&identity)
		return identity
	}
	tests := map[string]struct {
		run  Identity
		want []string
	}{
		"model": {
			other(func(i *Identity) { i.Model, i.ModelHash = "models/other", "dddd" }),
			[]string{"belongs to model models/tiny (weights aaaa)", "starts from model models/other (weights dddd)"},
		},
		"tokenizer": {other(func(i *Identity) { i.TokenizerHash = "eeee" }), []string{"tokenizer bbbb", "tokenizer eeee"}},
		"data":      {other(func(i *Identity) { i.DataHash = "ffff" }), []string{"training data cccc", "training data ffff"}},
	}
	for name, test := range tests {
		fresh := newFakeState(state.parameters)
		_, err := Restore(path, fresh, test.run)
		if err == nil || fault.Code(err) != fault.CodeUsage || len(fresh.tensors) > 0 {
			t.Errorf("%s: got %v with exit code %d, %d tensors restored", name, err, fault.Code(err), len(fresh.tensors))
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: message %q lacks %q", name, err, want)
			}
		}
	}
	moved := other(func(i *Identity) { i.Model = "/elsewhere/tiny" })
	if _, err := Restore(path, newFakeState(state.parameters), moved); err != nil {
		t.Errorf("the same model in another folder: %v", err)
	}
}

func TestRestoreRefusesBrokenCheckpoints(t *testing.T) {
	t.Parallel()
	source, state := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	one := func(dtype string, value float32, shape ...int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			values := make([]float32, weights.Bytes(weights.F32, shape)/4)
			for k := range values {
				values[k] = value
			}
			var entries []weights.Entry
			for _, parameter := range state.parameters {
				entry := weights.Entry{Name: parameter.Name, DType: weights.F32, Shape: parameter.Shape}
				if parameter.Name == "model.norm.weight" {
					entry.DType, entry.Shape = dtype, shape
					entry.Data = func() ([]byte, error) { return weights.EncodeFloat32(dtype, values) }
				} else {
					entry.Data = func() ([]byte, error) { return make([]byte, weights.Bytes(weights.F32, parameter.Shape)), nil }
				}
				entries = append(entries, entry)
			}
			if err := weights.WriteFile(path, entries); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) { put(t, path, text) }
	}
	remove := func(t *testing.T, path string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		file   string
		change func(t *testing.T, path string)
		want   string
	}{
		"no marker":      {"complete", remove, "is not a complete checkpoint"},
		"no record":      {"trainer_state/record.json", remove, "record.json: no such file"},
		"broken record":  {"trainer_state/record.json", text("{"), "is not a checkpoint record"},
		"newer format":   {"trainer_state/record.json", text(`{"format_version": 2, "step": "new type"}`), "format_version is 2, this program reads 1 to 1"},
		"no format":      {"trainer_state/record.json", text(`{"step": 1}`), "format_version is 0"},
		"negative count": {"trainer_state/record.json", text(`{"format_version": 1, "update_count": -5}`), "record.json: step is 0 and update_count -5, allowed are 0 and more"},
		"too many updates": {
			"trainer_state/record.json", text(`{"format_version": 1, "step": 1, "update_count": 9223372036854775807}`),
			"update_count 9223372036854775807, allowed are 0 and more, and 1000000000000 updates at most",
		},
		"another step":    {"trainer_state/record.json", text(`{"format_version": 1, "step": 2}`), "record.json is of step 2, but the folder of the checkpoint is step_000001"},
		"missing moments": {"trainer_state/exp_avg.safetensors", remove, "exp_avg.safetensors is missing"},
		"cut short": {"trainer_state/exp_avg_sq.safetensors", func(t *testing.T, path string) {
			if err := os.Truncate(path, 2000); err != nil {
				t.Fatal(err)
			}
		}, "cut short"},
		"shape":      {"trainer_state/master.safetensors", one(weights.F32, 1, 9), `tensor "model.norm.weight" has shape [9], the model has [8]`},
		"data type":  {"trainer_state/master.safetensors", one(weights.BF16, 1, 8), "has data type BF16, needed is F32"},
		"negative":   {"trainer_state/exp_avg_sq.safetensors", one(weights.F32, -1, 8), `tensor "model.norm.weight": element 0 of exp_avg_sq is -1, allowed are numbers from 0`},
		"not finite": {"trainer_state/exp_avg.safetensors", one(weights.F32, float32(math.NaN()), 8), `tensor "model.norm.weight": element 0 of exp_avg is NaN`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := save(t, t.TempDir(), source, state, recordOf(1))
			test.change(t, filepath.Join(path, test.file))
			_, err := Restore(path, newFakeState(state.parameters), run)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) || fault.Code(err) != fault.CodeUsage {
				t.Errorf("got %v with exit code %d, want %q", err, fault.Code(err), test.want)
			}
		})
	}
}

func TestRestoreRefusesAnotherSetOfTensors(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(false, "bfloat16"), weights.BF16))
	path := save(t, t.TempDir(), source, state, recordOf(1))
	fewer := newFakeState(state.parameters[:len(state.parameters)-1])
	if _, err := Restore(path, fewer, run); err == nil || !strings.Contains(err.Error(), "21 tensors, the model has 20") {
		t.Errorf("a model without a head: %v", err)
	}
	more := newFakeState(append([]model.Parameter{{Name: "extra", Shape: []int64{1}}}, state.parameters...))
	if _, err := Restore(path, more, run); err == nil || !strings.Contains(err.Error(), `tensor "extra" of the model is missing`) {
		t.Errorf("a model with one more tensor: %v", err)
	}
}

// An interrupted run saves what the uninterrupted one saves at the same step, every time.
func TestResumedTwiceEqualsNeverInterrupted(t *testing.T) {
	source, straight := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	advance := func(state *fakeState, record *Record) { // a step that depends on all that a record keeps
		for name, values := range state.tensors {
			for k := range values {
				values[k] += float32(record.Step+state.updates)*1e-3 + float32(len(name))*1e-6 + float32(record.Counters["failed_steps"])
			}
		}
		record.Step++
		record.Counters["failed_steps"] += record.Step % 2
		state.updates += 2
	}
	straight.fill(0)
	expected := recordOf(0)
	for range 6 {
		advance(straight, &expected)
	}
	runDir := t.TempDir()
	state := newFakeState(straight.parameters).fill(0)
	record := recordOf(0)
	for _, stop := range []int64{2, 4, 6} {
		for record.Step < stop {
			advance(state, &record)
		}
		if _, err := Save(runDir, source, state, record); err != nil {
			t.Fatal(err)
		}
		path, err := Latest(runDir)
		if err != nil {
			t.Fatal(err)
		}
		state = newFakeState(straight.parameters)
		if record, err = Restore(path, state, run); err != nil || record.Step != stop {
			t.Fatalf("resumed at step %d, want %d, %v", record.Step, stop, err)
		}
	}
	if name := straight.difference(state); name != "" || record.Counters["failed_steps"] != expected.Counters["failed_steps"] {
		t.Errorf("%s differs, counters %v, want %v", name, record.Counters, expected.Counters)
	}
}

func TestRestoreReportsAModelThatCannotBeWritten(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	path := save(t, t.TempDir(), source, state, recordOf(1))
	_, err := Restore(path, deafState{newFakeState(state.parameters)}, run)
	if !errors.Is(err, errDeaf) || !strings.Contains(err.Error(), "model.embed_tokens.weight") {
		t.Errorf("got %v", err)
	}
}

var errDeaf = errors.New("device lost")

// deafState takes no tensors.
type deafState struct{ *fakeState }

func (deafState) WriteFloat32(model.TensorKind, string, []float32) error { return errDeaf }
