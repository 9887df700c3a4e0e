package report

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// measuredFolder writes lines of metrics and reads them.
func measuredFolder(t *testing.T, lines string) *folder {
	t.Helper()
	dir := t.TempDir()
	appendText(t, filepath.Join(dir, "metrics.jsonl"), lines)
	f, err := openFolder(dir)
	must(t, err)
	return f
}

func curvesOf(f *folder, title string) []curve {
	for _, c := range f.charts() {
		if c.Title == title {
			return c.Curves
		}
	}
	return nil
}

// values lists a curve with NaN for what could not be measured.
func values(c curve) (all []float64) {
	for _, value := range c.Values {
		if value == nil {
			all = append(all, math.NaN())
		} else {
			all = append(all, float64(*value))
		}
	}
	return all
}

func equalValues(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

func TestCurves(t *testing.T) {
	f := measuredFolder(t, `{"step":1,"score/total":0.25,"memory/reward":null,"rollout/stop/answered":0.5,"rollout/stop/no_action":0,"time/rollout_s":2,"tokens/rollout":100,"tokens/generated":50,"time/update_s":0,"tokens/update":9,"time/memory_score_s":0.5,"tokens/memory_score":0,"memory/std":null,"train/optimizer_steps":1}
{"step":2,"score/total":null,"memory/reward":-0.5,"rollout/stop/answered":1,"rollout/stop/no_action":0,"time/rollout_s":4,"tokens/rollout":null,"tokens/generated":40,"time/update_s":3,"tokens/update":9,"time/memory_score_s":0.5,"tokens/memory_score":0,"memory/std":null,"eval/em":0.5,"eval/limited/em":0.5,"eval/full/em":0.75,"train/optimizer_steps":2}
`)
	nan := math.NaN()
	for title, want := range map[string]map[string]curve{
		"Score in training":          {"score": {At: []int{0, 1}}},
		"Memory reward":              {"reward": {At: []int{0, 1}}},
		"Exact match in evaluation":  {"limited": {At: []int{1}}, "full": {At: []int{1}}},
		"How trajectories ended":     {"answered": {At: []int{0, 1}}},
		"Tokens a second by stage":   {"rollout": {At: []int{0, 1}}, "update": {At: []int{0, 1}}, "generated": {At: []int{0, 1}}},
		"Seconds of a step by stage": {"rollout": {At: []int{0, 1}}, "memory_score": {At: []int{0, 1}}, "update": {At: []int{0, 1}}},
		"train/optimizer_steps":      {"train/optimizer_steps": {At: []int{0, 1}}},
		"eval/em":                    {"eval/em": {At: []int{1}}},
		"memory/std":                 {}, // never measured
		"Probability of the answer":  {},
	} {
		got := curvesOf(f, title)
		if len(got) != len(want) {
			t.Errorf("%s has the curves %v", title, got)
		}
		for _, c := range got {
			if wanted, ok := want[c.Name]; !ok || !slices.Equal(c.At, wanted.At) {
				t.Errorf("%s: %s is at %v", title, c.Name, c.At)
			}
		}
	}
	if got := values(curvesOf(f, "Score in training")[0]); !equalValues(got, []float64{0.25, nan}) {
		t.Errorf("score %v", got)
	}
	for _, c := range curvesOf(f, "Tokens a second by stage") {
		if want := map[string][]float64{"rollout": {50, nan}, "generated": {25, 10}, "update": {nan, 3}}[c.Name]; !equalValues(values(c), want) {
			t.Errorf("throughput of %s: %v, want %v", c.Name, values(c), want)
		}
	}
}

// Every metric of the list that was measured is in a chart, and in one only.
func TestEveryMetricHasAChart(t *testing.T) {
	line := `{"step":1`
	names := []string{
		metrics.ScoreTotal, metrics.ScoreZeroStdGroups, metrics.MemoryStd, metrics.MemoryWeight, metrics.AdvantageMemoryStd, metrics.LossNLL,
		metrics.LossRolloutDifference, metrics.RolloutMalformed, metrics.ToolsLatency, metrics.TrainNonfiniteSteps, metrics.MemoryBytesPeak,
		metrics.RolloutStop("answered"), metrics.Time("step"), metrics.Time("another"), metrics.Tokens("another"), metrics.Eval("limited/turns"), metrics.Eval("nll"),
	}
	for _, name := range names {
		line += `,"` + name + `":0.5`
	}
	curves := 0
	for _, c := range measuredFolder(t, line+"}\n").charts() {
		curves += len(c.Curves)
	}
	if curves != len(names) {
		t.Errorf("%d curves of %d metrics", curves, len(names))
	}
}

func TestHeadlines(t *testing.T) {
	o := overviewOf(t, written(t, makeRun(t, shape{steps: 6, questions: 1, group: 1, turns: 1, text: ordinary})))
	found := map[string]bool{}
	for _, h := range o.Headlines {
		found[h.Name] = true
		switch h.Name {
		case "exact match, limited context":
			if h.From != 2 || h.To != 6 || h.First != 0.5 || h.Last != 0.5 {
				t.Errorf("%+v", h)
			}
		case "exact match in training":
			if h.From != 1 || h.To != 6 || h.First != 0 || h.Last != 0.8333 {
				t.Errorf("%+v", h)
			}
		}
	}
	if !found["exact match, limited context"] || !found["exact match in training"] {
		t.Errorf("headlines %+v", o.Headlines)
	}
	if want := []setting{{"steps", "6"}, {"seed", "7"}, {"trajectories of each", "1"}}; !slices.Equal(o.Settings[1:], want) {
		t.Errorf("settings %v", o.Settings)
	}
	if len(o.Events) != 2 || o.Events[1].Error != "no more disk" || *o.Events[0].Step != 1 {
		t.Errorf("events %+v", o.Events)
	}
}

func TestManyWarnings(t *testing.T) {
	dir := t.TempDir()
	appendText(t, filepath.Join(dir, "log.jsonl"), strings.Repeat("{\"level\":\"warn\",\"ts\":1,\"msg\":\"again\"}\n", 150)+"{\"level\":\"info\",\"ts\":2,\"msg\":\"done\"}\n")
	o := overviewOf(t, written(t, dir))
	if len(o.Events) != 100 || !slices.Contains(o.Notes, "The log has 50 more warnings before those that are shown.") {
		t.Errorf("%d events, notes %v", len(o.Events), o.Notes)
	}
}

func TestThinned(t *testing.T) {
	var files []trajectoryFile
	for step := range int64(10) {
		files = append(files, trajectoryFile{step: step + 1, bytes: 10})
	}
	for limit, want := range map[int64][]int64{
		100: {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 99: {1, 3, 5, 7, 9, 10}, 50: {1, 4, 7, 10}, 30: {1, 6, 10}, 5: {1, 10},
	} {
		var got []int64
		for _, file := range thinned(files, limit) {
			got = append(got, file.step)
		}
		if !slices.Equal(got, want) {
			t.Errorf("within %d bytes: steps %v, want %v", limit, got, want)
		}
	}
	if got := thinned(nil, 5); len(got) != 0 {
		t.Errorf("of no files: %v", got)
	}
	if got := thinned(files[:1], 5); len(got) != 1 {
		t.Errorf("of one file: %v", got)
	}
	f, err := openFolder(makeRun(t, shape{steps: 5, questions: 1, group: 1, turns: 1, text: ordinary}))
	must(t, err)
	blocks, err := f.compressTrajectories(f.trajectories[0].bytes * 3)
	must(t, err)
	if len(blocks) != 3 || !slices.Contains(f.notes, "The trajectories of 2 of 5 steps were left out: all together are too large for one page.") {
		t.Errorf("%d blocks, notes %v", len(blocks), f.notes)
	}
}
