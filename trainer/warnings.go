package trainer

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// A pool of memory rewards this close to equal is noise that normalising blows up.
const (
	quietDeviation = 0.02
	quietSteps     = 10
)

// quietMemory counts steps in a row whose memory rewards hardly differ.
type quietMemory struct {
	inARow int
	warned bool
}

// observe returns true once: when the deviation stayed below quietDeviation for quietSteps.
func (q *quietMemory) observe(deviation float64) bool {
	if !(deviation < quietDeviation) { // NaN, no pool, ends a row too
		q.inARow = 0
		return false
	}
	q.inARow++
	if q.inARow < quietSteps || q.warned {
		return false
	}
	q.warned = true
	return true
}

// warn tells of what a user should look at, each once a step at most; failed trajectories go to the
// log one by one, too.
func (r *Run) warn(step int, result *Result) {
	failed, detail := 0, ""
	for _, record := range result.Records {
		if record.Stop.Failed() {
			failed, detail = failed+1, record.StopDetail
			r.Log.Warn("trajectory failed", zap.Int("step", step), zap.String("question", record.QuestionID), zap.Int("member", record.Member),
				zap.String("stop", string(record.Stop)), zap.String("detail", record.StopDetail), zap.Float64("seconds", record.ElapsedSeconds))
		}
	}
	if failed > 0 {
		r.say(step, fmt.Sprintf("trajectories that failed and are left out: %d of %d, for example because %s", failed, len(result.Records), detail))
	}
	blownUp := r.Advantage.MemoryMinStd == 0 && r.Advantage.Normalize == "std"
	if blownUp && r.quiet.observe(result.Metrics[metrics.AdvantageMemoryStd]) {
		r.say(step, fmt.Sprintf("the memory rewards of a question deviate by less than %g for %d steps and are blown up to ±1 all the same; advantage.memory.min_std puts a floor under the deviation", quietDeviation, quietSteps))
	}
	if result.Malformed != "" {
		r.say(step, fmt.Sprintf("turns whose action could not be run: %.0f, for example %.200q", result.Metrics[metrics.RolloutMalformed], result.Malformed))
	}
	if skipped := int64(result.Metrics[metrics.TrainNonfiniteSteps]); skipped > r.skipped {
		r.skipped = skipped
		r.say(step, fmt.Sprintf("loss or gradient was not finite: the optimiser step was skipped; its batch is in %s", r.Dir.TrajectoriesPath(int64(step))))
	}
	if text := r.micro.News(); text != "" {
		r.say(step, text)
	}
}

func (r *Run) say(step int, text string) {
	r.Log.Warn(text, zap.Int("step", step))
	r.Line("warning: " + text)
}
