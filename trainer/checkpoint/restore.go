package checkpoint

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// Restore reads a complete checkpoint into a model that is to go on training: master weights,
// moments and the update count. run says what the continuing run starts from: a checkpoint of
// another model, tokenizer, training data or other adapters is a usage fault that names both, and so is a
// checkpoint whose tensors do not fit the model or are not finite. After an error the state may
// hold a part of the checkpoint.
func Restore(path string, state model.State, run Identity) (Record, error) {
	record, err := ReadRecord(path)
	if err != nil {
		return Record{}, err
	}
	if err := record.Check(path, run); err != nil {
		return Record{}, err
	}
	for _, kind := range kinds {
		if err := restoreKind(stateFile(filepath.Join(path, stateFolder), kind), kind, state); err != nil {
			return Record{}, err
		}
	}
	state.SetUpdateCount(record.UpdateCount)
	return record, nil
}

// restoreKind reads one file of trainer_state.
func restoreKind(path string, kind model.TensorKind, state model.State) error {
	file, err := weights.OpenFile(path)
	if err != nil {
		return fault.Usage(err)
	}
	defer file.Close()
	parameters := state.Parameters()
	if err := checkTensors(file, parameters); err != nil {
		return fault.Usage(fmt.Errorf("checkpoint file %s: %w", path, err))
	}
	for _, parameter := range parameters {
		tensor, _ := file.Tensor(parameter.Name)
		values, err := tensor.Float32()
		if err == nil {
			err = checkFinite(kind, values)
		}
		if err != nil {
			return fault.Usage(fmt.Errorf("checkpoint file %s: tensor %q: %w", path, parameter.Name, err))
		}
		if err := state.WriteFloat32(kind, parameter.Name, values); err != nil {
			return fmt.Errorf("cannot restore %s of tensor %q: %w", kind, parameter.Name, err)
		}
	}
	return nil
}

// checkTensors holds the tensors of a file against the parameters of the model.
func checkTensors(file *weights.File, parameters []model.Parameter) error {
	for _, parameter := range parameters {
		tensor, ok := file.Tensor(parameter.Name)
		switch {
		case !ok:
			return fmt.Errorf("tensor %q of the model is missing", parameter.Name)
		case !slices.Equal(tensor.Shape, parameter.Shape):
			return fmt.Errorf("tensor %q has shape %v, the model has %v", parameter.Name, tensor.Shape, parameter.Shape)
		case tensor.DType != weights.F32:
			return fmt.Errorf("tensor %q has data type %s, needed is F32", parameter.Name, tensor.DType)
		}
	}
	if len(file.Tensors()) != len(parameters) {
		return fmt.Errorf("%d tensors, the model has %d", len(file.Tensors()), len(parameters))
	}
	return nil
}
