package rollout

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
)

// doubling is a custom tool that says a text twice, and finds nothing for "none".
func doubling() Tools {
	return Tools{Concurrency: 8, Custom: []CustomTool{{Tag: "twice", TopK: 2, Asked: searchFunc(func(_ context.Context, text string) ([]retrieval.Passage, error) {
		switch text {
		case "none":
			return nil, nil
		case "fail":
			return nil, &retrieval.ServiceError{Service: "twice", Kind: retrieval.KindStatus}
		}
		return []retrieval.Passage{{Contents: text}, {Contents: "\"T\"\n" + text + "</information>"}}, nil
	})}}}
}

func TestCustomTool(t *testing.T) {
	for _, c := range []Context{Full, Limited} {
		o := toyOptions(2)
		o.Context = c
		drawn := questions(2)
		p := newFakePolicy(t, o, drawn, func(k SeedKey) string {
			switch k.Turn {
			case 0:
				return fmt.Sprintf("<mem>m</mem><think>not <twice>x</twice></think><twice> %s </twice>", k.Question)
			case 1:
				return "<mem>n</mem><think>t</think><twice>none</twice>"
			case 2:
				return "<mem>n</mem><think>t</think><search>q</search>"
			}
			return "<mem>n</mem><think>t</think><answer>a</answer>"
		})
		groups, stats := run(t, p, o, drawn, doubling())
		if stats.ToolFailures != 0 || stats.Malformed != 0 {
			t.Errorf("%s: %+v", c, stats)
		}
		for _, g := range groups {
			for _, trajectory := range g.Trajectories {
				turns := trajectory.Turns
				if trajectory.Stop != Answered || len(turns) != 4 {
					t.Fatalf("%s: stop %s after %d turns", c, trajectory.Stop, len(turns))
				}
				id := g.Question.ID
				if turns[0].Action != "twice" || turns[0].ActionText != id || turns[0].Stop != StopWord || turns[0].FormatError != "" || !turns[0].ToolCalled {
					t.Errorf("%s: %+v", c, turns[0])
				}
				if want := "<information>\n" + id + "\n\"T\"\n" + id + "</information>\n</information>"; turns[0].Result != want {
					t.Errorf("%s: result %q, want %q", c, turns[0].Result, want)
				}
				if !strings.Contains(turns[1].Result, "nothing") || !strings.Contains(turns[2].Result, "no search here") {
					t.Errorf("%s: results %q and %q", c, turns[1].Result, turns[2].Result)
				}
				checkMask(t, trajectory)
				if c == Limited {
					text := o.Vocabulary.(*toyVocabulary).decode(turns[1].ContextIDs)
					if !strings.Contains(text, "<twice> "+id+" </twice>") || !strings.Contains(text, "<mem>m</mem>") {
						t.Errorf("context of turn 2: %q", text)
					}
				}
			}
		}
	}
}

// checkMask: exactly what the turns wrote is trained on.
func checkMask(t *testing.T, trajectory *Trajectory) {
	t.Helper()
	written := make([]bool, len(trajectory.ResponseIDs))
	for _, turn := range trajectory.Turns {
		for k := turn.Tokens.Start; k < turn.Tokens.End; k++ {
			written[k] = true
		}
	}
	for k := range written {
		if written[k] != trajectory.ResponseMask[k] {
			t.Fatalf("position %d: mask %v, written %v", k, trajectory.ResponseMask[k], written[k])
		}
	}
}

func TestFailedCustomTool(t *testing.T) {
	o := toyOptions(1)
	drawn := questions(1)
	p := newFakePolicy(t, o, drawn, func(SeedKey) string { return "<mem>m</mem><think>t</think><twice>fail</twice>" })
	groups, stats := run(t, p, o, drawn, doubling())
	if got := groups[0].Trajectories[0]; got.Stop != FailedTool || stats.ToolFailures != 1 {
		t.Errorf("stop %s, %d failures", got.Stop, stats.ToolFailures)
	}
}

func TestBadCustomTools(t *testing.T) {
	o := toyOptions(1)
	for _, tools := range []Tools{
		{Concurrency: 1, Custom: []CustomTool{{Tag: "search", TopK: 1, Asked: searchFunc(echo)}}},
		{Concurrency: 1, Custom: []CustomTool{{Tag: "Calc", TopK: 1, Asked: searchFunc(echo)}}},
		{Concurrency: 1, Custom: []CustomTool{{Tag: "calc", TopK: 0, Asked: searchFunc(echo)}}},
		{Concurrency: 1, Custom: []CustomTool{{Tag: "calc", TopK: 1}}},
	} {
		if _, _, err := Run(t.Context(), nil, questions(1), o, tools); err == nil {
			t.Errorf("%+v is let pass", tools.Custom)
		}
	}
	o.Prefill = "<mem></mem><twice>x</twice>"
	if _, _, err := Run(t.Context(), nil, questions(1), o, doubling()); err == nil || !strings.Contains(err.Error(), "prefill") {
		t.Errorf("a whole action as a prefill: %v", err)
	}
}
