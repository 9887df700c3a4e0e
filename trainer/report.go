package trainer

import (
	"math"

	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// stepData is everything a step computed, for its report.
type stepData struct {
	graded     []Graded
	stats      rollout.Stats
	ungraded   int
	memories   Memories
	advantages []GroupAdvantages
	plan       *Plan
	scores     *ResponseScores
	losses     *Losses
	clock      *clock
}

// mean averages what it is given; NaN, no measure, of nothing.
type mean struct{ sum, weight float64 }

func (m *mean) add(value float64) { m.addWeighted(value, 1) }

func (m *mean) addWeighted(value, weight float64) {
	m.sum += value * weight
	m.weight += weight
}

func (m *mean) value() float64 { return m.sum / m.weight }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// report turns a step into metrics and records.
func (t *Trainer) report(step int, d *stepData) (*Result, error) {
	values := map[string]float64{}
	d.outcomeMetrics(values)
	d.memoryMetrics(values)
	d.lossMetrics(values)
	d.rolloutMetrics(values)
	if t.Reward.Grader != nil {
		values[metrics.RewardFailed] = float64(d.ungraded)
	}
	values[metrics.MemoryWeight] = t.Advantage.MemoryWeight
	values[metrics.TrainOptimizerSteps] = float64(t.Counters.OptimizerSteps)
	values[metrics.TrainNonfiniteSteps] = float64(t.Counters.NonfiniteSteps)
	usage, err := t.actor.MemoryUsage()
	if err != nil {
		return nil, err
	}
	values[metrics.MemoryBytesPeak] = float64(usage.Peak)
	for stage, seconds := range d.clock.seconds {
		values[metrics.Time(stage)] = seconds
		values[metrics.Tokens(stage)] = d.clock.counters[stage]
	}
	values[metrics.Time("step")] = d.clock.total()
	return &Result{Metrics: values, Records: t.records(step, d), Malformed: d.stats.MalformedSample}, nil
}

// outcomeMetrics are means over the trajectories that did not fail, and over the questions that
// have two of them.
func (d *stepData) outcomeMetrics(values map[string]float64) {
	var total, em, f1, format, equal, outcomeStd mean
	trained := map[int]bool{}
	for _, row := range d.plan.trained() {
		trained[d.plan.rows[row].group] = true
	}
	for g, group := range d.graded {
		for i, trajectory := range group.Trajectories {
			if trajectory.Stop.Failed() {
				continue
			}
			outcome := group.Outcomes[i]
			total.add(outcome.Score)
			em.add(outcome.EM)
			f1.add(outcome.F1)
			format.add(boolean(outcome.FormatOK))
		}
		if d.advantages[g].Valid > 1 {
			equal.add(boolean(d.advantages[g].Equal))
			outcomeStd.add(d.advantages[g].OutcomeStd)
		}
	}
	values[metrics.ScoreTotal], values[metrics.ScoreEM] = total.value(), em.value()
	values[metrics.ScoreF1], values[metrics.ScoreFormat] = f1.value(), format.value()
	values[metrics.ScoreZeroStdGroups] = equal.value()
	values[metrics.AdvantageOutcomeStd] = outcomeStd.value()
	values[metrics.TrainGroupsLeftOut] = float64(len(d.graded) - len(trained))
}

// memoryMetrics are means over the turns that have a memory reward; of memory/tokens, over those
// that have a memory. Failed trajectories have no reward.
func (d *stepData) memoryMetrics(values map[string]float64) {
	var pFull, pMem, reward, tokens, poolStd mean
	var rewards []float64
	for g, group := range d.graded {
		poolStd.addWeighted(d.advantages[g].MemoryStd, float64(d.advantages[g].MemoryCount))
		for i, trajectory := range group.Trajectories {
			for k, turn := range trajectory.Turns {
				if turn.HasMemory && !trajectory.Stop.Failed() {
					tokens.add(float64(turn.Memory.Len()))
				}
				if m := d.memories[g][i][k]; !math.IsNaN(m.Reward) {
					pFull.add(m.PFull)
					pMem.add(m.PMem)
					reward.add(m.Reward)
					rewards = append(rewards, m.Reward)
				}
			}
		}
	}
	values[metrics.MemoryReward], values[metrics.MemoryTokens] = reward.value(), tokens.value()
	values[metrics.MemoryPFull], values[metrics.MemoryPMem] = pFull.value(), pMem.value()
	values[metrics.MemoryStd], values[metrics.AdvantageMemoryStd] = deviation(rewards, reward.value()), poolStd.value()
}

// deviation is the unbiased standard deviation about a mean; NaN of fewer than two values.
func deviation(values []float64, mean float64) float64 {
	if len(values) < 2 {
		return math.NaN()
	}
	squares := 0.0
	for _, value := range values {
		squares += (value - mean) * (value - mean)
	}
	return math.Sqrt(squares / float64(len(values)-1))
}

// lossMetrics are means over mini-batches, and over trained tokens where they are per token. The
// loss of a step that trained on nothing is 0; its entropy is not measured.
func (d *stepData) lossMetrics(values map[string]float64) {
	l, n := d.losses, max(1, float64(d.losses.Minibatches))
	values[metrics.LossPolicy], values[metrics.LossKL] = l.Policy/n, l.KL/n
	values[metrics.LossTotal] = (l.Policy + l.KL) / n
	values[metrics.LossClipFraction] = l.Clipped / max(1, l.Tokens)
	values[metrics.LossGradNorm], values[metrics.LossLearningRate] = l.GradNorm, l.LearningRate
	var entropy, difference mean
	for _, row := range d.plan.trained() {
		start := d.scores.Start[row]
		for n, logProb := range start.LogProbs {
			entropy.add(float64(start.Entropy[n]))
			difference.add(math.Abs(float64(d.plan.rows[row].sampled[n]) - float64(logProb)))
		}
	}
	values[metrics.LossEntropy], values[metrics.LossRolloutDifference] = entropy.value(), difference.value()
}

// rolloutMetrics are means over the trajectories that did not fail, counts of tool calls and of
// what went wrong with them, and the share of all trajectories that ended for each reason.
func (d *stepData) rolloutMetrics(values map[string]float64) {
	var turns, tokens, truncated, latency mean
	stops := map[rollout.StopReason]float64{}
	all := 0.0
	for _, group := range d.graded {
		for _, trajectory := range group.Trajectories {
			all++
			stops[trajectory.Stop]++
			if trajectory.Stop.Failed() {
				continue
			}
			turns.add(float64(len(trajectory.Turns)))
			tokens.add(float64(len(trajectory.ResponseIDs)))
			truncated.add(boolean(trajectory.Truncated()))
		}
	}
	for _, seconds := range d.stats.ToolLatencies {
		latency.add(seconds.Seconds())
	}
	for _, reason := range rollout.StopReasons() {
		values[metrics.RolloutStop(string(reason))] = stops[reason] / all
	}
	values[metrics.RolloutTurns], values[metrics.RolloutResponseTokens] = turns.value(), tokens.value()
	values[metrics.RolloutTruncated] = truncated.value()
	values[metrics.RolloutToolCalls] = float64(d.stats.ToolCalls)
	values[metrics.RolloutMalformed] = float64(d.stats.Malformed)
	values[metrics.RolloutResultCut] = float64(d.stats.ResultsCut)
	values[metrics.RolloutMemoryCut] = float64(d.stats.MemoriesCut)
	values[metrics.RolloutPutAside] = float64(d.stats.PutAside)
	values[metrics.ToolsFailed], values[metrics.ToolsTimeouts] = float64(d.stats.ToolFailures), float64(d.stats.ToolTimeouts)
	values[metrics.ToolsCacheHits] = float64(d.stats.ToolCacheHits)
	values[metrics.ToolsLatency] = latency.value()
	values[metrics.Tokens("generated")] = float64(d.stats.GeneratedTokens)
}

// records are the trajectories with their rewards and advantages, for people and scripts to read.
func (t *Trainer) records(step int, d *stepData) []*rollout.Record {
	var all []*rollout.Record
	for g, group := range d.graded {
		for i, trajectory := range group.Trajectories {
			record := rollout.NewRecord(step, group.Question, group.Draw, trajectory, t.Decode)
			record.Advantages = d.advantages[g].Tokens[i]
			if !trajectory.Stop.Failed() {
				outcome := group.Outcomes[i]
				record.Score = number(outcome.Score)
				record.Rewards = map[string]rollout.Number{
					"em": rollout.Number(outcome.EM), "f1": rollout.Number(outcome.F1),
					"format": rollout.Number(boolean(outcome.FormatOK)), "outcome_advantage": rollout.Number(d.advantages[g].Outcome[i]),
				}
			}
			for k := range record.Turns {
				if m := d.memories[g][i][k]; !math.IsNaN(m.Reward) {
					turn := &record.Turns[k]
					turn.PFull, turn.PMem, turn.MemoryReward = number(m.PFull), number(m.PMem), number(m.Reward)
					turn.MemoryAdvantage = number(d.advantages[g].Memory[i][k])
				}
			}
			all = append(all, record)
		}
	}
	return all
}

func number(value float64) *rollout.Number {
	n := rollout.Number(value)
	return &n
}
