package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// Projections are the linear maps of a layer that can have adapters.
var Projections = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// Adapters say which weights are trained in place of all of them (LoRA, Hu et al. 2021, arXiv:2106.09685): each target
// projection W [out, in] gives W x + Alpha / Rank · B (A x), with A [Rank, in] and B [out, Rank]. The zero value is none.
type Adapters struct {
	Rank    int // at least 1; 0 is no adapters
	Alpha   float64
	Targets []string // of Projections
}

// Scale is what B (A x) is multiplied by.
func (a Adapters) Scale() float64 { return a.Alpha / float64(a.Rank) }

// String says it in words, the same for the same adapters; "" for none.
func (a Adapters) String() string {
	if a.Rank == 0 {
		return ""
	}
	return fmt.Sprintf("adapters of rank %d and alpha %v on %s", a.Rank, a.Alpha, strings.Join(a.Sorted(), ", "))
}

// Sorted are the targets in the order of Projections, each once.
func (a Adapters) Sorted() []string {
	var found []string
	for _, name := range Projections {
		if slices.Contains(a.Targets, name) {
			found = append(found, name)
		}
	}
	return found
}

// The ends of adapters' names in place of ".weight", as PEFT has them.
const downEnding, upEnding = ".lora_A.weight", ".lora_B.weight"

// AdapterParameters lists A and B of every target in the order of Parameters: "model.layers.0.self_attn.q_proj.lora_A.weight"
// [rank, in], then its lora_B.weight [out, rank].
func (a Architecture) AdapterParameters(adapters Adapters) []Parameter {
	var parameters []Parameter
	rank := int64(adapters.Rank)
	for _, p := range a.Parameters() {
		stem, isWeight := strings.CutSuffix(p.Name, ".weight")
		if name := stem[strings.LastIndex(stem, ".")+1:]; isWeight && rank > 0 && slices.Contains(adapters.Targets, name) {
			parameters = append(parameters, Parameter{stem + downEnding, []int64{rank, p.Shape[1]}}, Parameter{stem + upEnding, []int64{p.Shape[0], rank}})
		}
	}
	return parameters
}

// Trained lists what is trained: the adapters, or every weight where there are none.
func (a Architecture) Trained(adapters Adapters) []Parameter {
	if adapters.Rank > 0 {
		return a.AdapterParameters(adapters)
	}
	return a.Parameters()
}

// adapterStream keeps these numbers apart from other uses of a run's seed.
const adapterStream = 0x6c6f7261

// Start gives the values that an adapter's training starts from, as PEFT's do: A is uniform in ±1/√in (He's rule for a slope
// of √5), B is zero, so that at first nothing is added. Each matrix has numbers of its own, drawn by the seed and its name.
func (p Parameter) Start(seed uint64) []float32 {
	values := make([]float32, p.Shape[0]*p.Shape[1])
	if strings.HasSuffix(p.Name, upEnding) {
		return values
	}
	hash := uint64(0xcbf29ce484222325) // FNV-1a
	for _, b := range []byte(p.Name) {
		hash = (hash ^ uint64(b)) * 0x100000001b3
	}
	random, bound := rand.New(rand.NewPCG(seed^adapterStream, hash)), 1/math.Sqrt(float64(p.Shape[1]))
	for k := range values {
		values[k] = float32((2*random.Float64() - 1) * bound)
	}
	return values
}
