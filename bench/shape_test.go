package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

func TestShapeFits(t *testing.T) {
	context := model.Architecture{MaxPositions: 100}
	whole := Shape{PromptTokens: 10, Turns: 3, TurnTokens: 20, ToolTokens: 12, AnswerTokens: 6} // 10 + 60 + 24 + 6
	if err := whole.Fits(context); err != nil {
		t.Errorf("exactly the context: %v", err)
	}
	for name, set := range map[string]func(*Shape){
		"one token more":           func(s *Shape) { s.AnswerTokens++ },
		"turns that wrap around":   func(s *Shape) { s.Turns = math.MaxInt },
		"results that wrap around": func(s *Shape) { s.ToolTokens = math.MaxInt },
		"an answer that does":      func(s *Shape) { s.AnswerTokens = math.MaxInt },
	} {
		shape := whole
		set(&shape)
		err := shape.Fits(context)
		if err == nil {
			t.Errorf("%s: %+v fits in %d positions", name, shape, context.MaxPositions)
			continue
		}
		for _, key := range []string{"prompt_tokens", "turns", "turn_tokens", "tool_tokens", "answer_tokens"} {
			if !strings.Contains(err.Error(), "bench."+key) {
				t.Errorf("%s: bench.%s is not named: %v", name, key, err)
			}
		}
	}
}

func TestShapeFitsRefusesTooManyTrajectories(t *testing.T) {
	context := model.Architecture{MaxPositions: 1 << 11}
	for _, c := range []struct {
		questions, group, prompt int
		want                     string // in the error; "" is none
	}{
		{1 << 10, 1 << 10, 1 << 10, ""},
		{1<<20 + 1, 1, 1, "is 1048577 trajectories, at most 1048576"},
		{1 << 32, 1 << 32, 1, "is 18446744073709551616 trajectories"}, // wraps around to 0
		{1 << 10, 1 << 10, 1<<10 + 1, "is 1048576 trajectories, each of 1025 tokens with its answer; at most 1073741824"},
	} {
		err := Shape{Questions: c.questions, GroupSize: c.group, PromptTokens: c.prompt, Turns: 1}.Fits(context)
		if c.want == "" {
			if err != nil {
				t.Errorf("exactly the most: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "rollout.questions_per_step × rollout.group_size "+c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
