package checkpoint

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

var someAdapters = model.Adapters{Rank: 2, Alpha: 3, Targets: []string{"v_proj", "q_proj"}}

// openAdapted is open for a model of which adapters are trained. Its merged weights are numbers that no other tensor has.
func openAdapted(t *testing.T, dir string) (*Source, *fakeState) {
	t.Helper()
	source, state := open(t, dir)
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	for k, p := range state.parameters {
		values := make([]float32, weights.Bytes(weights.F32, p.Shape)/4)
		for i := range values {
			values[i] = 100 + float32(k) + float32(i%7)/4
		}
		state.tensors["merged/"+p.Name] = values
	}
	state.adapters, state.parameters = someAdapters, architecture.AdapterParameters(someAdapters)
	return source, state
}

// A checkpoint of adapters is the source's model with them added, the adapters in PEFT's names, and a state of
// adapters alone.
func TestCheckpointOfAdapters(t *testing.T) {
	dir := sourceFolder(t, config(true, "bfloat16"), weights.BF16)
	source, state := openAdapted(t, dir)
	path := save(t, t.TempDir(), source, state, recordOf(3))

	before, after := openFolder(t, dir), openFolder(t, path)
	for k, want := range before.Stored() {
		got := after.Stored()[k]
		data, err := weights.EncodeFloat32(weights.BF16, state.tensors["merged/"+got.Name])
		if err != nil || got.Name != want.Name || got.DType != want.DType || string(got.Data) != string(data) {
			t.Errorf("tensor %s %s for %s %s, or not the merged weight, %v", got.Name, got.DType, want.Name, want.DType, err)
		}
	}
	if len(before.Stored()) != len(after.Stored()) {
		t.Errorf("%d tensors, the source has %d", len(after.Stored()), len(before.Stored()))
	}

	adapter := openFile(t, filepath.Join(path, "adapter", "adapter_model.safetensors"))
	if n := len(adapter.Tensors()); n != 2*2*2 { // layers, targets, A and B
		t.Errorf("the adapter has %d tensors", n)
	}
	for name, shape := range map[string][]int64{"lora_A": {2, 8}, "lora_B": {4, 2}} {
		tensor, found := adapter.Tensor("base_model.model.model.layers.1.self_attn.v_proj." + name + ".weight")
		values, err := weights.EncodeFloat32(weights.F32, state.tensors["master/model.layers.1.self_attn.v_proj."+name+".weight"])
		if err != nil || !found || tensor.DType != weights.F32 || !slices.Equal(tensor.Shape, shape) || string(tensor.Data) != string(values) {
			t.Errorf("%s: %v, %s %v, %v", name, found, tensor.DType, tensor.Shape, err)
		}
	}
	var told map[string]any
	if err := json.Unmarshal([]byte(get(t, filepath.Join(path, "adapter", "adapter_config.json"))), &told); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"peft_type": "LORA", "r": 2.0, "lora_alpha": 3.0, "base_model_name_or_path": dir, "bias": "none"} {
		if told[key] != want {
			t.Errorf("%s is %v, want %v", key, told[key], want)
		}
	}
	if targets := fmt.Sprint(told["target_modules"]); targets != "[q_proj v_proj]" {
		t.Errorf("targets %s", targets)
	}
	if master := openFile(t, filepath.Join(path, "trainer_state", "master.safetensors")); len(master.Tensors()) != len(state.parameters) {
		t.Errorf("the state has %d master weights, the adapters %d", len(master.Tensors()), len(state.parameters))
	}
}

func openFolder(t *testing.T, dir string) *weights.Folder {
	t.Helper()
	folder, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	return folder
}

func openFile(t *testing.T, path string) *weights.File {
	t.Helper()
	file, err := weights.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestAdaptersComeBack(t *testing.T) {
	source, state := openAdapted(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	record := recordOf(4)
	record.Adapters = state.adapters.String()
	path := save(t, t.TempDir(), source, state, record)
	same := run
	same.Adapters = record.Adapters
	fresh := newFakeState(state.parameters)
	if _, err := Restore(path, fresh, same); err != nil {
		t.Fatal(err)
	}
	for name, values := range fresh.tensors {
		if !slices.Equal(values, state.tensors[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if len(fresh.tensors) != 3*len(state.parameters) {
		t.Errorf("%d tensors", len(fresh.tensors))
	}
	for other, want := range map[string]string{
		"":                                    "has adapters of rank 2 and alpha 3 on q_proj, v_proj, this run has no adapters",
		"adapters of rank 2 and alpha 4 on …": "this run has adapters of rank 2 and alpha 4",
	} {
		different := same
		different.Adapters = other
		_, err := Restore(path, newFakeState(state.parameters), different)
		if err == nil || !strings.Contains(err.Error(), want) || fault.Code(err) != fault.CodeUsage {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestBytesOfACheckpointOfAdapters(t *testing.T) {
	source, state := openAdapted(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	var trained int64
	for _, p := range state.parameters {
		trained += weights.Bytes(weights.F32, p.Shape)
	}
	without := source.CheckpointBytes(nil, model.Adapters{})
	if got := source.CheckpointBytes(state.parameters, state.adapters); got != without+4*trained {
		t.Errorf("%d bytes, the model has %d and the adapters %d", got, without, trained)
	}
}
