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
// while it updates, which follow each other.
type memoryPlan struct{ always, generating, updating []memoryItem }

// planMemory estimates the memory of a run from the tensors that csrc makes. Small ones and what an
// allocator keeps back are not in it.
func planMemory(a model.Architecture, l load) memoryPlan {
	parameters, embedding := parameterCount(a), int64(a.VocabSize)*int64(a.HiddenSize)
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
	gradients := 4 * parameters
	if l.severalBatches || l.elementBytes < 4 {
		gradients += element * (parameters - embedding) // of one micro-batch, before the sum takes them; the embedding's go there at once
	}
	plan.updating = []memoryItem{
		{"gradients", gradients},
		{fmt.Sprintf("activations of a micro-batch of %d tokens", l.microBatchTokens), activationBytes(a, l)},
		{"logits of one piece of it", logitBytes(a, l)},
	}
	return plan
}

// peak is the most that is kept at a time.
func (p memoryPlan) peak() int64 {
	return total(p.always) + max(total(p.generating), total(p.updating))
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

// activationBytes is what the backward pass needs of every token: in each layer the input and the
// results of both norms before and after their weights (six times the hidden size), the stacked
// query, key and value, the turned query and key, the mixed values twice, and in the MLP gate, up,
// silu and product. Where the compute dtype is narrow, both norms also keep float32 copies of input
// and result.
func activationBytes(a model.Architecture, l load) int64 {
	hidden, query, keyValue := a.HiddenSize, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim
	layer := l.elementBytes * (6*hidden + 4*query + 3*keyValue + 4*a.IntermediateSize)
	if l.elementBytes < 4 {
		layer += 4 * 4 * hidden
	}
	perToken := layer * a.Layers
	if l.recomputeInLayers { // each layer's input, and everything of one layer
		perToken = l.elementBytes*a.HiddenSize*a.Layers + layer
	}
	return int64(l.microBatchTokens) * int64(perToken)
}

// logitBytes is two float32 matrices of the rows of logits that exist at a time.
func logitBytes(a model.Architecture, l load) int64 {
	elements := 1 << 23
	if l.onGPU {
		elements = 1 << 27
	}
	rows := min(max(elements/a.VocabSize, 64), 4096, l.microBatchTokens)
	return 2 * 4 * int64(rows) * int64(a.VocabSize)
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
