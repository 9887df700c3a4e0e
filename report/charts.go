package report

import (
	"maps"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// unit is how the page writes a figure and scales its axis.
type unit string

const (
	plain     unit = ""      // any number
	share     unit = "share" // 0 to 1
	seconds   unit = "s"
	byteCount unit = "bytes"
)

// chart is one picture of curves.
type chart struct {
	Section string  `json:"section"`
	Title   string  `json:"title"`
	Unit    unit    `json:"unit,omitempty"`
	Curves  []curve `json:"curves"`
}

// curve is one series. At are the positions of its values in the list of steps; a step between two
// of them was not to be measured, a value of null could not be.
type curve struct {
	Name   string   `json:"name"`
	At     []int    `json:"at"`
	Values []*short `json:"values"`
}

// point is a figure of one step.
type point struct {
	at    int // in measured
	value *float64
}

// points are the figures of a metric in the steps that have it.
func (f *folder) points(metric string) []point {
	var all []point
	for k, m := range f.measured {
		if value, measured := m.values[metric]; measured {
			all = append(all, point{k, value})
		}
	}
	return all
}

// perSecond are the tokens that a stage worked on each second, where it had something to do.
func (f *folder) perSecond(tokens, time string) []point {
	all := f.points(tokens)
	for k, p := range all {
		seconds := f.measured[p.at].values[time]
		all[k].value = nil
		if p.value != nil && *p.value > 0 && seconds != nil && *seconds > 0 {
			rate := *p.value / *seconds
			all[k].value = &rate
		}
	}
	return all
}

func newCurve(name string, points []point) curve {
	c := curve{Name: name, At: make([]int, len(points)), Values: make([]*short, len(points))}
	for k, p := range points {
		c.At[k] = p.at
		if p.value != nil {
			value := short(*p.value)
			c.Values[k] = &value
		}
	}
	return c
}

// plan is a chart by the metrics that are in it. A star stands for any text; the curve is named
// after it.
type plan struct {
	section, title string
	unit           unit
	metrics        []named
}

type named struct{ name, metric string }

// stages are those of a step in their order; ofStages names a metric of each, so that a stage has
// one colour in all charts.
var stages = []string{"rollout", "memory_score", "old_log_prob", "ref_log_prob", "update"}

func ofStages(metric func(stage string) string) (all []named) {
	for _, stage := range stages {
		all = append(all, named{stage, metric(stage)})
	}
	return all
}

var plans = []plan{
	{"Outcome", "Score in training", share, []named{
		{"score", metrics.ScoreTotal}, {"exact match", metrics.ScoreEM}, {"F1", metrics.ScoreF1}, {"format kept", metrics.ScoreFormat},
	}},
	{"Outcome", "Exact match in evaluation", share, []named{{"*", metrics.Eval("*/em")}}},
	{"Outcome", "F1 in evaluation", share, []named{{"*", metrics.Eval("*/f1")}}},
	{"Memory", "Memory reward", plain, []named{{"reward", metrics.MemoryReward}}},
	{"Memory", "Probability of the answer", share, []named{{"behind the memory", metrics.MemoryPMem}, {"behind the history", metrics.MemoryPFull}}},
	{"Memory", "Tokens of a memory", plain, []named{{"memory", metrics.MemoryTokens}}},
	{"Learning", "Loss on demonstrations", plain, []named{{"trained on", metrics.LossNLL}, {"evaluated on", metrics.Eval("nll")}}},
	{"Learning", "Deviation before normalising", plain, []named{
		{"scores of a question", metrics.AdvantageOutcomeStd}, {"memory rewards of a pool", metrics.AdvantageMemoryStd},
	}},
	{"Learning", "KL term", plain, []named{{"KL", metrics.LossKL}}},
	{"Learning", "Clipped tokens", share, []named{{"clip fraction", metrics.LossClipFraction}}},
	{"Learning", "Entropy of a token", plain, []named{{"nats", metrics.LossEntropy}}},
	{"Learning", "Loss", plain, []named{{"policy", metrics.LossPolicy}, {"total", metrics.LossTotal}}},
	{"Learning", "Norm of the gradient", plain, []named{{"norm", metrics.LossGradNorm}}},
	{"Trajectories", "Tokens of a response", plain, []named{{"tokens", metrics.RolloutResponseTokens}}},
	{"Trajectories", "Turns", plain, []named{{"turns", metrics.RolloutTurns}}},
	{"Trajectories", "How trajectories ended", share, []named{{"*", metrics.RolloutStop("*")}}},
	{"Speed", "Seconds of a step by stage", seconds, append(ofStages(metrics.Time), named{"*", metrics.Time("*")})},
	{"Speed", "Memory at most", byteCount, []named{{"peak", metrics.MemoryBytesPeak}}},
}

// charts are the pictures of what was measured: those of the plans, the throughput of each stage,
// and one for each figure that is in none of them.
func (f *folder) charts() []*chart {
	left := map[string]bool{} // metrics that are in no chart yet
	for _, m := range f.measured {
		for name := range m.values {
			left[name] = true
		}
	}
	charts := make([]*chart, 0, len(plans)+1)
	for _, p := range plans {
		c := &chart{Section: p.section, Title: p.title, Unit: p.unit}
		for _, wanted := range p.metrics {
			c.Curves = append(c.Curves, take(left, wanted, f.points)...)
		}
		charts = append(charts, c)
	}
	charts = append(charts, f.throughput(left))
	for _, metric := range slices.Sorted(maps.Keys(left)) {
		charts = append(charts, &chart{Section: "More", Title: metric, Curves: take(left, named{metric, metric}, f.points)})
	}
	return slices.DeleteFunc(charts, func(c *chart) bool { return len(c.Curves) == 0 })
}

// throughput is a chart of tokens a second in each stage that counts both; those that are sampled
// are counted apart from those that pass through.
func (f *folder) throughput(left map[string]bool) *chart {
	c := &chart{Section: "Speed", Title: "Tokens a second by stage"}
	for _, stage := range append(stages, "generated") {
		time := metrics.Time(stage)
		if stage == "generated" {
			time = metrics.Time("rollout")
		}
		c.Curves = append(c.Curves, take(left, named{stage, metrics.Tokens(stage)}, func(tokens string) []point { return f.perSecond(tokens, time) })...)
	}
	return c
}

// take makes the curves of the metrics that are wanted, and strikes them off those that are left.
// What was never measured has no curve, nor has one of several that is always 0.
func take(left map[string]bool, wanted named, points func(metric string) []point) (curves []curve) {
	for _, metric := range slices.Sorted(maps.Keys(left)) {
		name, matches := match(wanted, metric)
		if !matches {
			continue
		}
		delete(left, metric)
		all := points(metric)
		several := strings.Contains(wanted.metric, "*")
		if slices.ContainsFunc(all, func(p point) bool { return p.value != nil && (*p.value != 0 || !several) }) {
			curves = append(curves, newCurve(name, all))
		}
	}
	return curves
}

// match tells whether a metric is the one that is wanted, and what its curve is called.
func match(wanted named, metric string) (name string, ok bool) {
	before, after, star := strings.Cut(wanted.metric, "*")
	if !star {
		return wanted.name, metric == wanted.metric
	}
	rest, hasStart := strings.CutPrefix(metric, before)
	word, hasEnd := strings.CutSuffix(rest, after)
	return word, hasStart && hasEnd && word != ""
}
