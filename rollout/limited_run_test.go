package rollout

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// checkContexts builds the contexts of a trajectory anew, from its turns alone.
func checkContexts(t *testing.T, o Options, got *Trajectory) {
	t.Helper()
	v, _ := o.Vocabulary.(*toyVocabulary)
	empty := v.ids("<mem>", "</mem", ">")
	memory, says := empty, false
	for k := 1; k < len(got.Turns); k++ {
		before, context := got.Turns[k-1], got.Turns[k].ContextIDs
		if now := before.HasMemory && v.decode(before.MemoryIDs) != "<mem></mem>"; before.HasMemory && (now || !says) {
			memory, says = before.MemoryIDs, now
		}
		segments := []tokenizer.Segment{{Text: o.Texts.Correct, Trusted: true}}
		action := ""
		if before.Action != "" {
			span := chat.ParseTurn(before.Text).ActionSpan
			action = before.Text[span.Start:span.End]
			inner := strings.TrimSuffix(strings.TrimPrefix(before.Result, chat.OpenInformation), chat.CloseInformation)
			segments = information{inner: inner}.segments()
		}
		if text := v.decode(before.ActionIDs); text != action {
			t.Errorf("the ids of the action read %q", text)
		}
		tail := slices.Concat(before.ActionIDs, o.Format.Observation(segments, false))
		begin, end := len(got.PromptIDs), len(context)-len(tail)
		if end < begin || !slices.Equal(context[:begin], got.PromptIDs) || !slices.Equal(context[end:], tail) {
			t.Errorf("turn %d sees\n%q, which does not end in\n%q", k+1, v.decode(context), v.decode(tail))
			continue
		}
		carried := context[begin:end]
		var wrong bool
		if o.MemoryTokens == 0 || len(memory) <= o.MemoryTokens {
			wrong = !slices.Equal(carried, memory)
		} else {
			kept, closed := strings.CutSuffix(v.decode(carried), closeMemory)
			wrong = !closed || len(carried) > max(o.MemoryTokens, len(empty)) || !strings.HasPrefix(v.decode(memory), kept) ||
				before.MemoryCut != (v.decode(carried) != v.decode(memory))
		}
		if wrong {
			t.Errorf("turn %d sees the memory %q of %q", k+1, v.decode(carried), v.decode(memory))
		}
		if room := o.ContextLength - len(v.EncodePlain("Ada")) - len(v.EncodePlain(o.Prefill)) - o.MaxTurnTokens; len(context) > room {
			t.Errorf("turn %d sees %d tokens, room is for %d", k+1, len(context), room)
		}
	}
	if len(got.Turns) > 0 && !slices.Equal(got.Turns[0].ContextIDs, got.PromptIDs) {
		t.Error("the first turn sees something other than the prompt")
	}
}

// Whatever is in the cache of a row when it is given up must be the beginning of what one turn saw
// and wrote.
func TestCachesHoldTheTurnsOfALimitedContext(t *testing.T) {
	o := toyOptions(4)
	o.Context, o.BatchTokens, o.CorrectNoAction = Limited, 7, true
	drawn := questions(3)
	p := newFakePolicy(t, o, drawn, someTurns)
	groups, stats := run(t, p, o, drawn, searchTools(echo))
	var sequences []string
	turns := 0
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			turns += len(trajectory.Turns)
			for k, turn := range trajectory.Turns {
				written := trajectory.ResponseIDs[turn.Tokens.Start:turn.Tokens.End]
				sequences = append(sequences, fmt.Sprint(slices.Concat(trajectory.ContextOf(k), written)))
			}
		}
	}
	if len(p.past) != turns+len(groups) || turns < 20 {
		t.Errorf("%d rows for %d turns and %d prompts", len(p.past), turns, len(groups))
	}
	forwarded := 0
	for _, ids := range p.past {
		forwarded += len(ids)
		text := strings.TrimSuffix(fmt.Sprint(ids), "]")
		if !slices.ContainsFunc(sequences, func(s string) bool { return strings.HasPrefix(s, text) }) {
			t.Errorf("a row held %v, which no turn begins with", ids)
		}
	}
	shared := 0
	for _, g := range groups {
		for _, trajectory := range g.Trajectories {
			shared += len(trajectory.Turns) * (len(trajectory.PromptIDs) - 1)
		}
	}
	if stats.ForwardTokens != forwarded-shared {
		t.Errorf("%d tokens went through the model, rows held %d of which %d are shared", stats.ForwardTokens, forwarded, shared)
	}
	if p.tokens > max(o.BatchTokens, 12) {
		t.Errorf("%d tokens in a forward pass", p.tokens)
	}
}

// Training and evaluation differ in sampling, schedule and size; what the turns see is the same.
func TestContextsDoNotDependOnSamplingOrBatches(t *testing.T) {
	drawn := questions(3)
	var first [][][]int32
	for round, change := range []func(*Options){
		func(*Options) {},
		func(o *Options) { o.Sampling = model.Sampling{} },
		func(o *Options) { o.BatchTokens, o.MaxRows = 3, 2 },
		func(o *Options) { o.Schedule = Eager },
	} {
		o := toyOptions(3)
		o.Context, o.CorrectNoAction = Limited, true
		change(&o)
		groups, _ := run(t, newFakePolicy(t, o, drawn, someTurns), o, drawn, searchTools(echo))
		var contexts [][][]int32
		for _, g := range groups {
			for _, trajectory := range g.Trajectories {
				var turns [][]int32
				for _, turn := range trajectory.Turns {
					turns = append(turns, turn.ContextIDs)
				}
				contexts = append(contexts, turns)
			}
		}
		if round == 0 {
			first = contexts
		} else if !reflect.DeepEqual(contexts, first) {
			t.Errorf("round %d: other contexts", round)
		}
	}
}

func TestTheFixedScheduleRepeatsInALimitedContext(t *testing.T) {
	drawn := questions(3)
	var first string
	for round := range 4 {
		o := toyOptions(4)
		o.Context, o.MaxRows, o.BatchTokens = Limited, 7, 20
		tools := searchTools(echo)
		tools.Concurrency = 1 + round
		p := newFakePolicy(t, o, drawn, someTurns)
		groups, _ := run(t, p, o, drawn, tools)
		text := fmt.Sprint(texts(groups), p.batchText())
		if round == 0 {
			first = text
		} else if text != first {
			t.Error("the run does not repeat")
		}
		if p.busiest > 7 {
			t.Errorf("%d rows in a pass", p.busiest)
		}
	}
}

func TestATrajectoryOfOneTurnIsTheSameInBothContexts(t *testing.T) {
	drawn := questions(2)
	var both [2][]*Group
	for k, context := range []Context{Full, Limited} {
		o := toyOptions(3)
		o.Context, o.MaxTurns = context, 1
		both[k], _ = run(t, newFakePolicy(t, o, drawn, someTurns), o, drawn, searchTools(echo))
	}
	for g := range both[0] {
		for m, full := range both[0][g].Trajectories {
			limited := *both[1][g].Trajectories[m]
			if !slices.Equal(limited.ContextOf(0), full.ContextOf(0)) || limited.TokensProcessed() != full.TokensProcessed() || limited.PeakContext() != full.PeakContext() {
				t.Errorf("the turn sees %v, in full context %v", limited.ContextOf(0), full.ContextOf(0))
			}
			limited.Elapsed, limited.Turns[0].ContextIDs = full.Elapsed, nil
			if !reflect.DeepEqual(&limited, full) {
				t.Errorf("limited: %+v, full: %+v", limited, full)
			}
		}
	}
}

// A trajectory for whose next turn there is no row waits; it fails when there is none for it alone.
func TestATurnWithoutMemoryForItsRowWaits(t *testing.T) {
	for _, c := range []struct {
		lasts         bool
		failed, aside int
	}{{false, 0, 1}, {true, 2, 2}} {
		o := toyOptions(3)
		o.Context = Limited
		drawn := questions(1)
		p := newFakePolicy(t, o, drawn, twoTurns)
		opened := 0
		p.onFork = func(int) error {
			opened++ // the prompt, three members, then the second turns
			if opened == 6 || c.lasts && opened > 6 {
				return fmt.Errorf("no room: %w", model.ErrOutOfMemory)
			}
			return nil
		}
		groups, stats := run(t, p, o, drawn, searchTools(echo))
		stops := map[StopReason]int{}
		for _, trajectory := range groups[0].Trajectories {
			stops[trajectory.Stop]++
			if trajectory.Stop.Failed() && (trajectory.Elapsed <= 0 || !strings.Contains(trajectory.StopDetail, "no room") || len(trajectory.Turns) != 1) {
				t.Errorf("%s after %v: %d turns", trajectory.StopDetail, trajectory.Elapsed, len(trajectory.Turns))
			}
		}
		if stops[FailedEngine] != c.failed || stops[Answered] != 3-c.failed || stats.PutAside != c.aside || stats.ReencodedTokens != 0 {
			t.Errorf("stops %v, %d put aside, %d tokens encoded again", stops, stats.PutAside, stats.ReencodedTokens)
		}
	}
}

func TestTokensProcessedAndPeakContext(t *testing.T) {
	g := newRig(t, nil)
	h := newRigIn(t, Limited, nil)
	for _, rig := range []*rig{g, h} {
		rig.say("<mem>m</mem><think>" + strings.Repeat("t", 40) + "</think><search>q</search>")
		rig.result("r")
		rig.say(answerTurn)
	}
	full, limited := g.trajectory(), h.trajectory()
	first, all := len(full.PromptIDs)+full.Turns[0].Tokens.End, len(full.FullIDs())
	if full.TokensProcessed() != first+all || full.PeakContext() != all {
		t.Errorf("full context: %d tokens, at most %d, want %d and %d", full.TokensProcessed(), full.PeakContext(), first+all, all)
	}
	second := len(limited.Turns[1].ContextIDs) + limited.Turns[1].Tokens.Len()
	if limited.TokensProcessed() != first+second || limited.PeakContext() != max(first, second) || second >= all {
		t.Errorf("limited context: %d tokens, at most %d; the turns have %d and %d", limited.TokensProcessed(), limited.PeakContext(), first, second)
	}
	if none := (&Trajectory{PromptIDs: []int32{1}}); none.TokensProcessed() != 0 || none.PeakContext() != 0 {
		t.Error("a trajectory without a turn has processed something")
	}
}

// A limited context must read as the template's own rendering of a chat of four messages, whatever
// pieces it is made of.
func TestLimitedContextsReadAsTheTemplateRendersThem(t *testing.T) {
	tok, template, pieces := realTokenizer(t)
	compared := 0
	for round := range 6 {
		format, err := chat.NewChatFormat(template, tok, "be brief")
		if err != nil {
			t.Fatal(err)
		}
		o := toyOptions(4)
		o.Context, o.Seed, o.Format, o.Vocabulary = Limited, uint64(round), format, tok
		o.EOS, o.MaxTurnTokens, o.CorrectNoAction = format.EndOfTurn(), 80, true
		o.Prefill = []string{"", "<mem>"}[round%2]
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, chatTurns)
		p.pieces = pieces
		groups, _ := run(t, p, o, drawn, searchTools(echo))
		for _, g := range groups {
			for _, trajectory := range g.Trajectories {
				for k := 1; k < len(trajectory.Turns); k++ {
					before, context := trajectory.Turns[k-1], trajectory.ContextOf(k)
					text := pieces.decode(context)
					memory := text[len(pieces.decode(trajectory.PromptIDs)):]
					memory = memory[:strings.Index(memory, closeMemory)+len(closeMemory)]
					result := before.Result
					if before.Action == "" {
						result = o.Texts.Correct
					}
					want, err := template.Render([]chat.Message{
						{Role: "system", Content: "be brief"},
						{Role: "user", Content: g.Question.Text},
						{Role: "assistant", Content: memory + pieces.decode(before.ActionIDs)},
						{Role: "user", Content: result},
					}, true)
					if err != nil || text != want {
						t.Errorf("the context reads\n%q\nthe template renders\n%q, %v", text, want, err)
					}
					compared++
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d contexts were compared", compared)
	}
}
