package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

func TestSaveAndRestoreKeepEverything(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(false, "bfloat16"), weights.BF16))
	runDir := t.TempDir()
	record := recordOf(7)
	record.Best = &Best{Metric: "eval/em", Value: 0.25, Step: 5}
	path := save(t, runDir, source, state, record)
	if want := filepath.Join(runDir, "checkpoints", "step_000007"); path != want {
		t.Errorf("saved to %s, want %s", path, want)
	}
	restored := newFakeState(state.parameters)
	got, err := Restore(path, restored, run)
	if err != nil {
		t.Fatal(err)
	}
	if name := state.difference(restored); name != "" {
		t.Errorf("%s differs", name)
	}
	record.FormatVersion, record.UpdateCount = 1, 14
	var sampler map[string]int
	if err := json.Unmarshal(got.Sampler, &sampler); err != nil || sampler["next"] != 7 {
		t.Errorf("sampler cursor %s, %v", got.Sampler, err)
	}
	got.Sampler = record.Sampler // its white space may differ
	if !reflect.DeepEqual(got, record) {
		t.Errorf("record came back as %+v, want %+v", got, record)
	}
	if text := get(t, filepath.Join(path, "trainer_state", "record.json")); !strings.Contains(text, "<mem>") {
		t.Errorf("record.json escapes its text: %s", text)
	}
}

func TestSavedModelKeepsNamesDataTypesAndSize(t *testing.T) {
	rotary := weights.Entry{Name: "model.layers.0.self_attn.rotary_emb.inv_freq", DType: weights.F32, Shape: []int64{2}, Data: func() ([]byte, error) {
		return []byte("12345678"), nil
	}}
	for _, test := range []struct {
		name, config, dtype string
		extra               []weights.Entry
	}{
		{"bfloat16, untied", config(false, "bfloat16"), weights.BF16, nil},
		{"float16, tied", config(true, "float16"), weights.F16, nil},
		{"float32, tied", config(true, "float32"), weights.F32, []weights.Entry{rotary}},
		{"bfloat16 file although config.json says float32", config(true, "float32"), weights.BF16, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := sourceFolder(t, test.config, test.dtype, test.extra...)
			source, state := open(t, dir)
			path := save(t, t.TempDir(), source, state, recordOf(3))
			compareFolders(t, dir, path, state)
		})
	}
	t.Run("tied, with a head all the same", func(t *testing.T) {
		dir := sourceFolder(t, config(true, "bfloat16"), weights.BF16)
		folder, err := weights.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		var entries []weights.Entry
		for _, tensor := range folder.Tensors() {
			data := slices.Clone(tensor.Data)
			entries = append(entries, weights.Entry{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape, Data: func() ([]byte, error) { return data, nil }})
		}
		head := entries[0] // the embedding
		head.Name = "lm_head.weight"
		if err := errors.Join(folder.Close(), weights.WriteFile(filepath.Join(dir, weights.SingleFile), append(entries, head))); err != nil {
			t.Fatal(err)
		}
		source, state := open(t, dir)
		path := save(t, t.TempDir(), source, state, recordOf(3))
		compareFolders(t, dir, path, state)
	})
}

// compareFolders checks a saved model against its source: the same tensors in the same data types,
// filled from the state, in a file of the same size.
func compareFolders(t *testing.T, sourceDir, path string, state *fakeState) {
	t.Helper()
	before, errBefore := weights.Open(sourceDir)
	after, errAfter := weights.Open(path)
	if errBefore != nil || errAfter != nil {
		t.Fatal(errBefore, errAfter)
	}
	defer before.Close()
	defer after.Close()
	if len(before.Stored()) != len(after.Stored()) {
		t.Fatalf("%d tensors, the source has %d", len(after.Stored()), len(before.Stored()))
	}
	for k, want := range before.Stored() {
		got := after.Stored()[k]
		if got.Name != want.Name || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
			t.Errorf("tensor %d is %s %s %v, the source's is %s %s %v", k, got.Name, got.DType, got.Shape, want.Name, want.DType, want.Shape)
		}
		if strings.HasSuffix(got.Name, "inv_freq") && string(got.Data) != string(want.Data) {
			t.Errorf("%s was not carried over", got.Name)
		}
	}
	for _, tensor := range after.Tensors() {
		data, err := weights.EncodeFloat32(tensor.DType, state.tensors["master/"+tensor.Name])
		if err != nil || string(data) != string(tensor.Data) {
			t.Errorf("%s does not hold the master weights, %v", tensor.Name, err)
		}
	}
	old, errOld := os.Stat(filepath.Join(sourceDir, weights.SingleFile))
	fresh, errFresh := os.Stat(filepath.Join(path, weights.SingleFile))
	if errOld != nil || errFresh != nil || math.Abs(float64(fresh.Size())/float64(old.Size())-1) > 0.01 {
		t.Errorf("file sizes %v and %v", old, fresh)
	}
}

func TestEverythingButWeightsIsCarriedOverByteForByte(t *testing.T) {
	dir := sourceFolder(t, config(true, "bfloat16"), weights.BF16)
	for name, text := range map[string]string{
		"vocab.txt": "a\r\nb\x00\xff", "README.md": "# model", "special_tokens_map.json": "{ }",
		"pytorch_model.bin": "x", "pytorch_model.bin.index.json": "{}", "model.safetensors.index.json": "{}", "adapter.safetensors": "x",
		"complete": "step 9", "trainer_state/record.json": "{}", "onnx/model.json": "{}",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	put(t, filepath.Join(dir, "consolidated.dat"), "")
	if err := os.Truncate(filepath.Join(dir, "consolidated.dat"), maxCarriedBytes+1); err != nil { // takes no space on disk
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "blob")
	put(t, linked, `{"merges": []}`)
	if err := os.Symlink(linked, filepath.Join(dir, "merges.json")); err != nil {
		t.Fatal(err)
	}
	source, state := open(t, dir)
	if err := os.RemoveAll(dir); err != nil { // a source that goes away later does not matter
		t.Fatal(err)
	}
	dir = sourceFolder(t, config(true, "bfloat16"), weights.BF16)
	runDir := t.TempDir()
	state.onRead = func(model.TensorKind, string) error {
		if _, err := os.Stat(filepath.Join(runDir, "checkpoints", "step_000001.tmp", "complete")); !errors.Is(err, os.ErrNotExist) {
			return errors.New("the marker is there before the weights")
		}
		return nil
	}
	path := save(t, runDir, source, state, recordOf(1))
	want := map[string]string{
		"config.json": config(true, "bfloat16"), "generation_config.json": get(t, filepath.Join(dir, "generation_config.json")),
		"tokenizer.json": get(t, filepath.Join(dir, "tokenizer.json")), "chat_template.jinja": "{{ messages }}",
		"vocab.txt": "a\r\nb\x00\xff", "README.md": "# model", "special_tokens_map.json": "{ }", "merges.json": `{"merges": []}`,
		"complete": "step 1\n",
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if name == "trainer_state" || name == weights.SingleFile {
			continue
		}
		if text, ok := want[name]; !ok || get(t, filepath.Join(path, name)) != text {
			t.Errorf("%s holds %q, want %q", name, get(t, filepath.Join(path, name)), text)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not carried over: %v", want)
	}
	generation, err := model.LoadGenerationConfig(path)
	if err != nil || !slices.Equal(generation.EOS, []int32{3, 5}) {
		t.Errorf("the saved model ends at %v, %v", generation.EOS, err)
	}
}

func TestWriteModelInShards(t *testing.T) {
	dir := sourceFolder(t, config(false, "float32"), weights.F32)
	source, state := open(t, dir)
	sharded := t.TempDir()
	put(t, filepath.Join(sharded, "config.json"), config(false, "float32"))
	if err := writeModel(sharded, source.entries(state.fill(1)), 1000); err != nil {
		t.Fatal(err)
	}
	single := t.TempDir()
	put(t, filepath.Join(single, "config.json"), config(false, "float32"))
	if err := writeModel(single, source.entries(state), 1<<30); err != nil {
		t.Fatal(err)
	}
	a, errA := weights.Hash(sharded)
	b, errB := weights.Hash(single)
	if errA != nil || errB != nil || a != b {
		t.Errorf("sharded %s %v, single %s %v", a, errA, b, errB)
	}
	shards, err := filepath.Glob(filepath.Join(sharded, "model-*.safetensors"))
	if err != nil || len(shards) < 4 {
		t.Errorf("shards %v, %v", shards, err)
	}
	for k, shard := range shards {
		if want := fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, len(shards)); filepath.Base(shard) != want {
			t.Errorf("shard %d is %s, want %s", k, shard, want)
		}
		file, err := weights.OpenFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, tensor := range file.Tensors() {
			size += len(tensor.Data)
		}
		if size == 0 || size > 1000 {
			t.Errorf("%s holds %d bytes", shard, size)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
	}
	total := int64(0)
	for _, parameter := range state.parameters {
		total += weights.Bytes(weights.F32, parameter.Shape)
	}
	if err := json.Unmarshal([]byte(get(t, filepath.Join(sharded, weights.IndexFile))), &index); err != nil || index.Metadata.TotalSize != total {
		t.Errorf("total_size %d, want %d, %v", index.Metadata.TotalSize, total, err)
	}
}

func TestSaveRefusesWhatIsNotFinite(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(true, "float16"), weights.F16))
	tests := map[string]struct {
		tensor string
		value  float32
		want   string
	}{
		"weight":             {"master/model.norm.weight", float32(math.NaN()), `tensor "model.norm.weight": element 1 of master is NaN`},
		"moment":             {"exp_avg_sq/model.norm.weight", float32(math.Inf(1)), "element 1 of exp_avg_sq is +Inf"},
		"too large for file": {"master/model.norm.weight", 70000, "element 1 is 70000, too large for data type F16"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			runDir := t.TempDir()
			before := save(t, runDir, source, state, recordOf(1))
			state.fill(2).tensors[test.tensor][1] = test.value
			_, err := Save(runDir, source, state, recordOf(2))
			if err == nil || !strings.Contains(err.Error(), "step 2 was not saved") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
			expectOnly(t, runDir, before)
		})
	}
}

// expectOnly checks that a run folder holds this one checkpoint and nothing unfinished.
func expectOnly(t *testing.T, runDir string, paths ...string) {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(runDir, "checkpoints", "*"))
	if err != nil || !slices.Equal(entries, paths) {
		t.Errorf("the folder holds %v, %v, want %v", entries, err, paths)
	}
}

func TestSaveSurvivesAFailureAtEveryRead(t *testing.T) {
	t.Parallel()
	source, state := open(t, sourceFolder(t, config(false, "bfloat16"), weights.BF16))
	runDir := t.TempDir()
	first := save(t, runDir, source, state, recordOf(1))
	reads := 0
	state.onRead = func(model.TensorKind, string) error { reads++; return nil }
	save(t, t.TempDir(), source, state, recordOf(2))
	lost := errors.New("device lost")
	for failing := range reads {
		count := 0
		state.onRead = func(model.TensorKind, string) error {
			if count++; count == failing+1 {
				return lost
			}
			return nil
		}
		if _, err := Save(runDir, source, state.fill(2), recordOf(2)); !errors.Is(err, lost) {
			t.Fatalf("read %d fails: %v", failing, err)
		}
		expectOnly(t, runDir, first)
	}
	state.onRead = nil
	expectOnly(t, runDir, first, save(t, runDir, source, state, recordOf(2)))
}

func TestSaveOnAFullDisk(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(false, "bfloat16"), weights.BF16))
	runDir := t.TempDir()
	first := save(t, runDir, source, state, recordOf(1))
	full := filepath.Join(runDir, "checkpoints", "step_000002.tmp", "trainer_state", "exp_avg.safetensors.tmp")
	state.onRead = func(kind model.TensorKind, _ string) error {
		if kind != model.Master {
			return nil
		}
		if err := os.Symlink("/dev/full", full); !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	}
	_, err := Save(runDir, source, state.fill(2), recordOf(2))
	if !errors.Is(err, syscall.ENOSPC) || fault.Code(err) != fault.CodeEnvironment || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got %v with exit code %d", err, fault.Code(err))
	}
	expectOnly(t, runDir, first)
}

func TestSaveRemovesWhatADeadProcessLeft(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	runDir := t.TempDir()
	put(t, filepath.Join(runDir, "checkpoints", "step_000005.tmp", "complete"), "step 5\n")
	put(t, filepath.Join(runDir, "checkpoints", "step_000004.old.tmp", "complete"), "step 4\n")
	if path, err := Latest(runDir); err != nil || path != "" {
		t.Errorf("an unfinished folder counts as %s, %v", path, err)
	}
	expectOnly(t, runDir, save(t, runDir, source, state, recordOf(6)))
}

func TestCheckpointBytes(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(false, "bfloat16"), weights.BF16))
	path := save(t, t.TempDir(), source, state, recordOf(1))
	var onDisk, headers int64
	err := filepath.WalkDir(path, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		onDisk += info.Size()
		switch filepath.Ext(name) {
		case ".safetensors":
			headers += 8 + int64(binary.LittleEndian.Uint64([]byte(get(t, name))))
		case "":
			headers += info.Size() // the marker
		}
		if entry.Name() == recordFile {
			headers += info.Size()
		}
		return nil
	})
	if got := source.CheckpointBytes(state.parameters, state.adapters); err != nil || got != onDisk-headers {
		t.Errorf("%d bytes, really %d and %d of headers, %v", got, onDisk, headers, err)
	}
}

func TestSaveReplacesTheSameStep(t *testing.T) {
	source, state := open(t, sourceFolder(t, config(true, "bfloat16"), weights.BF16))
	runDir := t.TempDir()
	path := save(t, runDir, source, state, recordOf(1))
	record := recordOf(1)
	record.Config = "again"
	expectOnly(t, runDir, save(t, runDir, source, state, record))
	if got, err := ReadRecord(path); err != nil || got.Config != "again" {
		t.Errorf("record %+v, %v", got, err)
	}
}
