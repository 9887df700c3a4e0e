package reward

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	search = "<mem></mem><think>t</think><search>q</search>"
	lima   = "<mem>m</mem><think>t</think><answer> Lima </answer>"
)

func TestGradeTurns(t *testing.T) {
	for _, test := range []struct {
		name    string
		turns   []string
		prefill string
		answer  string // "-" for none
		em      float64
		format  bool
	}{
		{"two turns", []string{search, lima}, "", "Lima", 1, true},
		{"one turn", []string{lima}, "", "Lima", 1, true},
		{"end-of-turn token behind", []string{search + "<|im_end|>\n", lima + "<|im_end|>"}, "", "Lima", 1, true},
		{"no answer", []string{search}, "", "-", 0, false},
		{"no turn", nil, "", "-", 0, false},
		{"answer in a thought", []string{"<mem></mem><think><answer>Lima</answer></think><search>q</search>"}, "", "-", 0, false},
		{"answer in memory", []string{"<mem><answer>Lima</answer></mem><think></think><answer>Oslo</answer>"}, "", "Oslo", 0, true},
		{"answer never closed", []string{search, "<mem></mem><think></think><answer>Lima"}, "", "-", 0, false},
		{"broken format, right answer", []string{"<answer>Lima</answer>"}, "", "Lima", 1, false},
		{"the first answer ends it", []string{lima, "<mem></mem><think></think><answer>Oslo</answer>"}, "", "Lima", 1, false},
		{"empty answer", []string{"<mem></mem><think></think><answer> </answer>"}, "", "", 0, true},
		{"prefill opens the memory", []string{"a</mem><think></think><search>q</search>", "b</mem><think></think><answer>Lima</answer>"}, "<mem>", "Lima", 1, true},
		{"a second opening tag behind the prefill", []string{"<mem>b</mem><think></think><answer>Lima</answer>"}, "<mem>", "Lima", 1, false},
		{"prefill opens the answer", []string{"Lima</answer>"}, "<mem></mem><think></think><answer>", "Lima", 1, true},
		{"prefill holds the answer", []string{""}, "<mem></mem><think></think><answer>Lima</answer>", "-", 0, true},
		{"prefill holds all but the end", []string{"</answer>"}, "<mem></mem><think></think><answer>Lima", "", 0, true},
		{"prefill breaks off in the closing tag", []string{"swer>"}, "<mem></mem><think></think><answer>Lima</an", "", 0, true},
		{"prefill holds half the answer", []string{"ma</answer>"}, "<mem></mem><think></think><answer>Li", "ma", 0, true},
	} {
		grade := GradeTurns(test.turns, test.prefill, [][]string{{"Lima"}})
		answer := "-"
		if grade.Answer != nil {
			answer = *grade.Answer
		}
		if answer != test.answer || grade.EM != test.em || (grade.FormatError == "") != test.format {
			t.Errorf("%s: answer %q, EM %v, format error %q", test.name, answer, grade.EM, grade.FormatError)
		}
	}
}

func TestGradeStream(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{
			`{"prediction":"the Beatles!","golden_answers":["Beatles"]}`,
			`{"answer":"the Beatles!","em":1,"f1":1,"format_ok":null,"format_error":"","score":1,"normalized":"beatles"}`,
		},
		{
			`{"prediction":"<b>&","golden_answers":"b"}`,
			`{"answer":"<b>&","em":1,"f1":1,"format_ok":null,"format_error":"","score":1,"normalized":"b"}`,
		},
		{
			`{"prediction":null,"golden_answers":["Oslo"]}`,
			`{"answer":null,"em":0,"f1":0,"format_ok":null,"format_error":"","score":0,"normalized":null}`,
		},
		{
			`{"prediction":"x; nyc","golden_answers":[["Lima"],["New York City","NYC"]]}`,
			`{"answer":"x; nyc","em":0.5,"f1":0.5,"format_ok":null,"format_error":"","score":0.5,"normalized":"x; nyc"}`,
		},
		{
			`{"turns":["<mem></mem><think>t</think><answer>Lima</answer>"],"golden_answers":[["Lima"]]}`,
			`{"answer":"Lima","em":1,"f1":1,"format_ok":true,"format_error":"","score":1,"normalized":"lima"}`,
		},
		{
			`{"turns":["</mem><think>t</think><answer>Lima</answer>"],"prefill":"<mem>","golden_answers":["Lima"]}`,
			`{"answer":"Lima","em":1,"f1":1,"format_ok":true,"format_error":"","score":1,"normalized":"lima"}`,
		},
		{
			`{"turns":["<think>t</think><answer>Lima</answer>"],"golden_answers":["Lima"]}`,
			`{"answer":"Lima","em":1,"f1":1,"format_ok":false,"format_error":"missing_mem","score":0,"normalized":"lima"}`,
		},
		{
			`{"turns":["<mem></mem><think>t</think><search>q</search>"],"golden_answers":["Lima"]}`,
			`{"answer":null,"em":0,"f1":0,"format_ok":false,"format_error":"no_answer","score":0,"normalized":null}`,
		},
	} {
		var out strings.Builder
		if err := GradeStream(strings.NewReader(test.line), &out); err != nil {
			t.Errorf("%s: %v", test.line, err)
		} else if out.String() != test.want+"\n" {
			t.Errorf("%s gives %s", test.line, out.String())
		}
	}
}

func TestGradeStreamRefusals(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{`{"prediction":"a"}`, `no "golden_answers"`},
		{`{"prediction":"a","golden_answers":[]}`, "golden_answers: no golden answer"},
		{`{"prediction":"a","golden_answers":[["b"],[]]}`, "golden_answers: no golden answer"},
		{`{"prediction":"a","golden_answers":null}`, "golden_answers: no golden answer"},
		{`{"prediction":"a","golden_answers":[null]}`, "golden_answers: found null, want a string"},
		{`{"prediction":"a","golden_answers":12}`, "golden_answers: want a string, a list of strings, or a list of lists of strings"},
		{`{"prediction":"a","golden_answers":["b",["c"]]}`, "golden_answers: want a string, a list of strings, or a list of lists of strings"},
		{`{"prediction":3,"golden_answers":["b"]}`, "prediction: found number, want a string"},
		{`{"golden_answers":["b"]}`, `want "prediction" or "turns", one of the two`},
		{`{"prediction":"a","turns":[],"golden_answers":["b"]}`, `want "prediction" or "turns", one of the two`},
		{`{"prediction":"a","prefill":"","golden_answers":["b"]}`, `"prefill" belongs to "turns", not to "prediction"`},
		{`{"turns":"a","golden_answers":["b"]}`, "turns: found string, want a list"},
		{`{"turn":["a"],"golden_answers":["b"]}`, `unknown field "turn"`},
	} {
		err := GradeStream(strings.NewReader("\n"+test.line), &strings.Builder{})
		if err == nil || err.Error() != "line 2: "+test.want {
			t.Errorf("%s: %v, want %s", test.line, err, test.want)
		}
	}
}

// A line is refused or graded, and what it is graded with stays within bounds.
func FuzzGradeStream(f *testing.F) {
	f.Add(`{"prediction":"a; b","golden_answers":[["a"],["c"]]}`)
	f.Add(`{"turns":["<mem></mem><think></think><answer>Lima</answer>"],"prefill":"<mem>","golden_answers":"Lima"}`)
	f.Add(`{"prediction":null,"golden_answers":[""]}`)
	f.Fuzz(func(t *testing.T, line string) {
		var out strings.Builder
		if err := GradeStream(strings.NewReader(line), &out); err != nil {
			return
		}
		for _, text := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if text == "" {
				continue
			}
			var r response
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				t.Fatal(err)
			}
			broken := r.FormatOK != nil && !*r.FormatOK
			if r.EM < 0 || r.EM > 1 || r.F1 < r.EM-1e-9 || r.F1 > 1 || broken != (r.FormatError != "") || broken && r.Score != 0 || !broken && r.Score != r.EM {
				t.Errorf("%s gives %s", line, text)
			}
		}
	})
}
