package advantage

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// The golden numbers were computed in float32.
const tolerance = 2e-5

func readGolden(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func near(a, b, relative float64) bool {
	return math.Abs(a-b) <= relative*max(1, math.Abs(a), math.Abs(b))
}

// byGroup splits trajectories by question, in order of appearance; the values are indices.
func byGroup(names []string) [][]int {
	var groups [][]int
	seen := map[string]int{}
	for i, name := range names {
		k, ok := seen[name]
		if !ok {
			k = len(groups)
			seen[name] = k
			groups = append(groups, nil)
		}
		groups[k] = append(groups[k], i)
	}
	return groups
}

func pick[T any](values []T, indices []int) []T {
	out := make([]T, len(indices))
	for k, i := range indices {
		out[k] = values[i]
	}
	return out
}

func sourceOptions() Options {
	o := Default()
	o.Single, o.MinGroup = "score", 1
	return o
}

func TestGoldenGRPO(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name       string
			Scores     []float64
			Groups     []string
			Advantages []float64
			NoStd      []float64 `json:"advantages_no_std"`
		}
		Table struct {
			Scores     []float64
			Groups     []string
			Mask       [][]int
			Advantages [][]float64
		}
	}
	readGolden(t, "grpo.json", &golden)
	if len(golden.Cases) < 10 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		for _, group := range byGroup(c.Groups) {
			o := sourceOptions()
			withStd, err := Compute(pick(c.Scores, group), nil, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			o.Normalize = "none"
			noStd, err := Compute(pick(c.Scores, group), nil, nil, o)
			if err != nil {
				t.Fatal(err)
			}
			for k, i := range group {
				slack, noStdSlack := tolerance, 1e-7
				if c.Name == "large_values" { // the float32 mean of scores near 10⁴ is off by 6e-4
					slack, noStdSlack = 2e-3, 1e-3
				}
				if !near(withStd.Outcome[k], c.Advantages[i], slack) {
					t.Errorf("%s %d: %v, want %v", c.Name, i, withStd.Outcome[k], c.Advantages[i])
				}
				if !near(noStd.Outcome[k], c.NoStd[i], noStdSlack) {
					t.Errorf("%s %d without the deviation: %v, want %v", c.Name, i, noStd.Outcome[k], c.NoStd[i])
				}
			}
		}
	}
	checkTable(t, golden.Table.Scores, golden.Table.Groups, golden.Table.Mask, golden.Table.Advantages)
}

func checkTable(t *testing.T, scores []float64, groups []string, mask [][]int, want [][]float64) {
	t.Helper()
	for _, group := range byGroup(groups) {
		a, err := Compute(pick(scores, group), nil, nil, sourceOptions())
		if err != nil {
			t.Fatal(err)
		}
		for k, i := range group {
			row, err := Broadcast(bools(mask[i]), nil, a.Outcome[k], nil, 1)
			if err != nil {
				t.Fatal(err)
			}
			compareRow(t, row, want[i])
		}
	}
}

func bools(mask []int) []bool {
	out := make([]bool, len(mask))
	for k, m := range mask {
		out[k] = m != 0
	}
	return out
}

func compareRow(t *testing.T, got []float32, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d tokens, want %d", len(got), len(want))
	}
	for k := range want {
		if !near(float64(got[k]), want[k], tolerance) {
			t.Errorf("token %d: %v, want %v", k, got[k], want[k])
		}
	}
}

type goldenTrajectory struct {
	Question string
	Outcome  float64
	Mask     []int `json:"response_mask"`
	Memories []struct {
		Turn  int
		Value float64
		Span  [2]int
	}
}

// inputs of one question, with one entry per memory: turn numbers do not matter to a pool over
// the whole question.
func inputs(trajectories []goldenTrajectory) (scores []float64, memory [][]float64, spans [][]Span) {
	for _, trajectory := range trajectories {
		var values []float64
		var places []Span
		for _, m := range trajectory.Memories {
			values = append(values, m.Value)
			places = append(places, Span{m.Span[0], m.Span[1]})
		}
		scores = append(scores, trajectory.Outcome)
		memory = append(memory, values)
		spans = append(spans, places)
	}
	return scores, memory, spans
}

func TestGoldenMemPO(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name         string
			Weight       float64 `json:"mem_weight"`
			Trajectories []goldenTrajectory
			Expected     struct {
				Outcome   []float64   `json:"outcome_advantage"`
				Memory    [][]float64 `json:"mem_advantage"`
				Final     [][]float64
				FinalZero [][]float64 `json:"final_if_single_value_pool_is_zero"`
			}
		}
	}
	readGolden(t, "mempo_advantage.json", &golden)
	if len(golden.Cases) < 8 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		final := c.Expected.Final
		if c.Expected.FinalZero != nil {
			final = c.Expected.FinalZero
		}
		var questions []string
		for _, trajectory := range c.Trajectories {
			questions = append(questions, trajectory.Question)
		}
		for _, group := range byGroup(questions) {
			scores, memory, spans := inputs(pick(c.Trajectories, group))
			a, err := Compute(scores, memory, nil, sourceOptions())
			if err != nil {
				t.Fatal(err)
			}
			for k, i := range group {
				if !near(a.Outcome[k], c.Expected.Outcome[i], tolerance) {
					t.Errorf("%s %d: outcome %v, want %v", c.Name, i, a.Outcome[k], c.Expected.Outcome[i])
				}
				for m, value := range a.Memory[k] {
					if c.Expected.FinalZero == nil && !near(value, c.Expected.Memory[i][m], tolerance) {
						t.Errorf("%s %d: memory %d is %v, want %v", c.Name, i, m, value, c.Expected.Memory[i][m])
					}
				}
				row, err := Broadcast(bools(c.Trajectories[i].Mask), spans[k], a.Outcome[k], a.Memory[k], c.Weight)
				if err != nil {
					t.Fatal(err)
				}
				compareRow(t, row, final[i])
			}
		}
	}
}
