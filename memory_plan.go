package main

import (
	"fmt"

	"github.com/mempo-train/mempo-train/model"
)

// load is what a step asks of the memory, beside the weights.
type load struct {
	rows             int  // sequences generated at the same time
	trajectoryTokens int  // of the longest trajectory, prompt included
	cacheTokens      int  // bound of the cache of generation; 0 is none
	microBatchTokens int  // of the largest micro-batch
	severalBatches   bool // a mini-batch is cut into several micro-batches
	elementBytes     int  // of a number in the compute dtype
	onGPU            bool
	withReference    bool
	checkpointing    string // model.activation_checkpointing
	optimizerOnHost  bool   // model.optimizer_offload
	adapters         model.Adapters
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
	updatePeak                   int64        // of updating
	keptBack                     float64      // share that the allocator holds beyond what is asked of it
	host                         []memoryItem // beside the program, in the memory of a machine whose device is a GPU
}

// planMemory estimates the memory of a run from the tensors that csrc makes. Small ones are not in it.
func planMemory(a model.Architecture, l load) memoryPlan {
	trained := elementCount(a.Trained(l.adapters))
	plan := memoryPlan{keptBack: 0.05} // of the C library's, as it was measured
	if l.onGPU {
		plan.keptBack = 0.1
	}
	plan.always, plan.host = weightItems(a, l)
	buffers := hostBuffers(a, l)
	if l.optimizerOnHost && l.onGPU {
		plan.host = append(plan.host, buffers)
		buffers.bytes = 0
	}
	if l.withReference && l.adapters.Rank == 0 { // the reference of adapters is the model without them
		plan.always = append(plan.always, memoryItem{"reference model", parameterCount(a) * int64(l.elementBytes)})
	}
	plan.generating = generationItems(a, l)
	activations, logits := activationBytes(a, l), logitBytes(a, l)
	if !l.onGPU && l.elementBytes == 4 {
		// MKL multiplies a copy of its operand, of which this is the largest, and keeps the memory.
		plan.always = append(plan.always, memoryItem{"copy of logits in MKL", logits})
	}
	plan.updating = []memoryItem{
		{"gradients, float32", 4 * trained},
		{fmt.Sprintf("activations of a micro-batch of %d tokens", l.microBatchTokens), activations},
		{"logits of one piece of it", logits},
	}
	if buffers.bytes > 0 {
		plan.updating = append(plan.updating, buffers)
	}
	// Going backwards, activations give way to gradients, of which the head's comes first. Behind the first micro-batch the
	// sums of all gradients are there throughout.
	sums := 4 * int64(a.VocabSize) * int64(a.HiddenSize)
	if l.severalBatches || l.adapters.Rank > 0 {
		sums = 4 * trained
	}
	plan.updatePeak = max(sums+activations+logits, 4*trained+buffers.bytes)
	return plan
}

// weightItems are the weights of the model that is trained in all their forms, and the optimiser's moments: those on the
// device and, beside a GPU, those in the machine's memory.
func weightItems(a model.Architecture, l load) (device, host []memoryItem) {
	element := int64(l.elementBytes)
	device = []memoryItem{{"weights", parameterCount(a) * element}}
	trained, masters := elementCount(a.Trained(l.adapters)), "float32 master weights"
	if l.adapters.Rank > 0 {
		device, masters = append(device, memoryItem{"adapters", trained * element}), "adapters in float32"
	}
	var optimizer []memoryItem
	if l.elementBytes < 4 || l.optimizerOnHost { // else the weights are their own masters
		optimizer = append(optimizer, memoryItem{masters, 4 * trained})
	}
	optimizer = append(optimizer, memoryItem{"moments of AdamW, float32", 8 * trained})
	if l.optimizerOnHost && l.onGPU {
		return device, optimizer
	}
	return append(device, optimizer...), nil
}

// hostBuffers are what gradients and weights go through on their way to and from an optimiser on the host: two pieces of
// either, of at most 1 << 24 numbers (csrc/optimizer.h).
func hostBuffers(a model.Architecture, l load) memoryItem {
	item := memoryItem{name: "buffers on the way to and from AdamW"}
	if l.optimizerOnHost {
		var longest int64
		for _, p := range a.Trained(l.adapters) {
			longest = max(longest, elementCount([]model.Parameter{p}))
		}
		item.bytes = 2 * int64(4+l.elementBytes) * min(longest, 1<<24)
	}
	return item
}

// generationItems are what a rollout, with the scoring that follows it, holds beside the weights.
func generationItems(a model.Architecture, l load) []memoryItem {
	name, tokens := fmt.Sprintf("keys and values of %d rows of up to %d tokens", l.rows, l.trajectoryTokens), product(int64(l.rows), cacheTokens(l.trajectoryTokens))
	if bound := cacheTokens(l.cacheTokens); bound > 0 && bound < tokens {
		name, tokens = fmt.Sprintf("keys and values of %d tokens at most", bound), bound
	}
	items := []memoryItem{{name, product(tokens, int64(2*a.Layers*a.KVHeads*a.HeadDim), int64(l.elementBytes))}}
	if packed := packedBytes(a, l); packed > 0 {
		items = append(items, memoryItem{"weights packed for decoding", packed})
	}
	// Scores are of what the rollout's keys and values are still there of.
	return append(items, memoryItem{fmt.Sprintf("scoring of %d tokens at a time", l.microBatchTokens), forwardBytes(a, l) + logitBytes(a, l)})
}

// forwardBytes is what one layer holds while tokens go through it that no update will ask for: its input and the sum with what
// attention gave, queries, keys and values, the mixed values, the MLP's gates and what comes of them.
func forwardBytes(a model.Architecture, l load) int64 {
	width := 3*a.HiddenSize + 2*(a.Heads+a.KVHeads)*a.HeadDim + 3*a.IntermediateSize
	return product(int64(l.microBatchTokens), int64(l.elementBytes), int64(width))
}

// peak is the most that is held at a time on the device.
func (p memoryPlan) peak() int64 {
	return int64((1 + p.keptBack) * float64(total(p.always)+max(total(p.generating), p.updatePeak)))
}

func total(items []memoryItem) int64 {
	var sum int64
	for _, item := range items {
		sum += item.bytes
	}
	return sum
}

// parameterCount counts weights; tied ones count once.
func parameterCount(a model.Architecture) int64 { return elementCount(a.Parameters()) }

func elementCount(parameters []model.Parameter) int64 {
	var count int64
	for _, p := range parameters {
		count = min(count+product(p.Shape...), beyond)
	}
	return count
}

// beyond is more than any machine has, and little enough for a plan's sums not to overflow.
const beyond = 1 << 54

// product multiplies counts; from beyond on it says no more than that.
func product(counts ...int64) int64 {
	result := int64(1)
	for _, count := range counts {
		if count > 0 && result > beyond/count {
			return beyond
		}
		result *= count
	}
	return result
}

// pageTokens is the size of a page of csrc's key/value cache.
const pageTokens = 64

// cacheTokens is what the pages have room for that hold so many tokens.
func cacheTokens(tokens int) int64 { return int64((tokens + pageTokens - 1) / pageTokens * pageTokens) }

// packedBytes is what csrc's copies of the matrices for decoding take: there are some on a CPU in float32, for models that
// are neither small nor large.
func packedBytes(a model.Architecture, l load) int64 {
	matrices := 4 * parameterCount(a)
	if !a.TiedEmbeddings {
		matrices -= 4 * int64(a.VocabSize) * int64(a.HiddenSize)
	}
	if l.onGPU || l.elementBytes != 4 || matrices < 64<<20 || matrices > 4<<30 {
		return 0
	}
	return matrices
}

// activationBytes is what an update keeps of every token of a micro-batch: in each layer its input and the sum with what
// attention gave (twice the hidden size), queries, keys and values, the mixed values, and the MLP's gates; and, while one
// layer goes backward, gradients of the widest of these and what is computed anew.
func activationBytes(a model.Architecture, l load) int64 {
	hidden, query, keyValue, gates := a.HiddenSize, a.Heads*a.HeadDim, a.KVHeads*a.HeadDim, 2*a.IntermediateSize
	layer := 2*hidden + 2*query + 2*keyValue + gates
	if a.QKNorm {
		layer += query + keyValue
	}
	atWork := 3*hidden + 2*gates
	kept := layer
	switch l.checkpointing {
	case "mlp":
		kept, atWork = layer-gates, atWork+gates
	case "layer":
		kept, atWork = hidden, atWork+layer
	}
	return product(int64(l.microBatchTokens), int64(l.elementBytes), int64(kept*a.Layers+atWork))
}

// logitBytes is the float32 rows of logits that exist at a time. They are turned into their gradient in place, of which a
// narrow dtype has a copy.
func logitBytes(a model.Architecture, l load) int64 {
	elements, bytes := 1<<23, 4
	if l.onGPU {
		elements = 1 << 27
	}
	if l.elementBytes < bytes {
		bytes += l.elementBytes
	}
	rows := min(max(elements/a.VocabSize, 64), 4096, l.microBatchTokens)
	return int64(bytes) * int64(rows) * int64(a.VocabSize)
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
