package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// fakeState is a model in memory. Tensors are those of a kind and name, joined by a slash.
type fakeState struct {
	parameters []model.Parameter
	tensors    map[string][]float32
	updates    int64
	adapters   model.Adapters
	onRead     func(kind model.TensorKind, name string) error // called before each read
}

func newFakeState(parameters []model.Parameter) *fakeState {
	return &fakeState{parameters: parameters, tensors: map[string][]float32{}}
}

// fill gives every tensor the values that belong to a step.
func (f *fakeState) fill(step int64) *fakeState {
	for _, kind := range kinds {
		for k, parameter := range f.parameters {
			values := make([]float32, weights.Bytes(weights.F32, parameter.Shape)/4)
			for i := range values {
				values[i] = float32(step)*0.125 + float32(k) + float32(i%61)/3 + float32(len(kind))
			}
			f.tensors[string(kind)+"/"+parameter.Name] = values
		}
	}
	f.updates = 2 * step
	return f
}

func (f *fakeState) Parameters() []model.Parameter { return f.parameters }
func (f *fakeState) Adapters() model.Adapters      { return f.adapters }
func (f *fakeState) UpdateCount() int64            { return f.updates }
func (f *fakeState) SetUpdateCount(n int64)        { f.updates = n }

func (f *fakeState) ReadFloat32(kind model.TensorKind, name string) ([]float32, error) {
	if f.onRead != nil {
		if err := f.onRead(kind, name); err != nil {
			return nil, err
		}
	}
	values, ok := f.tensors[string(kind)+"/"+name]
	if !ok {
		return nil, fmt.Errorf("no tensor %s", name)
	}
	return slices.Clone(values), nil
}

func (f *fakeState) WriteFloat32(kind model.TensorKind, name string, data []float32) error {
	f.tensors[string(kind)+"/"+name] = data
	return nil
}

// difference names a tensor in which two states differ, "" if they are equal bit for bit.
func (f *fakeState) difference(other *fakeState) string {
	if f.updates != other.updates {
		return fmt.Sprintf("update count %d and %d", f.updates, other.updates)
	}
	for name, values := range f.tensors {
		if !slices.Equal(values, other.tensors[name]) {
			return name
		}
	}
	return ""
}

// config is config.json of a tiny model; tied says whether the head is the embedding.
func config(tied bool, dtype string) string {
	return fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 8, "intermediate_size": 12,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
 "tie_word_embeddings": %v, "torch_dtype": %q, "eos_token_id": 3}`, tied, dtype)
}

// sourceFolder makes a random model folder; extra entries are stored besides the parameters.
func sourceFolder(t testing.TB, configText, dtype string, extra ...weights.Entry) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "config.json"), configText)
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	entries := extra
	for k, parameter := range architecture.Parameters() {
		values := make([]float32, weights.Bytes(weights.F32, parameter.Shape)/4)
		for i := range values {
			values[i] = float32((i*7+k)%13) - 6
		}
		entries = append(entries, weights.Entry{Name: parameter.Name, DType: dtype, Shape: parameter.Shape, Data: func() ([]byte, error) {
			return weights.EncodeFloat32(dtype, values)
		}})
	}
	if err := weights.WriteFile(filepath.Join(dir, weights.SingleFile), entries); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "generation_config.json"), `{"eos_token_id": [3, 5]}`)
	put(t, filepath.Join(dir, "tokenizer.json"), "{\"<mem>\": \"é\"}\r\n")
	put(t, filepath.Join(dir, "chat_template.jinja"), "{{ messages }}")
	return dir
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func get(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// open reads a source folder and makes a state with its parameters.
func open(t testing.TB, dir string) (*Source, *fakeState) {
	t.Helper()
	source, err := ReadSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	return source, newFakeState(architecture.Parameters())
}

var run = Identity{Model: "models/tiny", ModelHash: "aaaa", TokenizerHash: "bbbb", DataHash: "cccc"}

// recordOf is a full record of a step.
func recordOf(step int64) Record {
	return Record{
		Step: step, Sampler: json.RawMessage(`{"epoch":1,"next":` + fmt.Sprint(step) + `}`), Counters: map[string]int64{"failed_steps": step},
		Identity: run, Config: "[rollout]\nprefill = \"<mem>\"\n",
	}
}

// save saves a step with the values that belong to it.
func save(t testing.TB, runDir string, source *Source, state *fakeState, record Record) string {
	t.Helper()
	path, err := Save(runDir, source, state.fill(record.Step), record)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
