package engine

import "strings"

// initialDeviation is that of the weights of a new model: initializer_range of Qwen2, Qwen3 and Llama.
const initialDeviation = 0.02

// fillRandomly gives a model the weights of one that has learned nothing, drawn on its device: norms are 1, biases 0, all else
// is normally distributed. They are the same for the same seed on the same kind of device.
func (m *Model) fillRandomly(seed uint64) error {
	for k, p := range m.Architecture.Parameters() {
		mean, deviation := 0.0, initialDeviation
		switch {
		case strings.HasSuffix(p.Name, "norm.weight"):
			mean, deviation = 1, 0
		case strings.HasSuffix(p.Name, ".bias"):
			deviation = 0
		}
		if err := modelFill(m.handle, p.Name, mean, deviation, seed<<16+uint64(k)); err != nil {
			return err
		}
	}
	return nil
}
