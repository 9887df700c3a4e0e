package trainer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/metrics"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// The parts of the reward are logged as they are, with the weight beside them, and no sum of both.
func TestPartsOfTheRewardAreLoggedRaw(t *testing.T) {
	o := toyOptions(2)
	o.Advantage.MemoryWeight, o.Reward.FormatReward, o.Reward.FormatWeight = 0.3, "bonus", 0.25
	trainer, actor := newToyTrainer(t, o, func(key rollout.SeedKey) string {
		switch {
		case key.Turn == 0:
			return searches("m", "x")
		case key.Member == 0:
			return answers("p=0.5", "A") // no better and no worse than the full context
		}
		return "stray" + answers("p=0.75", "A")
	})
	actor.probability = memoryProbability
	m := step(t, trainer, actor, "a").Metrics
	for name, want := range map[string]float64{
		metrics.ScoreEM: 1, metrics.ScoreFormat: 0.5, metrics.ScoreTotal: 1.125, metrics.MemoryWeight: 0.3,
		metrics.MemoryReward: 0.125, metrics.MemoryPFull: 0.5, metrics.MemoryPMem: 0.625,
	} {
		if !near(m[name], want) {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
}

// expected are metrics computed anew from the records of a step, by other means than the step did.
func expected(records []*rollout.Record) map[string]float64 {
	groups := map[string][]float64{}
	pools := map[string][]float64{}
	lists := map[string][]float64{}
	add := func(name string, value float64) { lists[name] = append(lists[name], value) }
	for _, record := range records {
		if record.Stop.Failed() {
			continue
		}
		group := fmt.Sprint(record.QuestionID, record.Draw)
		groups[group] = append(groups[group], float64(*record.Score))
		add(metrics.ScoreTotal, float64(*record.Score))
		add(metrics.ScoreEM, float64(record.Rewards["em"]))
		add(metrics.ScoreF1, float64(record.Rewards["f1"]))
		add(metrics.ScoreFormat, float64(record.Rewards["format"]))
		add(metrics.RolloutTurns, float64(len(record.Turns)))
		add(metrics.RolloutResponseTokens, float64(len(record.ResponseIDs)))
		for _, turn := range record.Turns {
			if turn.Memory != nil {
				add(metrics.MemoryTokens, float64(turn.Memory[1]-turn.Memory[0]))
			}
			if turn.MemoryReward != nil {
				pools[group] = append(pools[group], float64(*turn.MemoryReward))
				add(metrics.MemoryReward, float64(*turn.MemoryReward))
				add(metrics.MemoryPFull, float64(*turn.PFull))
				add(metrics.MemoryPMem, float64(*turn.PMem))
			}
		}
	}
	want := map[string]float64{}
	for name, values := range lists {
		want[name] = average(values)
	}
	want[metrics.MemoryStd] = spread(lists[metrics.MemoryReward])
	var deviations []float64
	size, sum := 0.0, 0.0
	for group, scores := range groups {
		deviations = append(deviations, spread(scores))
		if pool := pools[group]; len(pool) > 1 {
			size += float64(len(pool))
			sum += float64(len(pool)) * spread(pool)
		}
	}
	want[metrics.AdvantageOutcomeStd], want[metrics.AdvantageMemoryStd] = average(deviations), sum/size
	return want
}

func average(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(len(values))
}

// spread is the unbiased deviation by all pairs: the mean of (x − y)² over pairs is twice the variance.
func spread(values []float64) float64 {
	sum, pairs := 0.0, 0.0
	for i, x := range values {
		for _, y := range values[:i] {
			sum += (x - y) * (x - y)
			pairs++
		}
	}
	return math.Sqrt(sum / pairs / 2)
}

// uneven writes groups of unlike sizes and lengths: of question "b" one trajectory fails.
func uneven(key rollout.SeedKey) string {
	n := len(key.Question) + key.Member + 2*key.Turn + int(key.Question[0]-'a')
	memory := strings.Repeat("m", n%7)
	if key.Question == "b" && key.Member == 1 {
		return searches(memory, "broken")
	}
	if key.Turn < (key.Member+int(key.Question[0]))%4 {
		return searches(memory, "x")
	}
	return answers(memory, []string{strings.ToUpper(key.Question), "no", strings.ToUpper(key.Question) + " b"}[n%3])
}

func TestMeansAreWeightedByTrueCounts(t *testing.T) {
	o := toyOptions(5)
	o.Tools.Search = failFor("broken")
	trainer, actor := newToyTrainer(t, o, uneven)
	result := step(t, trainer, actor, "a", "b", "c", "d", "a")
	want := expected(result.Records)
	if len(want) != 13 || want[metrics.MemoryStd] == 0 || want[metrics.ScoreF1] == want[metrics.ScoreEM] {
		t.Fatalf("the trajectories test nothing: %v", want)
	}
	for name, value := range want {
		if !near(result.Metrics[name], value) {
			t.Errorf("%s is %v, want %v", name, result.Metrics[name], value)
		}
	}
	var entropy []float64
	for _, row := range actor.rows() {
		for _, position := range row.Positions {
			entropy = append(entropy, float64(toyEntropy(row.IDs[position])))
		}
	}
	if got := result.Metrics[metrics.LossEntropy]; !near(got, average(entropy)) {
		t.Errorf("entropy %v, want %v", got, average(entropy))
	}
}

func TestTokensAndTimesOfEveryStage(t *testing.T) {
	o := toyOptions(4)
	o.Update.PPOEpochs = 2
	trainer, actor := newToyTrainer(t, o, mixed)
	m := step(t, trainer, actor, "a", "b").Metrics
	memory, old := 0.0, 0.0
	for _, call := range actor.calls {
		for _, row := range call.rows {
			if call.temperature == memoryTemperature {
				memory += float64(len(row.IDs))
			} else {
				old += float64(len(row.IDs))
			}
		}
	}
	sampled := 0.0
	for _, row := range actor.rows() {
		sampled += float64(len(row.Positions)) / 2 // in two epochs
	}
	for stage, want := range map[string]float64{stageMemory: memory, stageOld: old, stageRef: old, stageUpdate: 2 * old, "generated": sampled} {
		if got := m[metrics.Tokens(stage)]; got != want || want == 0 {
			t.Errorf("%v tokens of %s, want %v", got, stage, want)
		}
	}
	// Each prompt once, and of each trajectory all tokens but the last.
	if got := m[metrics.Tokens(stageRollout)]; got < sampled || got >= old {
		t.Errorf("%v tokens went through the model in generation", got)
	}
	total := 0.0
	for _, stage := range []string{stageRollout, stageMemory, stageOld, stageRef, stageUpdate} {
		if m[metrics.Time(stage)] <= 0 {
			t.Errorf("%s took %v s", stage, m[metrics.Time(stage)])
		}
		total += m[metrics.Time(stage)]
	}
	if whole := m[metrics.Time("step")]; whole < total {
		t.Errorf("the step took %v s, its stages %v", whole, total)
	}
	if m[metrics.MemoryBytesPeak] != 1<<20 || m[metrics.LossLearningRate] != 0.5 || actor.rates[0] != 0.5 {
		t.Errorf("peak %v, learning rate %v, in use %v", m[metrics.MemoryBytesPeak], m[metrics.LossLearningRate], actor.rates)
	}
}

// Whatever happens in a step, its metrics and records can be written, and NaN never is.
func TestMetricsAndRecordsCanAlwaysBeWritten(t *testing.T) {
	tests := map[string]func(*Options, *toyActor){
		"a full step":         func(*Options, *toyActor) {},
		"no memory reward":    func(o *Options, _ *toyActor) { o.Reward.MemoryReward = "off" },
		"all masked":          func(o *Options, _ *toyActor) { o.Reward.Truncated, o.Rollout.MaxTurns = "mask", 1 },
		"probabilities NaN":   func(_ *Options, a *toyActor) { a.probability = func(string) float64 { return math.NaN() } },
		"weights NaN":         func(_ *Options, a *toyActor) { a.weights['m'*width] = float32(math.NaN()) },
		"gradient NaN":        func(_ *Options, a *toyActor) { a.poison = func(int) bool { return true } },
		"log-probs infinite":  func(_ *Options, a *toyActor) { a.logProb = func([]int32) float32 { return float32(math.Inf(-1)) } },
		"some fail":           func(o *Options, _ *toyActor) { o.Tools.Search = failFor("x") },
		"dropped equal group": func(o *Options, _ *toyActor) { o.Advantage.DropEqualGroups = true },
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			o := toyOptions(4)
			actor := newToyActor(t, mixed)
			arrange(&o, actor)
			actor.expect(o, []string{"a"}, 1, 1)
			trainer, err := New(actor, actor.frozen(0.1), o, Watch{})
			if err != nil {
				t.Fatal(err)
			}
			result := step(t, trainer, actor, "a")
			checkWritable(t, result)
		})
	}
}

func checkWritable(t *testing.T, result *Result) {
	t.Helper()
	dir, err := rundir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	writer, err := metrics.Open(dir.MetricsPath(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.Write(1, result.Metrics); err != nil {
		t.Error(err)
	}
	if err := rundir.WriteTrajectories(dir, 1, result.Records); err != nil {
		t.Error(err)
	}
	for _, path := range []string{dir.MetricsPath(), filepath.Join(dir.Path(), "trajectories", "step_000001.jsonl")} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte("NaN")) || bytes.Contains(data, []byte("Inf")) {
			t.Errorf("%s holds a number that is none", path)
		}
		for line := range bytes.Lines(data) {
			if !json.Valid(line) {
				t.Errorf("%s holds %.80q", path, line)
			}
		}
	}
	for name := range result.Metrics {
		if !metrics.Known(name) {
			t.Errorf("%s is not on the list of metrics", name)
		}
	}
}

// Every name that is given in public and belongs to a step is there.
func TestAStepReportsEveryMetric(t *testing.T) {
	trainer, actor := newToyTrainer(t, toyOptions(4), mixed)
	m := step(t, trainer, actor, "a").Metrics
	names := []string{
		"score/total", "score/em", "score/f1", "score/format", "score/std_zero_groups",
		"memory/reward", "memory/p_full", "memory/p_mem", "memory/std", "memory/tokens", "memory/weight",
		"advantage/outcome_std", "advantage/memory_std",
		"loss/policy", "loss/kl", "loss/total", "loss/clip_fraction", "loss/entropy", "loss/grad_norm", "loss/learning_rate", "loss/rollout_difference",
		"rollout/turns", "rollout/response_tokens", "rollout/tool_calls", "rollout/truncated", "rollout/malformed", "rollout/result_cut",
		"tools/failed", "tools/timeouts", "tools/cache_hits", "tools/latency_s",
		"train/groups_left_out", "train/nonfinite_steps", "train/optimizer_steps", "memory_bytes/peak", "time/step_s",
	}
	for _, stage := range []string{"rollout", "memory_score", "old_log_prob", "ref_log_prob", "update"} {
		names = append(names, "time/"+stage+"_s", "tokens/"+stage)
	}
	shares := 0.0
	for _, reason := range rollout.StopReasons() {
		names = append(names, "rollout/stop/"+string(reason))
		shares += m["rollout/stop/"+string(reason)]
	}
	for _, name := range names {
		if value, there := m[name]; !there || math.IsNaN(value) {
			t.Errorf("%s is %v, %v", name, value, there)
		}
	}
	if !near(shares, 1) {
		t.Errorf("the stop reasons add up to %v", shares)
	}
}

func TestRecordsAreAlignedWithTheirTokens(t *testing.T) {
	o := toyOptions(5)
	o.Tools.Search = failFor("broken")
	trainer, actor := newToyTrainer(t, o, uneven)
	result := step(t, trainer, actor, "a", "b")
	if len(result.Records) != 10 {
		t.Fatalf("%d records", len(result.Records))
	}
	for k, record := range result.Records {
		if record.Member != k%5 || record.Draw != k/5 || record.QuestionID != string("ab"[k/5]) || record.Step != 1 {
			t.Errorf("record %d is member %d of question %s", k, record.Member, record.QuestionID)
		}
		n := len(record.ResponseIDs)
		if len(record.ResponseMask) != n || len(record.LogProbs) != n || len(record.Advantages) != n {
			t.Fatalf("record %d: %d ids, %d mask, %d log-probs, %d advantages", k, n, len(record.ResponseMask), len(record.LogProbs), len(record.Advantages))
		}
		checkAdvantages(t, record)
		if !strings.Contains(record.Prompt, "who is") {
			t.Errorf("the prompt reads %q", record.Prompt)
		}
	}
}

// checkAdvantages lays a record's advantages over its tokens anew.
func checkAdvantages(t *testing.T, record *rollout.Record) {
	t.Helper()
	want := make([]float64, len(record.ResponseIDs))
	for _, turn := range record.Turns {
		for k := turn.Tokens[0]; k < turn.Tokens[1] && !record.Stop.Failed(); k++ {
			want[k] = float64(record.Rewards["outcome_advantage"])
		}
		if turn.MemoryReward == nil {
			continue
		}
		if !near(float64(*turn.MemoryReward), float64(*turn.PMem-*turn.PFull)) {
			t.Errorf("memory reward %v of %v − %v", *turn.MemoryReward, *turn.PMem, *turn.PFull)
		}
		for k := turn.Memory[0]; k < turn.Memory[1]; k++ {
			want[k] += float64(*turn.MemoryAdvantage)
		}
	}
	for k, advantage := range record.Advantages {
		if !near(float64(advantage), want[k]) {
			t.Fatalf("token %d of %s/%d has advantage %v, want %v", k, record.QuestionID, record.Member, advantage, want[k])
		}
	}
}

// The rows of the extra pass are what the definition says, answer token by answer token.
func TestMemoryIsMeasuredInItsTwoContexts(t *testing.T) {
	trainer, actor := newToyTrainer(t, toyOptions(2), scripted([]string{searches("one", "x"), answers("two", "A")}, []string{answers("alone", "no")}))
	result := step(t, trainer, actor, "a")
	rows := actor.calls[0].rows
	if len(rows) != 2 || actor.calls[0].temperature != 1 {
		t.Fatalf("%d rows at temperature %v", len(rows), actor.calls[0].temperature)
	}
	found := "\n<information>\nDoc 1(Title: \"T\") about x\n</information>\nA: "
	for k, want := range []string{"Q: who is a?\nA: " + searches("one", "x") + found + "<answer>A", "Q: who is a?\nA: <mem>two</mem><answer>A"} {
		if got := decode(rows[k].IDs); got != want || !slices.Equal(rows[k].Positions, []int32{int32(len(want)) - 1}) {
			t.Errorf("row %d is %q with positions %v, want %q", k, got, rows[k].Positions, want)
		}
	}
	turn := result.Records[0].Turns[1]
	start := toyScorer{weights: make([]float32, len(actor.weights))} // as before the update
	full, mem := math.Exp(float64(start.last(rows[0].IDs))), math.Exp(float64(start.last(rows[1].IDs)))
	if !near(float64(*turn.PFull), full) || !near(float64(*turn.PMem), mem) || !near(float64(*turn.MemoryReward), mem-full) {
		t.Errorf("%v − %v = %v, want %v − %v", *turn.PMem, *turn.PFull, *turn.MemoryReward, mem, full)
	}
}

func TestMemoryRewardForms(t *testing.T) {
	for name, test := range map[string]struct {
		reward, prob string
		want         float64
	}{
		"difference": {"mem_minus_full", "geometric", 0.2},
		"alone":      {"mem", "geometric", 0.7},
		"product":    {"mem", "product", 0.7 * 0.7 * 0.7},
	} {
		o := toyOptions(2)
		o.Reward.MemoryReward, o.Reward.AnswerProb = test.reward, test.prob
		trainer, actor := newToyTrainer(t, o, scripted([]string{searches("m", "x"), answers("p=0.7", "no")}))
		actor.probability = memoryProbability
		drawn := drawn("a")
		drawn[0].Question.Objectives = [][]string{{" A\n", "other"}} // trimmed; the first one counts
		if name == "product" {
			drawn[0].Question.Objectives = [][]string{{"ABC"}}
		}
		result, err := trainer.Step(t.Context(), 1, drawn)
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(*result.Records[0].Turns[1].MemoryReward); !near(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	o := toyOptions(2)
	o.Reward.MemoryReward = "off"
	trainer, actor := newToyTrainer(t, o, scripted([]string{searches("m", "x"), answers("m", "A")}))
	m := step(t, trainer, actor, "a").Metrics
	if _, timed := m[metrics.Time(stageMemory)]; timed || !math.IsNaN(m[metrics.MemoryReward]) || !math.IsNaN(m[metrics.MemoryStd]) {
		t.Errorf("off: timed %v, reward %v, deviation %v", timed, m[metrics.MemoryReward], m[metrics.MemoryStd])
	}
	for _, call := range actor.calls {
		if call.temperature == memoryTemperature {
			t.Error("off: memories were scored")
		}
	}
}
