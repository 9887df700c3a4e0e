package rollout

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/retrieval"
)

// promptTokens is the length of a rig's prompt.
const promptTokens = 12

// The turn of 100 tokens ends nowhere.
func TestNextTurnsBudget(t *testing.T) {
	for _, c := range []struct {
		name                   string
		context, response, cap int
		passes                 int
		turnStop               TurnStop
		stop                   StopReason
	}{
		{"turn cap", promptTokens + 50, 50, 32, 32, TurnCut, NoAction},
		{"context and response alike", promptTokens + 20, 20, 32, 20, TurnContextFull, ContextFull},
		{"context", promptTokens + 20, 50, 32, 20, TurnContextFull, ContextFull},
		{"context as large as the cap", promptTokens + 20, 50, 20, 20, TurnContextFull, ContextFull},
		{"response", promptTokens + 50, 20, 32, 20, TurnCut, MaxResponse},
		{"response as large as the cap", promptTokens + 50, 20, 20, 20, TurnCut, MaxResponse},
	} {
		g := newRig(t, func(r *Rules) {
			r.ContextLength, r.MaxResponseTokens, r.MaxTurnTokens = c.context, c.response, c.cap
		})
		if n := len(g.machine.t.PromptIDs); n != promptTokens {
			t.Fatalf("the prompt has %d tokens", n)
		}
		g.write(slices.Repeat([]int32{'x'}, 100)...)
		got := g.trajectory()
		if g.passes != c.passes || got.Stop != c.stop || got.Turns[0].Stop != c.turnStop {
			t.Errorf("%s: %d tokens, stop %q, turn stop %q", c.name, g.passes, got.Stop, got.Turns[0].Stop)
		}
		if !got.Truncated() || got.Stop.Failed() {
			t.Errorf("%s: a limit cut the trajectory, and it did not fail", c.name)
		}
	}
}

func TestFinishedActionIsNotTouchedByLimits(t *testing.T) {
	text := newToyVocabulary().EncodePlain("<answer>Ada</answer>")
	for name, change := range map[string]func(*Rules){
		"context":  func(r *Rules) { r.ContextLength = promptTokens + len(text) },
		"response": func(r *Rules) { r.MaxResponseTokens = len(text) },
		"turn cap": func(r *Rules) { r.MaxTurnTokens = len(text) },
		"turns":    func(r *Rules) { r.MaxTurns = 1 },
	} {
		g := newRig(t, change)
		g.write(text...)
		if got := g.trajectory(); got.Stop != Answered || *got.Answer != "Ada" || got.Turns[0].Stop != StopWord || got.Truncated() {
			t.Errorf("%s: stop %q, turn stop %q", name, got.Stop, got.Turns[0].Stop)
		}
	}
}

// The turn has n tokens, the message with the result of one byte 9: the closing token, two of
// glue, three of the result and two more.
func TestLimitsBetweenTurns(t *testing.T) {
	turn := newToyVocabulary().EncodePlain("<search>q</search>")
	n := len(turn)
	const message = 8
	for _, c := range []struct {
		name   string
		change func(*Rules)
		called bool
		stop   StopReason // "" goes on
	}{
		{"last turn", func(r *Rules) { r.MaxTurns = 1 }, false, MaxTurns},
		{"no token left in the context", func(r *Rules) { r.ContextLength = promptTokens + n }, false, ContextFull},
		{"no token left in the response", func(r *Rules) { r.MaxResponseTokens = n }, false, MaxResponse},
		{"result fills the context", func(r *Rules) { r.ContextLength = promptTokens + n + message }, true, ContextFull},
		{"result fills the response", func(r *Rules) { r.MaxResponseTokens = n + message }, true, MaxResponse},
		{"result overflows the context", func(r *Rules) { r.ContextLength = promptTokens + n + 3 }, true, ContextFull},
		{"one token left", func(r *Rules) { r.ContextLength = promptTokens + n + message + 1 }, true, ""},
		{"prefill fills the context", func(r *Rules) { r.ContextLength, r.Prefill = promptTokens+1+n+message+1, "x" }, true, ContextFull},
		{"only the prefill fits", func(r *Rules) { r.ContextLength, r.Prefill = promptTokens+1+n+1, "x" }, false, ContextFull},
	} {
		g := newRig(t, c.change)
		g.write(turn...)
		if called := g.last.call != nil; called != c.called {
			t.Errorf("%s: tool called: %v", c.name, called)
			continue
		}
		length := len(g.machine.t.ResponseIDs)
		if c.called {
			g.result("r")
		}
		got := g.trajectory()
		if got.Stop != c.stop {
			t.Errorf("%s: stop %q, want %q", c.name, got.Stop, c.stop)
		}
		if c.stop != "" && (len(got.ResponseIDs) != length || got.Turns[0].Result != "") {
			t.Errorf("%s: the result was appended", c.name)
		}
		if c.stop == "" && g.writing.budget != 1 {
			t.Errorf("%s: budget %d", c.name, g.writing.budget)
		}
	}
}

func TestNoAction(t *testing.T) {
	g := newRig(t, nil)
	g.say("hm" + endOfTurnT)
	if got := g.trajectory(); got.Stop != NoAction || got.Truncated() || len(got.ResponseIDs) != 3 {
		t.Errorf("stop %q after %d tokens", got.Stop, len(got.ResponseIDs))
	}
	// A turn that the model itself ended was not cut, even if nothing more would have fit.
	g = newRig(t, func(r *Rules) { r.ContextLength = promptTokens + 3 })
	g.say("hm" + endOfTurnT)
	if got := g.trajectory(); got.Stop != NoAction || got.Turns[0].Stop != EndOfSequence {
		t.Errorf("stop %q, turn stop %q", got.Stop, got.Turns[0].Stop)
	}
	g = newRig(t, func(r *Rules) { r.CorrectNoAction, r.MaxTurns = true, 3 })
	g.say("hm" + endOfTurnT)
	if !strings.Contains(g.vocabulary.decode(g.last.feed), "act!") || g.machine.t.Turns[0].ToolError != "" {
		t.Errorf("the model is told %q", g.vocabulary.decode(g.last.feed))
	}
	g.say(searchTurn)
	g.result("r")
	g.say("hm" + endOfTurnT)
	if got := g.trajectory(); got.Stop != MaxTurns || len(got.Turns) != 3 {
		t.Errorf("stop %q after %d turns", got.Stop, len(got.Turns))
	}
}

func TestToolErrors(t *testing.T) {
	broken := &retrieval.ServiceError{Service: "search", URL: "http://s", Attempts: 3, Detail: "status 500"}
	for _, c := range []struct {
		name, turn string
		tell       bool
		err        error  // nil: no call is made
		told       string // "": the trajectory fails
	}{
		{"tool that is not offered", "<access>http://example.org</access>", false, nil, "no access here"},
		{"empty query", "<search> </search>", false, nil, "empty search"},
		{"refused address", "<access>http://10.0.0.1</access>", false, &retrieval.RefusedError{URL: "http://10.0.0.1", Reason: "private"}, "http://10.0.0.1: private"},
		{"failure", searchTurn, false, broken, ""},
		{"failure that is told", searchTurn, true, broken, "search broke"},
		{"other error", searchTurn, false, errors.New("odd"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, func(r *Rules) { r.TellToolFailure = c.tell })
			if c.told == "no access here" {
				g.rules.tools.Access = nil
			}
			g.say(c.turn)
			if called := g.last.call != nil; called != (c.err != nil) || g.machine.t.Turns[0].ToolCalled != called {
				t.Fatalf("tool called: %v", called)
			}
			if c.err != nil {
				g.note(g.observe(outcome{err: c.err}))
			}
			got := g.trajectory()
			if got.Turns[0].ToolError == "" {
				t.Error("the error is not filed")
			}
			if c.told == "" {
				if got.Stop != FailedTool || !strings.Contains(got.StopDetail, c.err.Error()) {
					t.Errorf("stop %q, %q", got.Stop, got.StopDetail)
				}
				return
			}
			if want := chat.OpenInformation + c.told + chat.CloseInformation; got.Stop != "" || got.Turns[0].Result != want ||
				!strings.Contains(g.vocabulary.decode(got.ResponseIDs), want) {
				t.Errorf("stop %q, result %q", got.Stop, got.Turns[0].Result)
			}
			g.say(answerTurn)
			if g.trajectory().Stop != Answered {
				t.Errorf("stop %q", got.Stop)
			}
		})
	}
}

func TestTrajectoryWithoutAModelTokenIsFailed(t *testing.T) {
	g := newRig(t, nil)
	g.fail(FailedEngine, "out of device memory")
	if got := g.trajectory(); got.Stop != FailedEngine || got.StopDetail != "no_tokens: out of device memory" || len(got.Turns) != 0 {
		t.Errorf("stop %q, %q, %d turns", got.Stop, got.StopDetail, len(got.Turns))
	}
	g = newRig(t, func(r *Rules) { r.ContextLength = promptTokens })
	if got := g.trajectory(); g.state != terminated || !got.Stop.Failed() || !strings.Contains(got.StopDetail, "no_tokens") || len(g.last.feed) != 0 {
		t.Errorf("a prompt that fills the context: stop %q, %q", got.Stop, got.StopDetail)
	}
}
