package main

import (
	"fmt"

	"github.com/mempo-train/mempo-train/model"
)

// load is what a step asks of the memory, beside the weights.
type load struct {
	rows              int  // sequences generated at the same time
	promptTokens      int  // of the longest prompt
	trajectoryTokens  int  // of the longest trajectory, prompt included
	microBatchTokens  int  // of the largest micro-batch
	severalBatches    bool // a mini-batch is cut into several micro-batches
	elementBytes      int  // of a number in the compute dtype
	onGPU             bool
	withReference     bool
	recomputeInLayers bool // activation checkpointing
}

// memoryItem is a part of the memory, in bytes.
type memoryItem struct {
	name  string
	bytes int64
}

// memoryPlan lists what a training run keeps all the time and what it keeps while it generates and
// while it updates, which follow each other. The parts of an update are not all there at once.
type memoryPlan struct {
	always, generating, updating []memoryItem
	updatePeak                   int64 // of updating
}

// planMemory estimates the memory of a run from the tensors that csrc makes. Small ones are not in it.
func planMemory(a model.Architecture, l load) memoryPlan {
	parameters, head := parameterCount(a), int64(a.VocabSize)*int64(a.HiddenSize)
	element := int64(l.elementBytes)
	var plan memoryPlan
	plan.always = append(plan.always, memoryItem{"weights", parameters * element})
	if l.elementBytes < 4 {
		plan.always = append(plan.always, memoryItem{"float32 master weights", 4 * parameters})
	}
	plan.always = append(plan.always, memoryItem{"moments of AdamW, float32", 8 * parameters})
	if l.withReference {
		plan.always = append(plan.always, memoryItem{"reference model", parameters * element})
	}
	plan.generating = []memoryItem{{
		fmt.Sprintf("keys and values of %d rows of up to %d tokens", l.rows, l.trajectoryTokens),
		int64(l.rows) * cacheTokens(l.promptTokens, l.trajectoryTokens) * int64(2*a.Layers*a.KVHeads*a.HeadDim) * element,
	}}
	activations, logits := activationBytes(a, l), logitBytes(a, l)
	plan.updating = []memoryItem{
		{"gradients, float32", 4 * parameters},
		{fmt.Sprintf("activations of a micro-batch of %d tokens", l.microBatchTokens), activations},
		{"logits of one piece of it", logits},
	}
	// Going backwards, activations give way to gradients, of which the head's comes first. Those of a
	// second micro-batch lie beside the sum of the ones before.
	sum, fresh := 4*head, 4*(parameters-head)
	if l.severalBatches {
		sum, fresh = 4*parameters, element*(parameters-head)
	}
	plan.updatePeak = sum + max(activations+logits, fresh)
	return plan
}

// keptBack is the share of the memory that the allocator holds beyond what is asked of it.
const keptBack = 0.1

// peak is the most that is held at a time.
func (p memoryPlan) peak() int64 {
	return int64((1 + keptBack) * float64(total(p.always)+max(total(p.generating), p.updatePeak)))
}

func total(items []memoryItem) int64 {
	var sum int64
	for _, item := range items {
		sum += item.bytes
	}
	return sum
}

// parameterCount counts weights; tied ones count once.
func parameterCount(a model.Architecture) int64 {
	var count int64
	for _, p := range a.Parameters() {
		elements := int64(1)
		for _, length := range p.Shape {
			elements *= length
		}
		count += elements
	}
	return count
}

// cacheTokens is the capacity of a row's cache when it holds all its tokens: it begins with the
// prompt, at least 256, and doubles.
func cacheTokens(prompt, tokens int) int64 {
	capacity := int64(max(prompt, 256))
	for capacity < int64(tokens) {
		capacity *= 2
	}
	return capacity
}

// fused tells whether the kernels of csrc's CPU form run, which keep less than ATen's operations.
func (l load) fused() bool { return !l.onGPU && l.elementBytes == 4 }

// activationBytes is what the backward pass needs of every token: in each layer the input and the
// result of both norms (four times the hidden size), the stacked query, key and value, the turned
// query and key, the mixed values twice, and in the MLP gate, up and their product. Without the
// fused kernels there are the norms' results before their weights, and silu of the gate; in a
// narrow dtype the norms keep float32 copies too.
func activationBytes(a model.Architecture, l load) int64 {
	hidden, query, keyValue := a.HiddenSize, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	numbers := 4*hidden + 4*query + 3*keyValue + 3*a.IntermediateSize
	if !l.fused() {
		numbers += 2*hidden + a.IntermediateSize
	}
	layer := l.elementBytes * numbers
	if l.elementBytes < 4 {
		layer += 4 * 4 * hidden
	}
	perToken := layer * a.Layers
	if l.recomputeInLayers { // each layer's input, and everything of one layer
		perToken = l.elementBytes*a.HiddenSize*a.Layers + layer
	}
	return int64(l.microBatchTokens) * int64(perToken)
}

// logitBytes is the float32 rows of logits that exist at a time: on a CPU they are turned into
// their gradient in place, elsewhere it is a second matrix.
func logitBytes(a model.Architecture, l load) int64 {
	elements, matrices := 1<<23, 1
	if l.onGPU {
		elements = 1 << 27
	}
	if !l.fused() {
		matrices = 2
	}
	rows := min(max(elements/a.VocabSize, 64), 4096, l.microBatchTokens)
	return 4 * int64(matrices) * int64(rows) * int64(a.VocabSize)
}

// inBytes writes a size for people.
func inBytes(n int64) string {
	switch mebibytes := float64(n) / (1 << 20); {
	case mebibytes >= 1024:
		return fmt.Sprintf("%.2f GiB", mebibytes/1024)
	case mebibytes >= 10:
		return fmt.Sprintf("%.0f MiB", mebibytes)
	default:
		return fmt.Sprintf("%.2f MiB", mebibytes)
	}
}
