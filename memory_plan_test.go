package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// smolLM2 is the shape of SmolLM2-135M.
var smolLM2 = model.Architecture{
	Name: model.Llama, VocabSize: 49152, HiddenSize: 576, IntermediateSize: 1536, Layers: 30, Heads: 9, KVHeads: 3, HeadDim: 64,
	MaxPositions: 8192, TiedEmbeddings: true,
}

func TestParametersAreCountedOnce(t *testing.T) {
	// 49152·576 + 30·(2·576 + 576·(576 + 192 + 192 + 576) + 3·576·1536) + 576
	if n := parameterCount(smolLM2); n != 134_515_008 {
		t.Errorf("%d parameters, want 134515008", n)
	}
	untied := smolLM2
	untied.TiedEmbeddings = false
	if n := parameterCount(untied); n != 134_515_008+49152*576 {
		t.Errorf("%d parameters with a head of its own, want %d", n, 134_515_008+49152*576)
	}
}

// Peaks of updates with trajectories of 352 tokens, float32 on a CPU without a reference, as the
// resident set showed them; some 150 MiB are the program and libtorch.
func TestEstimateIsNearWhatWasMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		load     load
		measured int64 // MiB
	}{
		"one trajectory":            {load{microBatchTokens: 352}, 2433},
		"two in one micro-batch":    {load{microBatchTokens: 704}, 2483},
		"four in two micro-batches": {load{microBatchTokens: 704, severalBatches: true}, 2978},
		"two, MLPs anew":            {load{microBatchTokens: 704, checkpointing: "mlp"}, 2527},
		"two, whole layers anew":    {load{microBatchTokens: 704, checkpointing: "layer"}, 2412},
	} {
		c.load.rows, c.load.trajectoryTokens, c.load.elementBytes = 2, 352, 4
		plan := planMemory(smolLM2, c.load)
		if ratio := float64(plan.peak()) / float64((c.measured-150)<<20); ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%s: the estimate is %s, %.2f of what was measured", name, inBytes(plan.peak()), ratio)
		}
	}
}

func TestWhatNeedsMoreMemory(t *testing.T) {
	base := load{rows: 8, trajectoryTokens: 2000, microBatchTokens: 4000, elementBytes: 4}
	peak := func(change func(*load)) int64 {
		l := base
		change(&l)
		return planMemory(smolLM2, l).peak()
	}
	usual := peak(func(*load) {})
	for name, more := range map[string]func(*load){
		"a reference":                      func(l *load) { l.withReference = true },
		"a longer micro-batch":             func(l *load) { l.microBatchTokens *= 2 },
		"several micro-batches":            func(l *load) { l.severalBatches = true },
		"so many rows that caches decide":  func(l *load) { l.rows = 256 },
		"so long trajectories, rows alike": func(l *load) { l.rows, l.trajectoryTokens = 64, 8000 },
	} {
		if got := peak(more); got <= usual {
			t.Errorf("%s: %s, no more than %s", name, inBytes(got), inBytes(usual))
		}
	}
	for name, less := range map[string]func(*load){
		"MLPs computed anew":    func(l *load) { l.checkpointing = "mlp" },
		"layers computed anew":  func(l *load) { l.checkpointing = "layer" },
		"a shorter micro-batch": func(l *load) { l.microBatchTokens /= 2 },
		"narrow numbers":        func(l *load) { l.elementBytes = 2 },
		"adapters":              func(l *load) { l.adapters = rankOf16 },
	} {
		if got := peak(less); got >= usual {
			t.Errorf("%s: %s, no less than %s", name, inBytes(got), inBytes(usual))
		}
	}
}

var rankOf16 = model.Adapters{Rank: 16, Alpha: 32, Targets: model.Projections}

// Adapters of rank 16 on all projections of SmolLM2 are 30·16·(2·(576 + 576) + 2·(576 + 192) + 3·(576 + 1536)) numbers,
// 3.6 % of the model's; moments and gradients are theirs alone, and the reference is the model without them.
func TestMemoryOfAdapters(t *testing.T) {
	const trained = 30 * 16 * (2*(576+576) + 2*(576+192) + 3*(576+1536))
	bytes := func(items []memoryItem, name string) int64 {
		for _, item := range items {
			if strings.HasPrefix(item.name, name) {
				return item.bytes
			}
		}
		return 0
	}
	for elementBytes, masters := range map[int]int64{2: 4 * trained, 4: 0} {
		l := load{rows: 8, trajectoryTokens: 2000, microBatchTokens: 4000, elementBytes: elementBytes, adapters: rankOf16}
		plan := planMemory(smolLM2, l)
		for name, want := range map[string]int64{
			"weights": 134_515_008 * int64(elementBytes), "adapters": trained * int64(elementBytes), "adapters in float32": masters,
			"moments": 8 * trained, "float32 master weights": 0, "reference": 0,
		} {
			if got := bytes(plan.always, name); got != want {
				t.Errorf("%d bytes a number: %s take %d bytes, want %d", elementBytes, name, got, want)
			}
		}
		if got := bytes(plan.updating, "gradients"); got != 4*trained {
			t.Errorf("gradients take %d bytes", got)
		}
		l.withReference = true
		if planMemory(smolLM2, l).peak() != plan.peak() {
			t.Error("a reference takes memory")
		}
	}
}

func TestABudgetOfTheCacheBoundsTheEstimate(t *testing.T) {
	cache := func(bound int) int64 {
		return planMemory(smolLM2, load{rows: 8, trajectoryTokens: 2000, cacheTokens: bound, elementBytes: 4}).generating[0].bytes
	}
	free := cache(0) // 8 rows of 32 pages
	if half := cache(128 * 64); 2*half != free || cache(128*64-63) != half || cache(1<<20) != free {
		t.Errorf("%d bytes under half of the tokens, %d without a bound", half, free)
	}
}

func TestCachesComeInPages(t *testing.T) {
	for tokens, want := range map[int]int64{1: 64, 64: 64, 65: 128, 1200: 1216} {
		if got := cacheTokens(tokens); got != want {
			t.Errorf("%d tokens: room for %d, want %d", tokens, got, want)
		}
	}
}

func TestWeightsArePackedOnACPU(t *testing.T) {
	small := smolLM2
	small.Layers, small.VocabSize = 1, 1000
	for name, c := range map[string]struct {
		architecture model.Architecture
		load         load
		packed       bool
	}{
		"float32 on a CPU": {smolLM2, load{elementBytes: 4}, true},
		"bfloat16":         {smolLM2, load{elementBytes: 2}, false},
		"on a GPU":         {smolLM2, load{elementBytes: 4, onGPU: true}, false},
		"a small model":    {small, load{elementBytes: 4}, false},
	} {
		if bytes := packedBytes(c.architecture, c.load); (bytes > 0) != c.packed {
			t.Errorf("%s: %s of packed weights", name, inBytes(bytes))
		}
	}
}

func TestInBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0.00 MiB", 1 << 19: "0.50 MiB", 10 << 20: "10 MiB", 1536 << 20: "1.50 GiB"} {
		if got := inBytes(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}

// The largest numbers that a config and a model folder may hold give sizes beyond every machine, never ones below 0.
func TestNoSizeOverflows(t *testing.T) {
	flat := model.Architecture{Name: model.Qwen2, VocabSize: 1 << 31, HiddenSize: 2, IntermediateSize: 1 << 31, Layers: 4096, Heads: 1, KVHeads: 1, HeadDim: 2}
	for _, a := range []model.Architecture{smolLM2, flat} {
		for _, adapters := range []model.Adapters{{}, {Rank: 65536, Alpha: 1, Targets: model.Projections}} {
			l := load{
				rows: 1e10, trajectoryTokens: 1<<31 - 1, microBatchTokens: int(product(1e10, 1<<31-1)), elementBytes: 4,
				withReference: true, adapters: adapters, optimizerOnHost: true, severalBatches: true,
			}
			m := planMemory(a, l)
			for _, item := range slices.Concat(m.always, m.generating, m.updating) {
				if item.bytes < 0 || item.bytes > m.peak() {
					t.Errorf("%s: %s is %d bytes of %d", a.Name, item.name, item.bytes, m.peak())
				}
			}
			if m.peak() < beyond {
				t.Errorf("%s: the peak is %d bytes", a.Name, m.peak())
			}
		}
	}
}
