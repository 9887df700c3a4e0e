package model

import "math"

// The rotary embeddings that are understood; others are refused by name.
const (
	RopeDefault = "default"
	RopeLinear  = "linear"
	RopeLlama3  = "llama3"
)

// Rope says by which angles rotary position embedding turns a pair of dimensions. Factor belongs
// to "linear" and "llama3", the fields below it to "llama3".
type Rope struct {
	Type                          string // default, linear or llama3
	Theta                         float64
	Factor                        float64
	LowFreqFactor, HighFreqFactor float64
	OriginalMaxPositions          int
}

// InverseFrequencies returns headDim/2 angles in radians per position: dimensions k and
// k+headDim/2 of a head at position p turn by p times angle k. They are computed in float64 and
// rounded once.
//
//	default: theta^(−2k/headDim)                  (RoFormer, arXiv:2104.09864, section 3.2.2)
//	linear:  default / factor                     (position interpolation, arXiv:2306.15595)
//	llama3:  default where the wavelength 2π/angle is below original/high_freq_factor, default /
//	         factor where it is above original/low_freq_factor, in between a blend of the two that
//	         is linear in original/wavelength     (Llama 3.1)
//
// They are those of transformers' modeling_rope_utils.py: _compute_default_rope_parameters,
// _compute_linear_scaling_rope_parameters and _compute_llama3_parameters, which work in float32.
func (r Rope) InverseFrequencies(headDim int) []float32 {
	angles := make([]float32, headDim/2)
	for k := range angles {
		angle := math.Pow(r.Theta, -2*float64(k)/float64(headDim))
		switch r.Type {
		case RopeLinear:
			angle /= r.Factor
		case RopeLlama3:
			angle = r.llama3(angle)
		}
		angles[k] = float32(angle)
	}
	return angles
}

// llama3 scales one angle by its wavelength.
func (r Rope) llama3(angle float64) float64 {
	turns := float64(r.OriginalMaxPositions) * angle / (2 * math.Pi) // full turns within the original context
	switch {
	case turns > r.HighFreqFactor:
		return angle
	case turns < r.LowFreqFactor:
		return angle / r.Factor
	}
	kept := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return (1-kept)*angle/r.Factor + kept*angle
}
