package world

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/mempo-train/mempo-train/model"
)

// Figures of the copying start.
const (
	embeddingStd  = 0.4  // large beside what layers add at first: a token's identity survives them
	finalNorm     = 0.1  // keeps the first logits small all the same
	copyGain      = 1.0  // of an output projection, beside the transpose of its value projection
	plainShare    = 0.1  // noise of a projection, beside its own deviation
	lookBackBias  = 5.0  // size of each turned pair of the biases that look back
	lookBackPairs = 8    // pairs of dimensions, of the fastest turns, that look back
	mlpStd        = 0.05 // of the feed-forward projections
	furthestBack  = 3    // tokens
)

// copyingStart sets weights from which copying is learnt soon: the first layer's heads look at the
// token one, two or three places back, those of later layers at places that hold what the present
// one holds, and what a head reads it writes on unchanged.
func copyingStart(a model.Architecture, tensors map[string][]float32, random *rand.Rand) {
	gaussian(tensors["model.embed_tokens.weight"], embeddingStd, random)
	fill(tensors["model.norm.weight"], finalNorm)
	for layer := range a.Layers {
		prefix := fmt.Sprintf("model.layers.%d.", layer)
		attention := func(name string) []float32 { return tensors[prefix+"self_attn."+name] }
		std := 1 / math.Sqrt(float64(a.HiddenSize))
		gaussian(attention("v_proj.weight"), std, random)
		writeWhatIsRead(a, attention("v_proj.weight"), attention("o_proj.weight"), std, random)
		if layer == 0 {
			lookBack(a, attention("q_proj.bias"), attention("k_proj.bias"))
		} else {
			gaussian(attention("k_proj.weight"), std, random)
			alike(a, attention("k_proj.weight"), attention("q_proj.weight"), std, random)
		}
		for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
			gaussian(tensors[prefix+"mlp."+name+".weight"], mlpStd, random)
		}
	}
}

// writeWhatIsRead sets the output projection, [hidden, heads × head size], near the transpose of
// the heads' value projections, each [head size, hidden].
func writeWhatIsRead(a model.Architecture, value, output []float32, std float64, random *rand.Rand) {
	width := a.Heads * a.HeadDim
	for row := range a.HiddenSize {
		for column := range width {
			head, dim := column/a.HeadDim, column%a.HeadDim
			from := (head*a.KVHeads/a.Heads*a.HeadDim + dim) * a.HiddenSize
			output[row*width+column] = float32(copyGain*float64(value[from+row]) + plainShare*std*random.NormFloat64())
		}
	}
}

// alike sets the query projection near the key projection.
func alike(a model.Architecture, key, query []float32, std float64, random *rand.Rand) {
	size := a.HeadDim * a.HiddenSize
	for head := range a.Heads {
		from := key[head*a.KVHeads/a.Heads*size:][:size]
		for k, value := range from {
			query[head*size+k] = value + float32(plainShare*std*random.NormFloat64())
		}
	}
}

// lookBack sets biases of queries and keys whose product, turned by the rotary embedding, is
// largest a fixed number of tokens back: 1, 2 or 3, head by head. Dimensions k and k + half of a
// head are a pair, turned by an angle per token.
func lookBack(a model.Architecture, query, key []float32) {
	angles := a.Rope.InverseFrequencies(a.HeadDim)
	half := a.HeadDim / 2
	for head := range a.KVHeads {
		back := float64(1 + head%furthestBack)
		for k := range min(lookBackPairs, half) {
			turn := back * float64(angles[k])
			at := head*a.HeadDim + k
			key[at] = float32(lookBackBias * math.Cos(turn))
			key[at+half] = float32(lookBackBias * math.Sin(turn))
		}
	}
	for head := range a.Heads {
		for k := range min(lookBackPairs, half) {
			query[head*a.HeadDim+k] = lookBackBias
		}
	}
}
