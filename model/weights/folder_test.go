package weights

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

var golden = filepath.Join("..", "..", "testdata", "golden", "models")

// tinyConfig is config.json of a tied Llama with one layer.
const tinyConfig = `{"architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6,
	"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
	"tie_word_embeddings": true, "torch_dtype": "bfloat16"}`

// entry is a tensor of reproducible random bytes.
func entry(name, dtype string, shape ...int64) Entry {
	size := map[string]int64{F32: 4, F16: 2, BF16: 2, "I32": 4}[dtype]
	for _, length := range shape {
		size *= length
	}
	random := rand.New(rand.NewPCG(uint64(len(name)), uint64(size)))
	data := make([]byte, size)
	for k := range data {
		data[k] = byte(random.IntN(256))
	}
	return Entry{Name: name, DType: dtype, Shape: shape, Data: func() ([]byte, error) { return data, nil }}
}

// tinyFolder writes config.json and returns the folder with the entries of its parameters.
func tinyFolder(t *testing.T) (string, []Entry) {
	t.Helper()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "config.json"), tinyConfig)
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for _, parameter := range architecture.Parameters() {
		entries = append(entries, entry(parameter.Name, BF16, parameter.Shape...))
	}
	return dir, entries
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func writeEntries(t *testing.T, path string, entries []Entry) {
	t.Helper()
	if err := WriteFile(path, entries); err != nil {
		t.Fatal(err)
	}
}

func TestOpenGoldenModels(t *testing.T) {
	for _, name := range []string{"qwen2-tiny", "llama-tiny", "qwen3-tiny", "qwen2-tiny-sharded"} {
		folder, err := Open(filepath.Join(golden, name))
		if err != nil {
			t.Fatal(err)
		}
		for k, parameter := range folder.layout.parameters {
			tensor := folder.Tensors()[k]
			values, err := tensor.Float32()
			if err != nil || tensor.Name != parameter.Name || tensor.DType != F32 || !slices.ContainsFunc(values, func(v float32) bool { return v != 0 }) {
				t.Errorf("%s: tensor %d is %s %s, %v", name, k, tensor.Name, tensor.DType, err)
			}
		}
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestShardedAndSingleFilesAreTheSameModel(t *testing.T) {
	single, err := Hash(filepath.Join(golden, "qwen2-tiny"))
	if err != nil {
		t.Fatal(err)
	}
	sharded, err := Hash(filepath.Join(golden, "qwen2-tiny-sharded"))
	if err != nil || sharded != single || len(single) != 64 {
		t.Errorf("hashes %s and %s, %v", single, sharded, err)
	}
	other, err := Hash(filepath.Join(golden, "qwen3-tiny"))
	if err != nil || other == single {
		t.Errorf("another model has hash %s, %v", other, err)
	}
}

func TestHashSeesOneBit(t *testing.T) {
	dir, entries := tinyFolder(t)
	path := filepath.Join(dir, SingleFile)
	writeEntries(t, path, entries)
	before, err := Hash(dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	writeText(t, path, string(data))
	if after, err := Hash(dir); err != nil || after == before {
		t.Errorf("hash %s before, %s after, %v", before, after, err)
	}
}

func TestOpenKnowsSuperfluousTensors(t *testing.T) {
	dir, entries := tinyFolder(t)
	head := entries[0] // the embedding
	head.Name = "lm_head.weight"
	entries = append(entries, head, entry("model.layers.0.self_attn.rotary_emb.inv_freq", F32, 1))
	writeEntries(t, filepath.Join(dir, SingleFile), entries)
	folder, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if len(folder.Tensors()) != len(entries)-2 || len(folder.Stored()) != len(entries) {
		t.Errorf("%d parameters, %d stored, of %d entries", len(folder.Tensors()), len(folder.Stored()), len(entries))
	}
	if _, ok := folder.Tensor("lm_head.weight"); ok {
		t.Error("a tied head counts as a parameter")
	}
}

func TestOpenRefusesTheWrongTensors(t *testing.T) {
	tests := map[string]struct {
		change func([]Entry) []Entry
		want   string
	}{
		"missing": {func(e []Entry) []Entry { return slices.Delete(e, 3, 4) }, `tensor "model.layers.0.self_attn.v_proj.weight", which LlamaForCausalLM`},
		"shape": {func(e []Entry) []Entry {
			e[1] = entry(e[1].Name, BF16, 4, 5)
			return e
		}, `"model.layers.0.self_attn.q_proj.weight" has shape [4 5], config.json asks for [4 4]`},
		"data type": {func(e []Entry) []Entry {
			e[1] = entry(e[1].Name, "I32", 4, 4)
			return e
		}, "has data type I32, allowed are F32, BF16 and F16"},
		"unknown":        {func(e []Entry) []Entry { return append(e, entry("model.extra", BF16, 1)) }, `"model.extra" does not belong`},
		"a bias":         {func(e []Entry) []Entry { return append(e, entry("model.layers.0.self_attn.q_proj.bias", BF16, 4)) }, "q_proj.bias\" does not belong"},
		"different head": {func(e []Entry) []Entry { return append(e, entry("lm_head.weight", BF16, 8, 4)) }, "differs from the embedding"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, entries := tinyFolder(t)
			writeEntries(t, filepath.Join(dir, SingleFile), test.change(entries))
			expectRefusal(t, dir, test.want)
		})
	}
}

// expectRefusal opens a folder that must be refused in one sentence that names it.
func expectRefusal(t *testing.T, dir, want string) {
	t.Helper()
	folder, err := Open(dir)
	if err == nil {
		folder.Close()
		t.Fatal("accepted")
	}
	if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, dir) || strings.Contains(text, "\n") {
		t.Errorf("message %q lacks %q", text, want)
	}
}

func TestOpenRefusesBrokenFolders(t *testing.T) {
	index := func(weights map[string]string) string {
		text, err := json.Marshal(map[string]any{"weight_map": weights})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	good := func(entries []Entry) map[string]string {
		places := map[string]string{}
		for _, entry := range entries {
			places[entry.Name] = "model-00001-of-00001.safetensors"
		}
		return places
	}
	tests := map[string]struct {
		index func([]Entry) string // "" writes no index
		want  string
	}{
		"no weights":       {func([]Entry) string { return "" }, "has no weights"},
		"broken index":     {func([]Entry) string { return "{" }, "is not a weight index"},
		"empty index":      {func([]Entry) string { return "{}" }, "weight_map is missing or empty"},
		"index of numbers": {func([]Entry) string { return `{"weight_map": {"a": 1}}` }, "is not a weight index"},
		"missing shard": {func(e []Entry) string {
			places := good(e)
			places[e[0].Name] = "model-00002-of-00002.safetensors"
			return index(places)
		}, "model-00002-of-00002.safetensors is missing"},
		"another folder": {func(e []Entry) string {
			places := good(e)
			places[e[0].Name] = "../model.safetensors"
			return index(places)
		}, `is in file "../model.safetensors", allowed is a file of the same folder`},
		"missing entry": {func(e []Entry) string {
			places := good(e)
			delete(places, e[0].Name)
			return index(places)
		}, `holds tensor "model.embed_tokens.weight", for which model.safetensors.index.json names file ""`},
		"entry without a tensor": {func(e []Entry) string {
			places := good(e)
			places["model.extra"] = "model-00001-of-00001.safetensors"
			return index(places)
		}, `tensor "model.extra" is not in file model-00001-of-00001.safetensors`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, entries := tinyFolder(t)
			writeEntries(t, filepath.Join(dir, "model-00001-of-00001.safetensors"), entries)
			if text := test.index(entries); text != "" {
				writeText(t, filepath.Join(dir, IndexFile), text)
			}
			expectRefusal(t, dir, test.want)
		})
	}
	t.Run("no config", func(t *testing.T) {
		expectRefusal(t, t.TempDir(), "config.json")
	})
}

func TestCloseUnmaps(t *testing.T) {
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), filepath.Join("qwen2-tiny-sharded", "model-00004"))
	}
	folder, err := Open(filepath.Join(golden, "qwen2-tiny-sharded"))
	if err != nil {
		t.Fatal(err)
	}
	before := mapped()
	if err := folder.Close(); err != nil || !before || mapped() {
		t.Errorf("mapped %v before Close, %v after, %v", before, mapped(), err)
	}
}
