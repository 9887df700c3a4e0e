package checkpoint

import (
	"path/filepath"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// The files of an adapter as PEFT, HuggingFace's library of adapters, reads and writes them.
const (
	adapterFolder     = "adapter"
	adapterConfigFile = "adapter_config.json"
	adapterFile       = "adapter_model.safetensors"
	// adapterPrefix stands in front of the model's own names: of PEFT's two modules around a model.
	adapterPrefix = "base_model.model."
)

// adapterConfig has the keys that PEFT needs to make the same adapters; what is not here is as it is
// in a plain adapter.
type adapterConfig struct {
	PeftType      string   `json:"peft_type"`
	TaskType      string   `json:"task_type"`
	BaseModel     string   `json:"base_model_name_or_path"`
	Rank          int      `json:"r"`
	Alpha         float64  `json:"lora_alpha"`
	Dropout       float64  `json:"lora_dropout"`
	Targets       []string `json:"target_modules"`
	Bias          string   `json:"bias"`
	FanInFanOut   bool     `json:"fan_in_fan_out"`
	InferenceMode bool     `json:"inference_mode"`
}

// writeAdapter writes the adapters of a state, float32, as a new folder. base is the model that they
// were trained on.
func writeAdapter(dir, base string, state model.State) error {
	if err := makeFolder(dir); err != nil {
		return err
	}
	adapters := state.Adapters()
	config := adapterConfig{
		PeftType: "LORA", TaskType: "CAUSAL_LM", BaseModel: base, Rank: adapters.Rank, Alpha: adapters.Alpha,
		Targets: adapters.Sorted(), Bias: "none", InferenceMode: true,
	}
	if err := writeJSON(filepath.Join(dir, adapterConfigFile), config); err != nil {
		return err
	}
	if err := weights.WriteFile(filepath.Join(dir, adapterFile), stateEntries(state, model.Master, adapterPrefix)); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}
