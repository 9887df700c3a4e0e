package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/mempo-train/mempo-train/engine"
)

// showModel opens the device, but loads no weights onto it. The memory is planned also for a GPU that is not there.
func (p *plan) showModel() {
	a, device := p.showDevice(p.config.Model, p.config.LoRA)
	name := p.config.Model.Device
	if device != nil {
		defer device.Close()
		name = device.Device()
	}
	planned := device != nil || strings.HasPrefix(name, "cuda")
	if !planned || a.Layers == 0 || p.longestPrompt == 0 {
		return // without prompts nothing is known of a step's size
	}
	l := p.load(name)
	m := planMemory(a, l)
	if !l.onGPU {
		usage, err := device.MemoryUsage()
		p.problem(err)
		m.always = append(m.always, memoryItem{"program, libraries and texts", usage.Current})
	}
	peak := memoryItem{fmt.Sprintf("what is there at the same time, and %.0f %% for the allocator", 100*m.keptBack), m.peak()}
	p.showMemory("memory of the device, estimated", m, peak, deviceMemory(device, l),
		"less optimizer.micro_batch_tokens or rollout.max_response_tokens, a lower bound rollout.kv_cache_tokens (0 is none), model.activation_checkpointing, model.optimizer_offload beside a GPU, or lora.rank above 0 need less")
	if len(m.host) > 0 {
		p.showMemory("memory of the machine for AdamW, estimated", memoryPlan{always: m.host}, memoryItem{"all of it", total(m.host)}, availableMemory(),
			"without model.optimizer_offload it lies on the device, and lora.rank above 0 needs less")
	}
}

// deviceMemory is what is free on a device; 0 where it cannot be told.
func deviceMemory(device *engine.Runtime, l load) int64 {
	switch {
	case !l.onGPU:
		return availableMemory()
	case device == nil:
		return 0
	}
	return device.FreeMemory()
}

// load is what a step of the config asks of a device.
func (p *plan) load(device string) load {
	c := p.config
	onGPU := device != "cpu"
	l := load{
		rows: c.Rollout.QuestionsPerStep * c.Rollout.GroupSize, cacheTokens: c.Rollout.KVCacheTokens, elementBytes: elementBytes(computeDType(c.Model, device)),
		onGPU: onGPU, withReference: c.Loss.KLCoef != 0, checkpointing: c.Model.ActivationCheckpointing,
		adapters: adaptersOf(c.LoRA), optimizerOnHost: c.Model.OptimizerOffload == "cpu",
	}
	if p.texts != nil {
		l.trajectoryTokens = min(p.longestPrompt+p.longestResponse(), p.texts.rules.ContextLength)
	}
	minibatch := int(product(int64(c.Optimizer.QuestionsPerMinibatch), int64(c.Rollout.GroupSize), int64(l.trajectoryTokens)))
	l.microBatchTokens = min(max(c.Optimizer.MicroBatchTokens, l.trajectoryTokens), minibatch)
	l.severalBatches = l.microBatchTokens < minibatch
	return l
}

// longestResponse is what the limits leave to a trajectory behind its prompt.
func (p *plan) longestResponse() int {
	rules := p.texts.rules
	turn := len(rules.Vocabulary.EncodePlain(rules.Prefill)) + rules.MaxTurnTokens + rules.ToolResultTokens + len(rules.Format.Observation(nil, false))
	return min(rules.MaxResponseTokens, rules.MaxTurns*turn)
}

// showMemory compares a plan with the bytes that are free, of which 0 is not known, and advises where they are too few.
func (p *plan) showMemory(heading string, m memoryPlan, peak memoryItem, free int64, advice string) {
	p.heading(heading)
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		when  string
		items []memoryItem
	}{{"always", m.always}, {"generation", m.generating}, {"update", m.updating}} {
		for _, item := range part.items {
			fmt.Fprintf(table, "%s\t%s\t%s\n", part.when, item.name, inBytes(item.bytes))
		}
	}
	fmt.Fprintf(table, "peak\t%s\t%s\n", peak.name, inBytes(peak.bytes))
	p.problem(table.Flush())
	if free == 0 {
		return
	}
	p.line("free: %s", inBytes(free))
	if peak.bytes > free {
		p.line("warning: the estimate exceeds it; %s", advice)
	}
}
