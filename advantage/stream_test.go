package advantage

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

func stream(t *testing.T, line string) result {
	t.Helper()
	var out strings.Builder
	if err := Stream(strings.NewReader(line), &out); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	var r result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStream(t *testing.T) {
	for _, test := range []struct {
		line    string
		outcome []float64
		memory  [][]float64
	}{
		{`{"scores":[1,null,0,1]}`, []float64{0.57735, 0, -1.1547, 0.57735}, [][]float64{{}, {}, {}, {}}},
		{`{"scores":[1,0,5,1],"failed":[false,false,true,false],"memory_rewards":[[null,0.2],[null,0.4],[null,9],[null,null]]}`, []float64{0.57735, -1.1547, 0, 0.57735}, [][]float64{{0, -0.70711}, {0, 0.70711}, {0, 0}, {0, 0}}},
		{`{"scores":[0.7]}`, []float64{0}, [][]float64{{}}},
		{`{"scores":[0.7],"single":"score"}`, []float64{0.7}, [][]float64{{}}},
		{`{"scores":[0.7],"single":"score","min_group":2}`, []float64{0}, [][]float64{{}}},
		{`{"scores":[0.3,0.3,0.3,0.3]}`, []float64{0, 0, 0, 0}, [][]float64{{}, {}, {}, {}}},
		{`{"scores":[]}`, []float64{}, [][]float64{}},
		{`{"scores":[1,0],"memory_rewards":[[0],[1]],"memory.gate":"any_success","memory.min_std":10,"outcome.min_std":10,"memory_weight":0.5,"drop_equal_groups":true}`, []float64{0.05, -0.05}, [][]float64{{-0.05}, {0.05}}},
		{`{"scores":[1,0],"memory_rewards":[[0,3],[1]],"memory":{"pool":"turn","min_std":10,"gate":"none"},"outcome":{"min_std":10}}`, []float64{0.05, -0.05}, [][]float64{{-0.05, 0}, {0.05}}},
		{`{"scores":[1,0],"memory_rewards":[[0,3],[1]],"memory.pool":"turn","normalize":"none"}`, []float64{0.5, -0.5}, [][]float64{{-0.5, 0}, {0.5}}},
	} {
		got := stream(t, test.line)
		if !close4(got.Outcome, test.outcome) || !slices.EqualFunc(got.Memory, test.memory, close4) {
			t.Errorf("%s: %v", test.line, got)
		}
	}
}

func TestStreamWritesOneObjectALine(t *testing.T) {
	var out strings.Builder
	if err := Stream(strings.NewReader("{\"scores\":[1,1]}\n\n{\"scores\":[0],\"memory_rewards\":[[null]]}\n"), &out); err != nil {
		t.Fatal(err)
	}
	if want := "{\"outcome\":[0,0],\"memory\":[[],[]]}\n{\"outcome\":[0],\"memory\":[[0]]}\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

func TestStreamRefusals(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{`{"score":[1,0]}`, `line 2: unknown field "score"`},
		{`{"memory_rewards":[[null]]}`, `line 2: no "scores", want one number or null per trajectory`},
		{`{"scores":[1,0],"memory_rewards":[[null]]}`, "line 2: 2 scores, 1 lists of memory rewards"},
		{`{"scores":[1,0],"failed":[true]}`, "line 2: 2 scores, 2 lists of memory rewards, 1 failed marks"},
		{`{"scores":["1"]}`, "line 2: scores: found string, want a number"},
		{`{"scores":[1,NaN]}`, "line 2: not valid JSON"},
		{`{"scores":[1],"single":"none"}`, `line 2: single is "none"`},
		{`{"scores":[1],"memory.min_std":0,"memory":{"min_std":0}}`, "line 2: memory.min_std is given twice"},
	} {
		err := Stream(strings.NewReader("{\"scores\":[1]}\n"+test.line), &strings.Builder{})
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.line, err, test.want)
		}
	}
}

// Whatever comes in, a line is refused or every advantage is finite and in its place.
func FuzzStream(f *testing.F) {
	f.Add(`{"scores":[1,0,null],"memory_rewards":[[null,0.5],[null],[]],"failed":[false,true,false]}`)
	f.Add(`{"scores":[1e308,-1e308],"memory_rewards":[[1e300],[1e-300]],"normalize":"none"}`)
	f.Add(`{"scores":[0.1,0.1],"memory.pool":"turn","memory":{"gate":"any_success"},"single":"score"}`)
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "\n") {
			return
		}
		var out strings.Builder
		if err := Stream(strings.NewReader(line), &out); err != nil || out.Len() == 0 {
			return
		}
		var r result
		var q question
		if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(line), &q); err != nil {
			t.Fatal(err)
		}
		if len(r.Outcome) != len(q.Scores) || len(r.Memory) != len(q.Scores) {
			t.Fatalf("%d scores gave %v", len(q.Scores), r)
		}
		for i, x := range r.Outcome {
			if q.Scores[i] == nil && x != 0 || math.IsInf(x, 0) {
				t.Errorf("score %d gave %v", i, x)
			}
		}
	})
}
