package rollout

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// message is what a result looks like behind a turn that did not close itself.
func message(text string) string {
	return endOfTurnT + "\n" + startOfTurn + text + endOfTurnT + startOfTurn
}

func found(text string) string { return chat.OpenInformation + text + chat.CloseInformation }

// sees is the text of what the turn that is being written is conditioned on, without the prompt.
func (g *rig) sees() string {
	g.t.Helper()
	prompt := g.machine.t.PromptIDs
	if g.state != generating || !slices.Equal(g.writing.context[:len(prompt)], prompt) {
		g.t.Fatalf("state %d, stop %q, context %q", g.state, g.machine.t.Stop, g.vocabulary.decode(g.writing.context))
	}
	return g.vocabulary.decode(g.writing.context[len(prompt):])
}

func TestTheLimitedContextHoldsTheLatestMemoryActionAndResult(t *testing.T) {
	g := newRigIn(t, Limited, nil)
	if g.sees() != "" || !g.last.fresh {
		t.Errorf("the first turn sees %q behind the prompt, fresh %v", g.sees(), g.last.fresh)
	}
	g.say("<mem>m1</mem><think>t1</think><search>s1</search>")
	g.result("r1")
	if want := "<mem>m1</mem><search>s1</search>" + message(found("r1")); g.sees() != want || !g.last.fresh {
		t.Errorf("the second turn sees %q, want %q; fresh %v", g.sees(), want, g.last.fresh)
	}
	g.say("<mem>m2</mem><think>t2</think><search>s2</search>")
	g.result("r2")
	if want := "<mem>m2</mem><search>s2</search>" + message(found("r2")); g.sees() != want {
		t.Errorf("the third turn sees %q, want %q", g.sees(), want)
	}
	g.say(answerTurn)
	got := g.trajectory()
	for _, gone := range []string{"m1", "r1", "t1", "t2"} {
		if strings.Contains(g.vocabulary.decode(got.ContextOf(2)), gone) {
			t.Errorf("the third turn sees %s", gone)
		}
	}
	whole := "<mem>m1</mem><think>t1</think><search>s1</search>" + message(found("r1")) +
		"<mem>m2</mem><think>t2</think><search>s2</search>" + message(found("r2")) + answerTurn
	if text := g.vocabulary.decode(got.ResponseIDs); text != whole {
		t.Errorf("the history reads %q, want %q", text, whole)
	}
	record := NewRecord(1, dataset.Question{}, 0, got, g.vocabulary.decode)
	for k := range got.Turns {
		if record.Turns[k].Context != g.vocabulary.decode(got.ContextOf(k)) || !slices.Equal(record.Turns[k].ContextIDs, got.ContextOf(k)) {
			t.Errorf("turn %d saw %q by its record", k+1, record.Turns[k].Context)
		}
	}
}

func TestTheLimitedContextHoldsTheSampledIds(t *testing.T) {
	v := newToyVocabulary()
	g := newRigIn(t, Limited, nil)
	// Other pieces than the encoder's; the memory's and the action's last tokens reach beyond them.
	g.write(v.ids("<mem>", "h", "e", "</mem", "><", "think>"[:1], "h", "i", "n", "k", ">", "</", "t", "h", "i", "nk>ok")...)
	g.write(v.ids("<se", "arch>", "he", "l", "l", "o", "</", "s", "e", "arch>")...)
	if g.last.call == nil || g.last.call.text != "hello" {
		t.Fatalf("call %+v, stop %q", g.last.call, g.machine.t.Stop)
	}
	g.result("r")
	want := slices.Concat(g.machine.t.PromptIDs, v.ids("<mem>", "h", "e", "</mem", ">"),
		v.ids("<se", "arch>", "he", "l", "l", "o", "</", "s", "e", "arch>"), v.Encode(tokenizer.Segment{Text: message(found("r")), Trusted: true}))
	g.say(answerTurn)
	got := g.trajectory()
	if !slices.Equal(got.ContextOf(1), want) {
		t.Errorf("context\n%v, want\n%v", got.ContextOf(1), want)
	}
	if !slices.Equal(got.ContextOf(0), got.PromptIDs) {
		t.Error("the first turn sees more than the prompt")
	}
}

// carries writes turns and tells which memory the last one's successor sees.
func carries(t *testing.T, change func(*Rules), turns ...string) (string, *rig) {
	g := newRigIn(t, Limited, func(r *Rules) {
		r.CorrectNoAction = true
		if change != nil {
			change(r)
		}
	})
	for _, turn := range turns {
		g.say(turn)
		if g.last.call != nil {
			g.result("r")
		}
	}
	text := g.sees()
	memory := text[:strings.Index(text, closeMemory)+len(closeMemory)]
	return memory, g
}

func TestTheMemoryCarriedOnIsTheLastGoodOneAndClosed(t *testing.T) {
	const act = "<think>t</think><search>q</search>"
	first := "<mem>good</mem>" + act
	for _, c := range []struct {
		name  string
		turns []string
		want  string
	}{
		{"the latest", []string{first, "<mem>a</mem>" + act}, "<mem>a</mem>"},
		{"unclosed", []string{first, "<mem>a" + act + endOfTurnT}, "<mem>good</mem>"},
		{"missing", []string{first, act}, "<mem>good</mem>"},
		{"empty", []string{first, "<mem></mem>" + act}, "<mem>good</mem>"},
		{"of white space", []string{first, "<mem> \n</mem>" + act}, "<mem>good</mem>"},
		{"two blocks", []string{first, "<mem>a</mem><mem>b</mem>" + act}, "<mem>a</mem>"},
		{"missing twice", []string{first, act, act}, "<mem>good</mem>"},
		{"after a missing one", []string{first, act, "<mem>a</mem>" + act}, "<mem>a</mem>"},
		{"none so far", []string{act}, "<mem></mem>"},
		{"none but an unclosed one", []string{"<mem>a" + endOfTurnT}, "<mem></mem>"},
		{"only an empty one", []string{"<mem> </mem>" + act}, "<mem> </mem>"},
		{"an empty one, then none", []string{"<mem> </mem>" + act, act}, "<mem> </mem>"},
		{"an empty one, then a good one", []string{"<mem></mem>" + act, "<mem>a</mem>" + act}, "<mem>a</mem>"},
		{"in a thought", []string{first, "<think><mem>a</mem></think><search>q</search>"}, "<mem>good</mem>"},
	} {
		got, g := carries(t, nil, c.turns...)
		if got != c.want {
			t.Errorf("%s: %q goes on, want %q", c.name, got, c.want)
		}
		last := g.machine.t.Turns[len(c.turns)-1]
		bad := !strings.HasPrefix(c.want, "<mem>a") && last.FormatError == ""
		if allowed := strings.Contains(c.turns[len(c.turns)-1], "<mem> ") || strings.Contains(c.turns[len(c.turns)-1], "<mem></mem>"); bad && !allowed {
			t.Errorf("%s: the format holds", c.name)
		}
		if strings.Count(g.sees(), openMemory) != 1 || strings.Count(g.sees(), closeMemory) != 1 {
			t.Errorf("%s: tags do not pair in %q", c.name, g.sees())
		}
	}
	if _, g := carries(t, nil, "<mem>a</mem><mem>b</mem>"+act); g.machine.t.Turns[0].FormatError != chat.FormatRepeatedTag {
		t.Errorf("two memories: format error %q", g.machine.t.Turns[0].FormatError)
	}
}

// The sampled memory is trained, what is carried on may be shorter.
func TestTheCapCutsWhatIsCarriedAndNotWhatIsTrained(t *testing.T) {
	v := newToyVocabulary()
	g := newRigIn(t, Limited, func(r *Rules) { r.MemoryTokens = 8 })
	g.write(v.ids("<mem>", "a", "b", "c", "d", "e", "f", "g", "h", "i", "</mem", ">")...)
	g.say("<think>t</think><search>q</search>")
	g.result("r")
	context := g.writing.context[promptTokens:]
	if want := v.ids("<mem>", "a", "b", "c", "d", "e", "</mem", ">"); !slices.Equal(context[:8], want) || context[8] != v.id("<se") && context[8] != '<' {
		t.Errorf("8 tokens are carried on: %q", v.decode(context[:9]))
	}
	g.say(answerTurn)
	got := g.trajectory()
	turn := got.Turns[0]
	if turn.Memory != (Span{0, 12}) || len(turn.MemoryIDs) != 12 || !turn.MemoryCut || got.Turns[1].MemoryCut {
		t.Errorf("memory at %v of %d ids, cut %v", turn.Memory, len(turn.MemoryIDs), turn.MemoryCut)
	}
	for k := range 12 {
		if !got.ResponseMask[k] || got.LogProbs[k] != -1 {
			t.Errorf("token %d of the sampled memory has mask %v and log-prob %v", k, got.ResponseMask[k], got.LogProbs[k])
		}
	}
	var stats Stats
	stats.addTrajectory(got)
	record := NewRecord(1, dataset.Question{}, 0, got, v.decode)
	if stats.MemoriesCut != 1 || !record.Turns[0].MemoryCut || record.Turns[1].MemoryCut {
		t.Errorf("%d memories cut, records say %v and %v", stats.MemoriesCut, record.Turns[0].MemoryCut, record.Turns[1].MemoryCut)
	}
}

func TestTheCapKeepsTagsAndCharacters(t *testing.T) {
	v := newToyVocabulary()
	for _, c := range []struct {
		name   string
		limit  int
		pieces []string
		want   string
	}{
		{"no cap", 0, []string{"<mem>", "a", "b", "</mem", ">"}, "<mem>ab</mem>"},
		{"as long as the cap", 5, []string{"<mem>", "a", "b", "</mem", ">"}, "<mem>ab</mem>"},
		{"one too many", 4, []string{"<mem>", "a", "b", "</mem", ">"}, "<mem>a</mem>"},
		{"nothing fits", 3, []string{"<mem>", "a", "b", "</mem", ">"}, "<mem></mem>"},
		{"not even the tags", 1, []string{"<mem>", "a", "b", "</mem", ">"}, "<mem></mem>"},
		{"not even a tag in pieces", 5, []string{"<", "m", "e", "m", ">", "a", "</mem", ">"}, "<mem></mem>"},
		{"a closing tag in pieces", 8, []string{"<mem>", "a", "b", "c", "<", "/", "m", "e", "m", ">"}, "<mem>abc</mem>"},
		{"inside a character", 5, []string{"<mem>", "a", "\xe6", "\x9d", "\xb1", "b", "</mem", ">"}, "<mem>a</mem>"},
		{"behind a character", 7, []string{"<mem>", "a", "\xe6", "\x9d", "\xb1", "b", "</mem", ">"}, "<mem>a東</mem>"},
		{"bytes that are no character", 4, []string{"<mem>", "\x9d", "\x9d", "</mem", ">"}, "<mem>\x9d</mem>"},
		{"a token over the edge", 2, []string{"<mem>", "a</mem><"}, "<mem></mem>"},
	} {
		r := toyRules()
		r.MemoryTokens = c.limit
		var memory []int32
		for _, piece := range c.pieces {
			memory = append(memory, v.id(piece))
		}
		if c.name == "a token over the edge" {
			memory = v.ids("<mem>", "a", "</mem", ">") // as MemoryIDs has it
		}
		kept, cut := newRules(r, Limited, Tools{}).capMemory(memory)
		if got := v.decode(kept); got != c.want || cut != (c.want != v.decode(memory)) {
			t.Errorf("%s: %q, cut %v, want %q", c.name, got, cut, c.want)
		}
		if c.limit > 2 && len(kept) > c.limit {
			t.Errorf("%s: %d tokens", c.name, len(kept))
		}
	}
}

// resultRig has written a memory of 30 tokens and a search behind a prompt of 60. The limit on the
// context leaves room for a result of so many tokens, and for a turn.
func resultRig(t *testing.T, room int) *rig {
	g := newRigIn(t, Limited, func(r *Rules) {
		r.Format = toyFormat{newToyVocabulary(), strings.Repeat("s", promptTokens*4+3)}
		r.MaxTurnTokens = 70
	})
	v := g.vocabulary
	memory := slices.Concat(v.ids("<mem>"), slices.Repeat([]int32{'x'}, 27), v.ids("</mem", ">"))
	action := v.ids("<se", "arch>", "q", "</search>")
	glue := v.Encode(tokenizer.Segment{Text: message(""), Trusted: true})
	g.write(slices.Concat(memory, action)...)
	g.contextLimit = 60 + 30 + len(action) + len(glue) + room + g.rules.MaxTurnTokens
	if n := len(g.machine.t.PromptIDs); n != 60 || len(memory) != 30 {
		t.Fatalf("%d tokens of prompt, %d of memory", n, len(memory))
	}
	return g
}

func TestTheResultGivesWayAndTheMemoryStaysWhole(t *testing.T) {
	g := resultRig(t, 10)
	g.result(strings.Repeat("r", 58)) // 60 tokens with the tags
	turn := g.machine.t.Turns[0]
	want := "<mem>" + strings.Repeat("x", 27) + "</mem><search>q</search>" + message(found(strings.Repeat("r", 8)))
	if g.sees() != want {
		t.Errorf("the turn sees %q, want %q", g.sees(), want)
	}
	if !turn.ResultCut || turn.ResultTokensCut != 50 || turn.Result != found(strings.Repeat("r", 8)) || turn.MemoryCut {
		t.Errorf("%d tokens cut, result %q", turn.ResultTokensCut, turn.Result)
	}
	if n := len(g.writing.context); n+g.rules.MaxTurnTokens != g.contextLimit || g.writing.budget != g.rules.MaxTurnTokens {
		t.Errorf("a context of %d, a turn of %d, a limit of %d", n, g.writing.budget, g.contextLimit)
	}
	if line := written(t, NewRecord(1, dataset.Question{}, 0, g.trajectory(), g.vocabulary.decode)); !bytes.Contains(line, []byte(`"result_tokens_cut":50`)) {
		t.Errorf("%s", line)
	}
}

func TestWholePassagesAreCutFirst(t *testing.T) {
	for room, want := range map[int]string{
		40: "aaaaaaaaaa\nbbbbbbbbbb\ncccccccccc", 34: "aaaaaaaaaa\nbbbbbbbbbb\ncccccccccc", 33: "aaaaaaaaaa\nbbbbbbbbbb",
		23: "aaaaaaaaaa\nbbbbbbbbbb", 22: "aaaaaaaaaa", 12: "aaaaaaaaaa", 11: "aaaaaaaaa", 3: "a", 2: "",
	} {
		g := resultRig(t, room)
		g.result("aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc")
		turn := g.machine.t.Turns[0]
		if turn.Result != found(want) || turn.ResultCut != (room < 34) || turn.ResultTokensCut != 32-len(want) {
			t.Errorf("room for %d: %q, %d tokens cut, %v", room, turn.Result, turn.ResultTokensCut, turn.ResultCut)
		}
		if text := g.vocabulary.decode(g.trajectory().ResponseIDs); !strings.Contains(text, found(want)) {
			t.Errorf("room for %d: the history reads %q", room, text)
		}
	}
}

func TestAContextWithoutRoomForAnEmptyResultIsFull(t *testing.T) {
	g := resultRig(t, 1)
	g.result("r")
	got := g.trajectory()
	if got.Stop != ContextFull || got.Turns[0].Result != "" || len(got.ResponseIDs) != got.Turns[0].Tokens.End {
		t.Errorf("stop %q, result %q", got.Stop, got.Turns[0].Result)
	}
}
