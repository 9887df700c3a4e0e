package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// someTurns is a random mixture of everything a model may write.
func someTurns(k SeedKey) string {
	rng := rand.New(rand.NewPCG(k.Seed(), 2))
	pick := func(texts ...string) string { return texts[rng.IntN(len(texts))] }
	text := pick("<mem>hello</mem>", "<mem>東</mem>", "<mem>", "", "<mem><search>x</search></mem>\n")
	text += pick("<think>ok</think>", "<think><answer>x</answer></think>", "", "<think>"+strings.Repeat("x", rng.IntN(40)))
	return text + pick("<search>he</search>", "<search>llo</search>", "<search>q q</search>\n", "<search></search>", "<access>u</access>",
		"<answer>hello</answer>", "<search", "</search>", endOfTurnT, "<|eos|>")
}

// Whatever is in the cache of a row when it is given up must be the beginning of its trajectory:
// the model was conditioned on what is trained, and on nothing else.
func TestCachesHoldTheTrajectories(t *testing.T) {
	o := toyOptions(4)
	o.BatchTokens = 5
	drawn := questions(3)
	p := newFakePolicy(t, o, drawn, someTurns)
	groups, stats := run(t, p, o, drawn, searchTools(echo))
	var full []string
	forwarded := 0
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			full = append(full, fmt.Sprint(trajectory.FullIDs()))
		}
	}
	for _, ids := range p.past {
		forwarded += len(ids)
		text := strings.TrimSuffix(fmt.Sprint(ids), "]")
		if !slices.ContainsFunc(full, func(f string) bool { return strings.HasPrefix(f, text) }) {
			t.Errorf("a row held %v, which no trajectory begins with", ids)
		}
	}
	shared := 0
	for _, g := range groups {
		shared += o.GroupSize * (len(g.Trajectories[0].PromptIDs) - 1)
	}
	prefill := 0
	for _, in := range slices.Concat(p.batches...) {
		if len(in.IDs) > 1 || !in.Sample {
			prefill += len(in.IDs)
		}
	}
	if stats.PrefillTokens != prefill || prefill >= forwarded {
		t.Errorf("%d prefill tokens, the policy saw %d", stats.PrefillTokens, prefill)
	}
	if stats.ForwardTokens != forwarded-shared {
		t.Errorf("%d tokens went through the model, rows held %d of which %d are shared", stats.ForwardTokens, forwarded, shared)
	}
}

// The properties of every trajectory, over random policies.
func TestTrajectoriesOfRandomPolicies(t *testing.T) {
	stops := map[StopReason]int{}
	for round := range 100 {
		rng := rand.New(rand.NewPCG(uint64(round), 3))
		o := toyOptions(1 + rng.IntN(5))
		o.Seed = uint64(round)
		o.Schedule = []Schedule{Fixed, Eager}[rng.IntN(2)]
		o.Context = []Context{Full, Limited}[round%2]
		o.BatchTokens = 1 + rng.IntN(40)
		o.MaxRows = []int{0, 1, 3, 7}[rng.IntN(4)]
		o.MaxTurns = 1 + rng.IntN(6)
		o.MaxTurnTokens = 20 + rng.IntN(100)
		o.MaxResponseTokens = 60 + rng.IntN(600)
		o.ContextLength = 100 + rng.IntN(600)
		o.ToolResultTokens = 2 + rng.IntN(30)
		o.MemoryTokens = []int{0, 3, 8}[rng.IntN(3)]
		o.Prefill = []string{"", "<mem>"}[rng.IntN(2)]
		o.CorrectNoAction = rng.IntN(2) == 0
		system := strings.Repeat("s", rng.IntN(60))
		v, _ := o.Vocabulary.(*toyVocabulary)
		o.Format = toyFormat{v, system}
		drawn := questions(1 + rng.IntN(4))
		p := newFakePolicy(t, o, drawn, someTurns)
		groups, _ := run(t, p, o, drawn, searchTools(echo))
		for _, g := range groups {
			for _, trajectory := range g.Trajectories {
				stops[trajectory.Stop]++
				checkTrajectory(t, o, g, trajectory)
			}
		}
		if o.MaxRows > 0 && (p.busiest > o.MaxRows || p.idlest > o.MaxRows) {
			t.Errorf("%d members in a pass, at most %d are allowed; %d prompts that nobody runs behind", p.busiest, o.MaxRows, p.idlest)
		}
		if most := max(o.BatchTokens, o.GroupSize*len(drawn)); p.tokens > most {
			t.Errorf("%d tokens in a pass, at most %d are allowed", p.tokens, most)
		}
	}
	for _, reason := range []StopReason{Answered, MaxTurns, MaxResponse, ContextFull, NoAction} {
		if stops[reason] == 0 {
			t.Errorf("no trajectory stopped by %s: %v", reason, stops)
		}
	}
}

// checkTrajectory holds a trajectory against the seeds it was sampled with.
func checkTrajectory(t *testing.T, o Options, g *Group, got *Trajectory) {
	t.Helper()
	v, _ := o.Vocabulary.(*toyVocabulary)
	if want, _ := o.Format.Prompt(g.Question.Text); !slices.Equal(got.PromptIDs, want) {
		t.Errorf("prompt %q", v.decode(got.PromptIDs))
	}
	if o.Context == Limited {
		checkContexts(t, o, got)
	}
	if room := o.ContextLength - len(v.EncodePlain("Ada")); got.PeakContext() > room || len(got.ResponseIDs) > o.MaxResponseTokens || len(got.Turns) > o.MaxTurns {
		t.Errorf("%d tokens (room %d), %d of response, %d turns", got.PeakContext(), room, len(got.ResponseIDs), len(got.Turns))
	}
	covered := make([]bool, len(got.ResponseIDs))
	prefill := len(v.EncodePlain(o.Prefill))
	for k, turn := range got.Turns {
		ids := got.ResponseIDs[turn.Tokens.Start:turn.Tokens.End]
		if ended := turn.Stop == EndOfSequence; ended {
			ids = ids[:len(ids)-1]
		}
		key := SeedKey{o.Seed, o.Step, g.Question.ID, g.Draw, got.Member, k, 0}
		if text := v.decode(ids); text != turn.Text || !strings.HasPrefix(o.Prefill+someTurns(key)+strings.Repeat(".", o.MaxTurnTokens), text) {
			t.Errorf("turn %d holds %q, its text is %q, the model said %q", k, text, turn.Text, someTurns(key))
		}
		for p := turn.Tokens.Start + prefill; p < turn.Tokens.End; p++ {
			covered[p] = true
			key.Position = p - turn.Tokens.Start - prefill
			if got.LogProbs[p] != fakeLogProb(key.Seed()) {
				t.Errorf("turn %d: log-prob %v at its token %d", k, got.LogProbs[p], key.Position)
			}
		}
		if turn.HasMemory {
			if text := v.decode(turn.MemoryIDs); !strings.HasPrefix(text, "<mem>") || !strings.HasSuffix(text, "</mem>") {
				t.Errorf("memory %q", text)
			}
		}
	}
	if !slices.Equal(covered, got.ResponseMask) && !got.Stop.Failed() {
		t.Errorf("mask %v, sampled %v", got.ResponseMask, covered)
	}
}
