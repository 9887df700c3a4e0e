package chat

import (
	"strings"
	"testing"
)

// withCalculator are the tags of a run with one custom tool.
func withCalculator(t *testing.T) Tags {
	t.Helper()
	tags, err := NewTags("calculate")
	if err != nil {
		t.Fatal(err)
	}
	return tags
}

func TestCustomTags(t *testing.T) {
	tags := withCalculator(t)
	const before = "<mem>m</mem><think>t</think>"
	for _, c := range []struct {
		text       string
		action     Action
		actionText string
		openTag    string
		err        string
	}{
		{before + "<calculate> 1+1 </calculate>", "calculate", "1+1", "", ""},
		{before + "<calculate></calculate>", "calculate", "", "", FormatEmptyQuery},
		{before + "<calculate>1+1", ActionNone, "", "<calculate>", FormatUnclosedAction},
		{before + "<calculate 1+1", ActionNone, "", "<calculate>", FormatTextOutside},
		{before + "<calculated>", ActionNone, "", "", FormatTextOutside},
		{before + "</calculate><search>q</search>", ActionSearch, "q", "", FormatStrayTag},
		{before + "<calculate>1<search>q</search>", ActionSearch, "q", "<calculate>", FormatNestedTag},
		{"<mem>m</mem><think><calculate>1</calculate></think><answer>2</answer>", ActionAnswer, "2", "", ""},
	} {
		turn := tags.ParseTurn(c.text)
		if turn.Action != c.action || turn.ActionText != c.actionText || turn.OpenTag != c.openTag || turn.FormatError != c.err {
			t.Errorf("%q gives %+v", c.text, turn)
		}
	}
	calculated, answered := before+"<calculate>1</calculate>", before+"<answer>1</answer>"
	if err := tags.ParseTrajectory([]string{calculated, answered}); err != "" {
		t.Errorf("a calculation, then the answer: %s", err)
	}
	if turn := ParseTurn(calculated); turn.Action != ActionNone || turn.FormatError != FormatTextOutside {
		t.Errorf("in a run without the tool: %+v", turn)
	}
	if !tags.HoldsActionTag("x<calculate") || tags.HoldsActionTag("<mem>calculate") || (Tags{}).HoldsActionTag("<calculate>") {
		t.Error("HoldsActionTag")
	}
	if texts := strings.Join(tags.Texts(), " "); texts != "<mem> </mem> <think> </think> <search> </search> <access> </access> <answer> </answer> <calculate> </calculate>" {
		t.Error(texts)
	}
}

func TestTagNames(t *testing.T) {
	for _, name := range []string{"", "A", "1a", "_a", "a-b", "a b", "a>", "é", "mem", "think", "answer", "information", "search", "access", strings.Repeat("a", 33)} {
		if _, err := NewTags(name); err == nil {
			t.Errorf("%q is let pass", name)
		}
	}
	for _, name := range []string{"a", "python_3", "searching", strings.Repeat("a", 32)} {
		if _, err := NewTags(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := NewTags("a", "b", "a"); err == nil {
		t.Error("a tag may be given twice")
	}
	many := make([]string, MostCustomTags+1)
	for k := range many {
		many[k] = "t" + string(rune('a'+k))
	}
	if _, err := NewTags(many...); err == nil {
		t.Error("there may be too many tags")
	}
	if _, err := NewTags(many[1:]...); err != nil {
		t.Error(err)
	}
}
