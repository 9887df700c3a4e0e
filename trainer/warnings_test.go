package trainer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/loop"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

func TestQuietMemoryIsReportedOnceAfterTenStepsInARow(t *testing.T) {
	for name, test := range map[string]struct {
		deviations []float64
		want       []int // observations that report
	}{
		"ten":                 {slices.Repeat([]float64{0.01}, 10), []int{10}},
		"nine":                {slices.Repeat([]float64{0.01}, 9), nil},
		"once":                {slices.Repeat([]float64{0.01}, 40), []int{10}},
		"at the limit":        {slices.Repeat([]float64{0.02}, 40), nil},
		"none at all":         {slices.Repeat([]float64{math.NaN()}, 40), nil},
		"a loud step between": {slices.Concat(slices.Repeat([]float64{0}, 9), []float64{0.5}, slices.Repeat([]float64{0}, 11)), []int{20}},
		"no pool between":     {slices.Concat(slices.Repeat([]float64{0}, 9), []float64{math.NaN()}, slices.Repeat([]float64{0}, 9)), nil},
	} {
		var quiet quietMemory
		var got []int
		for k, deviation := range test.deviations {
			if quiet.observe(deviation) {
				got = append(got, k+1)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: reports at %v, want %v", name, got, test.want)
		}
	}
}

// warnings lists the lines that warn, without "warning: ".
func (j *job) warnings() []string {
	var all []string
	for _, line := range j.lines {
		if text, found := strings.CutPrefix(line, "warning: "); found {
			all = append(all, text)
		}
	}
	return all
}

func TestARunWithQuietMemoriesIsWarnedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		want   int
	}{
		"as it is":     {func(*Options) {}, 1},
		"with a floor": {func(o *Options) { o.Advantage.MemoryMinStd = 0.05 }, 0},
		"not blown up": {func(o *Options) { o.Advantage.Normalize = "none" }, 0},
	} {
		o := toyOptions(3)
		test.change(&o)
		core, logs := observer.New(zap.InfoLevel)
		var lines []string
		run := Run{Trainer: &Trainer{Options: o}, Job: loop.Job{Log: zap.New(core), Line: func(line string) { lines = append(lines, line) }}}
		for step := 1; step <= 30; step++ {
			run.warn(step, &Result{Metrics: map[string]float64{metrics.AdvantageMemoryStd: 0.01}})
		}
		if len(lines) != test.want || logs.Len() != test.want {
			t.Errorf("%s: %q, %d in the log", name, lines, logs.Len())
		}
		if test.want == 1 && (!strings.Contains(lines[0], "advantage.memory.min_std") || logs.All()[0].ContextMap()["step"] != int64(10)) {
			t.Errorf("%s: %q, logged as %v", name, lines, logs.All()[0].ContextMap())
		}
	}
}

func TestFailedTrajectoriesAreLoggedOneByOne(t *testing.T) {
	t.Parallel()
	o := toyOptions(3)
	o.Tools.Search = failFor("broken")
	j := newJob(t, t.TempDir(), o, func(key rollout.SeedKey) string {
		if key.Member == 1 && key.Question != "a" && key.Question != "b" {
			return searches("m", "broken")
		}
		return mixed(key)
	}, func(j *job) { j.Steps = 2 })
	j.mustLoop(t)
	var questions []string
	for _, entry := range j.logs.FilterMessage("trajectory failed").All() {
		context := entry.ContextMap()
		if context["member"] != int64(1) || context["stop"] != "failed_tool" || !strings.Contains(fmt.Sprint(context["detail"]), "http://search.test") || context["seconds"].(float64) <= 0 {
			t.Errorf("logged as %v", context)
		}
		questions = append(questions, context["question"].(string))
	}
	slices.Sort(questions)
	if !slices.Equal(questions, []string{"c", "d"}) {
		t.Errorf("failures of %v are in the log", questions)
	}
	said := j.warnings()
	for _, text := range said {
		if !strings.Contains(text, "failed and are left out: 1 of 6, for example because search service http://search.test") {
			t.Errorf("warned of failures with %q", text)
		}
	}
	if len(said) == 0 {
		t.Error("failures show in the log alone")
	}
}

func TestActionsThatCouldNotRunDrawOneWarningWithASample(t *testing.T) {
	t.Parallel()
	j := newJob(t, t.TempDir(), toyOptions(32), func(rollout.SeedKey) string { return "<mem>m</mem><search what was never closed" }, func(j *job) { j.Steps = 1 })
	j.mustLoop(t)
	warnings := j.warnings()
	if len(warnings) != 1 || !strings.Contains(warnings[0], "could not be run: 64,") || !strings.Contains(warnings[0], "<search what was never closed") {
		t.Errorf("warnings %q", warnings)
	}
	for name, want := range map[string]float64{metrics.RolloutMalformed: 64, metrics.RolloutToolCalls: 0, metrics.ScoreFormat: 0} {
		if _, values := series(t, j.Dir.Path(), name); !slices.Equal(values, []float64{want}) {
			t.Errorf("%s is %v, want %v", name, values, want)
		}
	}
}

// What was not measured is not shown as a number.
func TestTheSummaryLeavesOutWhatWasNotMeasured(t *testing.T) {
	m := map[string]float64{metrics.ScoreTotal: 0.5, metrics.ScoreEM: 0, metrics.MemoryReward: math.NaN(), metrics.LossEntropy: math.NaN(), metrics.Time("step"): 1.25}
	line := summary(3, 20, m)
	if !strings.HasPrefix(line, "step 3/20  score 0.500  em 0.000") || strings.Contains(line, "NaN") || strings.Contains(line, "memory") || strings.Contains(line, "eval") || !strings.HasSuffix(line, "  1.3s") {
		t.Errorf("got %q", line)
	}
	m[metrics.MemoryReward] = 0.25
	if line := summary(3, 20, m); !strings.Contains(line, "  memory +0.250  ") {
		t.Errorf("got %q", line)
	}
}
