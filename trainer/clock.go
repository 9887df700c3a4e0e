package trainer

import "time"

// The stages of a step, as they occur in metric names.
const (
	stageRollout = "rollout"
	stageMemory  = "memory_score"
	stageOld     = "old_log_prob"
	stageRef     = "ref_log_prob"
	stageUpdate  = "update"
)

// StageEvaluation is the name of an evaluation between two steps, which is part of no step.
const StageEvaluation = "eval"

// clock measures time and tokens by stage.
type clock struct {
	begun    time.Time
	seconds  map[string]float64
	counters map[string]float64
}

func newClock() *clock {
	return &clock{begun: time.Now(), seconds: map[string]float64{}, counters: map[string]float64{}}
}

// start begins a stage; the function it returns ends it.
func (c *clock) start(stage string) (stop func()) {
	begun := time.Now()
	return func() { c.seconds[stage] += time.Since(begun).Seconds() }
}

// took counts time that a stage took within another one.
func (c *clock) took(stage string, seconds float64) { c.seconds[stage] += seconds }

// tokens counts tokens that went through the model.
func (c *clock) tokens(stage string, n int) { c.counters[stage] += float64(n) }

func (c *clock) total() float64 { return time.Since(c.begun).Seconds() }
