package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// shardBytes is the most that one weight file holds, unless a single tensor is larger.
const shardBytes = 5_000_000_000

// kinds are the tensors that trainer_state keeps of every parameter.
var kinds = []model.TensorKind{model.Master, model.FirstMoment, model.SecondMoment}

// Save writes the checkpoint of record.Step and returns its folder. An earlier checkpoint of the
// same step is replaced. A weight or moment that is not finite, or that is too large for the data
// type of the source, is an error that names it. After an error no checkpoint of this step
// appears and the others are as before.
func Save(runDir string, source *Source, state model.State, record Record) (string, error) {
	root := filepath.Join(runDir, folderName)
	if err := makeFolder(root); err != nil {
		return "", err
	}
	if err := removeUnfinished(root); err != nil {
		return "", err
	}
	final := filepath.Join(root, stepName(record.Step))
	temporary := final + durable.TempSuffix
	if err := build(temporary, source, state, record); err != nil {
		return "", errors.Join(fmt.Errorf("checkpoint of step %d was not saved: %w", record.Step, err), os.RemoveAll(temporary))
	}
	if err := publish(temporary, final); err != nil {
		return "", fmt.Errorf("checkpoint of step %d was not saved: %w", record.Step, err)
	}
	return final, durable.SyncDir(root)
}

// SaveModel writes the model alone as the HuggingFace folder path, in place of one that may be
// there: weights under the source's names and data types, everything else byte for byte the
// source's; adapters are added to the weights, and lie beside them in a folder of their own. A weight that is not finite, or too large for its data type, is an error that names it,
// after which the folder is as before.
func SaveModel(path string, source *Source, state model.State) error {
	temporary := path + durable.TempSuffix
	if err := buildAlone(temporary, source, state); err != nil {
		return errors.Join(fmt.Errorf("model folder %s was not saved: %w", path, err), os.RemoveAll(temporary))
	}
	if err := publish(temporary, path); err != nil {
		return fmt.Errorf("model folder %s was not saved: %w", path, err)
	}
	return durable.SyncDir(filepath.Dir(path))
}

// buildAlone writes a model into a new folder and waits until it is on disk.
func buildAlone(dir string, source *Source, state model.State) error {
	if err := removeAll(dir); err != nil { // of a process that died
		return err
	}
	if err := makeFolder(dir); err != nil {
		return err
	}
	if err := buildModel(dir, source, state); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// buildModel writes the files of a model into a folder.
func buildModel(dir string, source *Source, state model.State) error {
	if err := source.writeFiles(dir); err != nil {
		return err
	}
	if state.Adapters().Rank > 0 {
		if err := writeAdapter(filepath.Join(dir, adapterFolder), source.dir, state); err != nil {
			return err
		}
	}
	return writeModel(dir, source.entries(state), shardBytes)
}

func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("cannot create folder %s: %w", path, durable.Bare(err))
	}
	return nil
}

// publish gives a finished folder its name, in place of one that may have it.
func publish(temporary, final string) error {
	old, err := moveAside(final)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, final); err != nil {
		return fmt.Errorf("cannot rename %s: %w", temporary, durable.Bare(err))
	}
	return removeAll(old)
}

// build writes a whole checkpoint into a new folder and waits until it is on disk.
func build(dir string, source *Source, state model.State, record Record) error {
	inner := filepath.Join(dir, stateFolder)
	if err := makeFolder(inner); err != nil {
		return err
	}
	if err := buildModel(dir, source, state); err != nil {
		return err
	}
	if err := writeState(inner, state); err != nil {
		return err
	}
	record.FormatVersion = FormatVersion
	record.UpdateCount = state.UpdateCount()
	if err := writeJSON(filepath.Join(inner, recordFile), record); err != nil {
		return err
	}
	if err := errors.Join(durable.SyncDir(inner), durable.SyncDir(dir)); err != nil {
		return err
	}
	mark := func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "step %d\n", record.Step)
		return err
	}
	if err := durable.CreateSynced(filepath.Join(dir, marker), mark); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// writeModel writes the weights as model.safetensors, or as shards of at most limit bytes with an
// index where they are larger.
func writeModel(dir string, entries []weights.Entry, limit int64) error {
	shards, total := split(entries, limit)
	if len(shards) == 1 {
		return weights.WriteFile(filepath.Join(dir, weights.SingleFile), shards[0])
	}
	places := map[string]string{}
	for k, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", k+1, len(shards))
		if err := weights.WriteFile(filepath.Join(dir, name), shard); err != nil {
			return err
		}
		for _, entry := range shard {
			places[entry.Name] = name
		}
	}
	index := map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": places}
	return writeJSON(filepath.Join(dir, weights.IndexFile), index)
}

// split cuts a list of tensors into shards of at most limit bytes, and adds their bytes up.
func split(entries []weights.Entry, limit int64) (shards [][]weights.Entry, total int64) {
	var shard []weights.Entry
	var filled int64
	for _, entry := range entries {
		bytes := weights.Bytes(entry.DType, entry.Shape)
		if len(shard) > 0 && filled+bytes > limit {
			shards = append(shards, shard)
			shard, filled = nil, 0
		}
		shard = append(shard, entry)
		filled += bytes
		total += bytes
	}
	return append(shards, shard), total
}

// writeState writes master weights and moments as float32, one file for each kind.
func writeState(dir string, state model.State) error {
	for _, kind := range kinds {
		if err := weights.WriteFile(stateFile(dir, kind), stateEntries(state, kind, "")); err != nil {
			return err
		}
	}
	return nil
}

// stateEntries lists the tensors of what is trained, as float32, with a prefix to their names.
func stateEntries(state model.State, kind model.TensorKind, prefix string) []weights.Entry {
	var entries []weights.Entry
	for _, parameter := range state.Parameters() {
		entries = append(entries, weights.Entry{
			Name: prefix + parameter.Name, DType: weights.F32, Shape: parameter.Shape,
			Data: func() ([]byte, error) { return readFinite(state, kind, parameter.Name, weights.F32) },
		})
	}
	return entries
}

func stateFile(dir string, kind model.TensorKind) string {
	return filepath.Join(dir, string(kind)+".safetensors")
}

// readFinite reads a tensor of the state and encodes it as dtype; a value that is not finite is an
// error.
func readFinite(state model.State, kind model.TensorKind, name, dtype string) ([]byte, error) {
	values, err := state.ReadFloat32(kind, name)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s of the model: %w", kind, err)
	}
	if err := checkFinite(kind, values); err != nil {
		return nil, err
	}
	return weights.EncodeFloat32(dtype, values)
}

// checkFinite also refuses second moments below 0, of which AdamW takes the root.
func checkFinite(kind model.TensorKind, values []float32) error {
	for k, value := range values {
		switch {
		case !weights.Finite(value):
			return fmt.Errorf("element %d of %s is %v, allowed are finite numbers", k, kind, value)
		case kind == model.SecondMoment && value < 0:
			return fmt.Errorf("element %d of %s is %v, allowed are numbers from 0", k, kind, value)
		}
	}
	return nil
}

// writeJSON writes a value as indented JSON, '<', '>' and '&' as they are.
func writeJSON(path string, value any) error {
	return durable.CreateSynced(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	})
}

// removeUnfinished removes what a process that died left behind.
func removeUnfinished(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("cannot read folder %s: %w", root, durable.Bare(err))
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), durable.TempSuffix) {
			continue
		}
		if err := removeAll(filepath.Join(root, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
