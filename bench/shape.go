// Package bench times the stages of a step on made-up tokens, counts what they compute and measures
// their memory. What runs is what trains: rollouts are rollout.Run's and a whole step is
// trainer.Step's, with a script in place of text and tools; see script.go.
package bench

import (
	"fmt"

	"github.com/mempo-train/mempo-train/model"
)

// Shape counts what a step consists of. All trajectories are alike.
type Shape struct {
	Questions        int `json:"questions"`
	GroupSize        int `json:"group_size"` // trajectories of each question
	PromptTokens     int `json:"prompt_tokens"`
	Turns            int `json:"turns"`
	TurnTokens       int `json:"turn_tokens"`   // sampled in each turn; more than MemoryTokens
	ToolTokens       int `json:"tool_tokens"`   // between two turns
	MemoryTokens     int `json:"memory_tokens"` // of each turn, its first; 0 is no memory
	AnswerTokens     int `json:"answer_tokens"` // of the golden answer
	MicroBatchTokens int `json:"micro_batch_tokens"`
}

// All trajectories of the step are held in memory, with a dozen bytes and more for each token.
const (
	mostTrajectories = 1 << 20
	mostTokens       = 1 << 30
)

// Fits refuses a shape whose longest sequence, a trajectory with the answer behind it, is longer than
// the context of a model, and one of more trajectories than any step has.
func (s Shape) Fits(a model.Architecture) error {
	// In floating point: any count may be asked for, and integers would wrap around to one that fits.
	turns := float64(s.Turns)
	tokens := float64(s.PromptTokens) + turns*float64(s.TurnTokens) + (turns-1)*float64(s.ToolTokens) + float64(s.AnswerTokens)
	if tokens > float64(a.MaxPositions) {
		return fmt.Errorf("bench.prompt_tokens + bench.turns × bench.turn_tokens + (bench.turns - 1) × bench.tool_tokens + bench.answer_tokens "+
			"is %.0f tokens in one sequence, but the context of the model has %d", tokens, a.MaxPositions)
	}
	trajectories := float64(s.Questions) * float64(s.GroupSize)
	if trajectories > mostTrajectories {
		return fmt.Errorf("rollout.questions_per_step × rollout.group_size is %.0f trajectories, at most %d are allowed here", trajectories, mostTrajectories)
	}
	if trajectories*tokens > mostTokens {
		return fmt.Errorf("rollout.questions_per_step × rollout.group_size is %.0f trajectories, each of %.0f tokens with its answer; at most %d tokens are allowed here",
			trajectories, tokens, mostTokens)
	}
	return nil
}

// Trajectories is their number in the step.
func (s Shape) Trajectories() int { return s.Questions * s.GroupSize }

// ResponseTokens is the length of each response: no tool result follows its last turn.
func (s Shape) ResponseTokens() int { return s.Turns*s.TurnTokens + (s.Turns-1)*s.ToolTokens }

// TrajectoryTokens is the length of each trajectory.
func (s Shape) TrajectoryTokens() int { return s.PromptTokens + s.ResponseTokens() }

// turnStart is the position of a turn, counted from 0, in the response.
func (s Shape) turnStart(turn int) int { return turn * (s.TurnTokens + s.ToolTokens) }

// sampled is the number of tokens that all rollouts sample.
func (s Shape) sampled() int { return s.Trajectories() * s.Turns * s.TurnTokens }

// naiveRollout is the number of tokens that rollouts compute where nothing is kept from turn to turn
// and nothing shared: each turn reads all before it and its own, as Trajectory.TokensProcessed counts.
func (s Shape) naiveRollout() int {
	sum := 0
	for turn := range s.Turns {
		sum += s.PromptTokens + s.turnStart(turn) + s.TurnTokens
	}
	return s.Trajectories() * sum
}
