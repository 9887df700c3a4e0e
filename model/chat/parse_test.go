package chat

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const good = "<mem>m</mem><think>t</think><search>q</search>"

func TestParseTurnFindsActionAndMemory(t *testing.T) {
	for _, c := range []struct {
		name, text   string
		action       Action
		actionText   string
		memory       string
		openTag, err string
	}{
		{"search", good, ActionSearch, "q", "<mem>m</mem>", "", ""},
		{"access", "<mem>m</mem>\n<think>t</think>\n<access> http://a </access>", ActionAccess, "http://a", "<mem>m</mem>", "", ""},
		{"answer", " <mem>\n</mem><think></think><answer>\n a; b \n</answer>\n", ActionAnswer, "a; b", "<mem>\n</mem>", "", ""},
		{"empty memory", "<mem></mem><think>t</think><search>q</search>", ActionSearch, "q", "<mem></mem>", "", ""},
		{"empty answer", "<mem></mem><think>t</think><answer> </answer>", ActionAnswer, "", "<mem></mem>", "", ""},
		{"empty query", "<mem>m</mem><think>t</think><search> \n</search>", ActionSearch, "", "<mem>m</mem>", "", FormatEmptyQuery},
		{"empty address", "<mem>m</mem><think>t</think><access></access>", ActionAccess, "", "<mem>m</mem>", "", FormatEmptyQuery},
		{"call as an idea in a thought", "<mem>m</mem><think>maybe <search>foo</search>? no.</think><search>bar</search>", ActionSearch, "bar", "<mem>m</mem>", "", ""},
		{"answer noted in memory", "<mem>was <answer>x</answer></mem><think>t</think><search>q</search>", ActionSearch, "q", "<mem>was <answer>x</answer></mem>", "", ""},
		{"thought never closed", "<mem>m</mem><think>so <search>q</search>", ActionNone, "", "<mem>m</mem>", "", FormatUnclosedThink},
		{"memory never closed", "<mem>m<think>t</think><search>q</search>", ActionNone, "", "", "", FormatNestedTag},
		{"cut in memory", "<mem>a", ActionNone, "", "", "", FormatUnclosedMemory},
		{"cut in action", "<mem>m</mem><think>t</think><search>q", ActionNone, "", "<mem>m</mem>", "<search>", FormatUnclosedAction},
		{"action without its bracket", "<mem>m</mem><think>t</think><search query", ActionNone, "", "<mem>m</mem>", "<search>", FormatTextOutside},
		{"cut in a tag", "<mem>m</mem><think>t</think><search", ActionNone, "", "<mem>m</mem>", "<search>", FormatTextOutside},
		{"another word", "<mem>m</mem><think>t</think><searching> ", ActionNone, "", "<mem>m</mem>", "", FormatTextOutside},
		{"open tag in a thought only", "<mem>m</mem><think><search>q</think>", ActionNone, "", "<mem>m</mem>", "", FormatMissingAction},
		{"upper case is text", "<MEM>m</MEM>", ActionNone, "", "", "", FormatTextOutside},
		{"nothing", "", ActionNone, "", "", "", FormatMissingMemory},
		{"no memory", "<think>t</think><search>q</search>", ActionSearch, "q", "", "", FormatMissingMemory},
		{"no thought", "<mem>m</mem><search>q</search>", ActionSearch, "q", "<mem>m</mem>", "", FormatMissingThink},
		{"no action", "<mem>m</mem><think>t</think>\n", ActionNone, "", "<mem>m</mem>", "", FormatMissingAction},
		{"thought first", "<think>t</think><mem>m</mem><search>q</search>", ActionSearch, "q", "<mem>m</mem>", "", FormatWrongOrder},
		{"two memories", "<mem>a</mem><mem>b</mem><think>t</think><search>q</search>", ActionSearch, "q", "<mem>a</mem>", "", FormatRepeatedTag},
		{"two thoughts", "<mem>a</mem><think>t</think><think>t</think><search>q</search>", ActionSearch, "q", "<mem>a</mem>", "", FormatRepeatedTag},
		{"memory tag twice", "<mem><mem>a</mem><think>t</think><search>q</search>", ActionSearch, "q", "<mem><mem>a</mem>", "", FormatNestedTag},
		{"memory in a thought", "<mem>a</mem><think><mem>b</mem></think><search>q</search>", ActionSearch, "q", "<mem>a</mem>", "", FormatNestedTag},
		{"thought in an action", "<mem>a</mem><think>t</think><search>q <think>x</think></search>", ActionSearch, "q <think>x</think>", "<mem>a</mem>", "", FormatNestedTag},
		{"open thought in an action", "<mem>a</mem><think>t</think><search>q <think></search>", ActionNone, "", "<mem>a</mem>", "<search>", FormatNestedTag},
		{"action tag twice", "<mem>a</mem><think>t</think><search>p<search>q</search>", ActionSearch, "p<search>q", "<mem>a</mem>", "", FormatNestedTag},
		{"answer in an open search", "<mem>a</mem><think>t</think><search>p<answer>q</answer>", ActionAnswer, "q", "<mem>a</mem>", "<search>", FormatNestedTag},
		{"stray closing tag", "<mem>a</mem><think>t</think></think><search>q</search>", ActionSearch, "q", "<mem>a</mem>", "", FormatStrayTag},
		{"closing tag of no action", "<mem>a</mem><think>t</think></search><search>q</search>", ActionSearch, "q", "<mem>a</mem>", "", FormatStrayTag},
		{"text before", "Well: " + good, ActionSearch, "q", "<mem>m</mem>", "", FormatTextOutside},
		{"text between", "<mem>m</mem>so<think>t</think><search>q</search>", ActionSearch, "q", "<mem>m</mem>", "", FormatTextOutside},
		{"text behind", good + " I hope", ActionSearch, "q", "<mem>m</mem>", "", FormatTextOutside},
		{"two actions", good + "<answer>a</answer>", ActionSearch, "q", "<mem>m</mem>", "", FormatTextOutside},
		{"end-of-turn token behind", good + "<|im_end|>\n", ActionSearch, "q", "<mem>m</mem>", "", ""},
		{"end tokens behind", good + " <|eot_id|><|end_of_text|>", ActionSearch, "q", "<mem>m</mem>", "", ""},
		{"end token in front", "<|im_end|>" + good, ActionSearch, "q", "<mem>m</mem>", "", FormatTextOutside},
		{"invalid UTF-8 inside", "<mem>\xe6</mem><think>\x9d\xb1\xff</think><search>\xe6<x\x00</search>", ActionSearch, "\xe6<x\x00", "<mem>\xe6</mem>", "", ""},
		{"invalid UTF-8 outside", "<mem></mem>\xe6<think></think><search>q</search>", ActionSearch, "q", "<mem></mem>", "", FormatTextOutside},
		{"Unicode white space outside", "<mem></mem>\u00a0\u3000<think></think><search>\u2003q\u2003</search>", ActionSearch, "q", "<mem></mem>", "", ""},
	} {
		turn := ParseTurn(c.text)
		memory := c.text[turn.Memory.Start:turn.Memory.End]
		if turn.Action != c.action || turn.ActionText != c.actionText || turn.OpenTag != c.openTag || turn.FormatError != c.err || memory != c.memory || turn.HasMemory != (c.memory != "") {
			t.Errorf("%s: %q gives %+v", c.name, c.text, turn)
		}
		if c.err != "" && !slices.Contains(FormatErrors(), turn.FormatError) {
			t.Errorf("%s: %q is not in the list of format errors", c.name, turn.FormatError)
		}
		if span := c.text[turn.ActionSpan.Start:turn.ActionSpan.End]; c.action != ActionNone {
			open, end := "<"+string(c.action)+">", "</"+string(c.action)+">"
			if !strings.HasPrefix(span, open) || !strings.HasSuffix(span, end) {
				t.Errorf("%s: action span %q lacks its tags", c.name, span)
			}
		}
	}
}

func TestPrefillCountsAsWritten(t *testing.T) {
	written := "notes</mem><think>t</think><search>q</search>"
	if got := ParseTurn("<mem>" + written).FormatError; got != "" {
		t.Errorf("a turn opened by the prefill: %q", got)
	}
	if got := ParseTurn("<mem>" + "<mem>" + written).FormatError; got != FormatNestedTag {
		t.Errorf("a tag the prefill had opened already: %q", got)
	}
	if got := ParseTurn(written).FormatError; got == "" {
		t.Error("without the prefill the same text keeps the format")
	}
}

func TestParseTrajectory(t *testing.T) {
	answer := "<mem>m</mem><think>t</think><answer>a</answer>"
	for _, c := range []struct {
		name  string
		turns []string
		want  string
	}{
		{"search, then answer", []string{good, answer + "<|im_end|>\n"}, ""},
		{"answer at once", []string{answer}, ""},
		{"no turn", nil, FormatNoAnswer},
		{"search last", []string{good}, FormatNoAnswer},
		{"behind the answer", []string{answer, answer}, FormatAfterAnswer},
		{"broken first turn", []string{"x" + good, answer}, FormatTextOutside},
		{"broken last turn", []string{good, "<mem>m</mem><answer>a</answer>"}, FormatMissingThink},
	} {
		if got := ParseTrajectory(c.turns); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// checkSplit feeds text to a Scanner in the pieces that end at cuts, and compares each answer with
// that of ParseTurn on all of the text so far.
func checkSplit(t *testing.T, tags Tags, text string, cuts []int) {
	t.Helper()
	scanner := NewScanner(tags)
	from := 0
	for _, to := range append(cuts, len(text)) {
		closed := scanner.Write(text[from:to])
		if want := tags.ParseTurn(text[:to]).Action != ActionNone; closed != want {
			t.Fatalf("%q in pieces that end at %v: closed is %v after %d bytes, want %v", text, cuts, closed, to, want)
		}
		from = to
	}
}

// randomTurn strings together tags, near-tags and text.
func randomTurn(rng *rand.Rand) string {
	pieces := append(Tags{}.Texts(), "<calculate>", "</calculate>", "<calc", "ulate>", "<", "</", ">", "<sea", "rch>", "x", " ", "\n", "é", "\xe6", "<<mem>", "<mem >", "<|im_end|>")
	var text strings.Builder
	for range rng.IntN(14) {
		text.WriteString(pieces[rng.IntN(len(pieces))])
	}
	return text.String()
}

func TestScannerDependsOnTheTextAlone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tags, closed := withCalculator(t), 0
	for range 4000 {
		text := randomTurn(rng)
		if tags.ParseTurn(text).Action != ActionNone {
			closed++
		}
		cuts := make([]int, rng.IntN(6))
		for k := range cuts {
			cuts[k] = rng.IntN(len(text) + 1)
		}
		slices.Sort(cuts)
		checkSplit(t, tags, text, cuts)
		bytes := make([]int, len(text))
		for k := range bytes {
			bytes[k] = k
		}
		checkSplit(t, tags, text, bytes)
	}
	if closed < 200 {
		t.Errorf("only %d of the texts hold an action", closed)
	}
}

func TestScannerWaitsInsideBlocks(t *testing.T) {
	var scanner Scanner
	for _, piece := range []string{"<me", "m>m</mem><th", "ink>maybe <search>foo</sea", "rch>? no.</think><search>bar</search"} {
		if scanner.Write(piece) {
			t.Fatalf("stopped after %q", piece)
		}
	}
	if !scanner.Write(">\n") || !scanner.Write("more") {
		t.Error("the closed search went unseen")
	}
}

// A turn's text is bounded in tokens, not in what it is made of: each of these would take minutes
// if any step looked back over the text.
func TestHostileTextIsLinear(t *testing.T) {
	const size, piece = 1 << 20, 5
	for _, unit := range []string{"<", "</", "<mem>", "</mem>", "<search>", "<searc", "<search ", "</s>", " ", "<|im_end|>", "<mem></mem>", "<think><mem>"} {
		text := strings.Repeat(unit, size/len(unit))
		start := time.Now()
		ParseTurn(text)
		var scanner Scanner
		for k := 0; k < len(text); k += piece {
			scanner.Write(text[k:min(k+piece, len(text))])
		}
		if elapsed := time.Since(start); elapsed > 20*time.Second {
			t.Errorf("%d bytes of %q took %v", len(text), unit, elapsed)
		}
	}
}

func FuzzParseTurn(f *testing.F) {
	for _, seed := range []string{
		"", good, "<mem>a", "<mem>a</mem><mem>b</mem>", "<think><search>x</search></think><answer>y</answer>",
		"<search>p<answer>q</answer>", "\xe6<mem>\xff</mem>", "</search>", "<search", good + "<|im_end|>\n",
		"<mem>m</mem><think>t</think><calculate>1</calculate>", "<calculate>1<search>q</search>", "<calc",
	} {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tags := Tags{}
		if seed%2 == 1 {
			tags = withCalculator(t)
		}
		turn := tags.ParseTurn(text)
		if turn.HasMemory && !strings.HasPrefix(text[turn.Memory.Start:turn.Memory.End], "<mem>") {
			t.Fatalf("memory span %v of %q", turn.Memory, text)
		}
		if turn.Action != ActionNone && !strings.HasSuffix(text[:turn.ActionSpan.End], "</"+string(turn.Action)+">") {
			t.Fatalf("action span %v of %q", turn.ActionSpan, text)
		}
		if turn.FormatError != "" && !slices.Contains(FormatErrors(), turn.FormatError) {
			t.Fatalf("format error %q", turn.FormatError)
		}
		cuts := make([]int, rng.IntN(8))
		for k := range cuts {
			cuts[k] = rng.IntN(len(text) + 1)
		}
		slices.Sort(cuts)
		checkSplit(t, tags, text, cuts)
	})
}
