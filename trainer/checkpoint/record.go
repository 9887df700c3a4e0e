// Package checkpoint saves a run so that it can go on bit by bit as if it had never stopped, and
// so that its model can be used elsewhere. A checkpoint is a folder RUNDIR/checkpoints/step_NNNNNN:
//
//	model.safetensors …   a HuggingFace model folder: the weights under the source model's tensor
//	                      names and data types, everything else byte for byte the source's
//	adapter/              where adapters are trained: these alone, in PEFT's format; the weights above
//	                      are those with the adapters added
//	trainer_state/        of what is trained: master.safetensors, exp_avg.safetensors, exp_avg_sq.safetensors (float32)
//	                      and record.json
//	complete              written last
//
// A folder is built under a name that ends in .tmp, synced to disk and renamed, so a process that
// dies leaves no folder that looks complete and is not. What is left under such a name is removed
// by the next Save. A run folder must have one writer (see package rundir).
package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// FormatVersion is the version of trainer_state that this program writes, and the newest that it
// reads.
const FormatVersion = 1

const (
	stateFolder = "trainer_state"
	recordFile  = "record.json"
	marker      = "complete"
)

// Record is everything a resumed run needs besides weights and moments.
type Record struct {
	FormatVersion int              `json:"format_version"` // set by Save
	Step          int64            `json:"step"`           // steps done
	UpdateCount   int64            `json:"update_count"`   // optimiser steps done; set by Save from the state
	Sampler       json.RawMessage  `json:"sampler"`        // cursor of the question sampler
	Counters      map[string]int64 `json:"counters"`       // running counts of the trainer, by its own names
	Best          *Best            `json:"best,omitempty"` // nil before the first evaluation
	Identity
	Config string `json:"config"` // the resolved config.toml
}

// Best is the best evaluation so far.
type Best struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Step   int64   `json:"step"` // whose checkpoint is kept
}

// Identity says what a run was started with. Hashes are hex SHA-256.
type Identity struct {
	Model         string `json:"model"` // folder, for messages only
	ModelHash     string `json:"model_hash"`
	TokenizerHash string `json:"tokenizer_hash"`
	DataHash      string `json:"data_hash"`
	Adapters      string `json:"adapters,omitempty"` // model.Adapters in words
}

// Check refuses to continue the checkpoint at path with a run of another model, tokenizer, training
// data or adapters; the usage fault names both.
func (r Record) Check(path string, run Identity) error {
	var problem error
	switch {
	case r.ModelHash != run.ModelHash:
		problem = fmt.Errorf("checkpoint %s belongs to model %s (weights %s), this run starts from model %s (weights %s)",
			path, r.Model, r.ModelHash, run.Model, run.ModelHash)
	case r.TokenizerHash != run.TokenizerHash:
		problem = fmt.Errorf("checkpoint %s was made with tokenizer %s, this run has tokenizer %s", path, r.TokenizerHash, run.TokenizerHash)
	case r.DataHash != run.DataHash:
		problem = fmt.Errorf("checkpoint %s was made with training data %s, this run has training data %s", path, r.DataHash, run.DataHash)
	case r.Adapters != run.Adapters:
		problem = fmt.Errorf("checkpoint %s has %s, this run has %s", path, cmp.Or(r.Adapters, noAdapters), cmp.Or(run.Adapters, noAdapters))
	}
	return fault.Usage(problem)
}

const noAdapters = "no adapters"

// mostUpdates is more than anyone does.
const mostUpdates = 1_000_000_000_000

// ReadRecord reads the record of a complete checkpoint. A checkpoint that is not complete, or of a
// newer format, is a usage fault.
func ReadRecord(path string) (Record, error) {
	if _, err := os.Stat(filepath.Join(path, marker)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Record{}, fault.Usage(fmt.Errorf("%s is not a complete checkpoint: it has no file named %s", path, marker))
		}
		return Record{}, fmt.Errorf("cannot read checkpoint %s: %w", path, durable.Bare(err))
	}
	name := filepath.Join(path, stateFolder, recordFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return Record{}, fault.Usage(fmt.Errorf("cannot read checkpoint record %s: %w", name, durable.Bare(err)))
	}
	// The version alone first: a newer record may have other types under the same keys.
	var version struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Record{}, fault.Usage(fmt.Errorf("%s is not a checkpoint record: %w", name, err))
	}
	if version.FormatVersion < 1 || version.FormatVersion > FormatVersion {
		return Record{}, fault.Usage(fmt.Errorf("%s: format_version is %d, this program reads 1 to %d", name, version.FormatVersion, FormatVersion))
	}
	var record Record
	if err := json.Unmarshal(data, &record); err != nil {
		return Record{}, fault.Usage(fmt.Errorf("%s is not a checkpoint record: %w", name, err))
	}
	if record.Step < 0 || record.UpdateCount < 0 || record.UpdateCount > mostUpdates {
		return Record{}, fault.Usage(fmt.Errorf("%s: step is %d and update_count %d, allowed are 0 and more, and %d updates at most",
			name, record.Step, record.UpdateCount, mostUpdates))
	}
	if match := stepPattern.FindStringSubmatch(filepath.Base(path)); match != nil && stepName(record.Step) != match[0] {
		return Record{}, fault.Usage(fmt.Errorf("%s is of step %d, but the folder of the checkpoint is %s", name, record.Step, match[0]))
	}
	return record, nil
}
