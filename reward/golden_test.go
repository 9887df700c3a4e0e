package reward

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

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

func TestGoldenAnswers(t *testing.T) {
	var golden struct {
		Pairs []struct {
			Prediction           string
			Golds                []string
			NormalizedPrediction string   `json:"normalized_prediction"`
			NormalizedGolds      []string `json:"normalized_golds"`
			EM                   float64
			F1                   float64 `json:"f1_hotpot"`
		}
	}
	readGolden(t, "qa_em.json", &golden)
	if len(golden.Pairs) < 60 {
		t.Fatalf("%d pairs", len(golden.Pairs))
	}
	for _, pair := range golden.Pairs {
		texts := append([]string{pair.Prediction}, pair.Golds...)
		for k, want := range append([]string{pair.NormalizedPrediction}, pair.NormalizedGolds...) {
			// nothing but articles: here they are kept
			if got := Normalize(texts[k]); got != want && want != "" {
				t.Errorf("%q normalised is %q, want %q", texts[k], got, want)
			}
		}
		grade := GradeAnswer(&pair.Prediction, [][]string{pair.Golds})
		if pair.EM == 1 && slices.Contains(pair.NormalizedGolds, "") {
			pair.EM = 0 // differs on purpose: an article does not match another one
		}
		if grade.EM != pair.EM || grade.EMSum != pair.EM || math.Abs(grade.F1-pair.F1) > 1e-12 {
			t.Errorf("%q against %q: %+v, want EM %v, F1 %v", pair.Prediction, pair.Golds, grade, pair.EM, pair.F1)
		}
	}
}

// Only texts with one answer block have one meaning in both scorers: with several the first counts
// here.
func TestGoldenExtraction(t *testing.T) {
	var golden struct {
		Extract []struct {
			Text      string
			Golds     []string
			Extracted *string
			Score     float64
		}
	}
	readGolden(t, "qa_em.json", &golden)
	checked := 0
	for _, c := range golden.Extract {
		if strings.Count(c.Text, "<answer>") > 1 {
			continue
		}
		checked++
		grade := GradeTurns([]string{c.Text}, "", [][]string{c.Golds})
		if (grade.Answer == nil) != (c.Extracted == nil) || grade.Answer != nil && *grade.Answer != *c.Extracted {
			t.Errorf("%q: answer %v, want %v", c.Text, grade.Answer, c.Extracted)
		}
		if grade.EM != c.Score {
			t.Errorf("%q: EM %v, want %v", c.Text, grade.EM, c.Score)
		}
	}
	if checked < 10 {
		t.Errorf("only %d texts checked", checked)
	}
}

func TestGoldenAnswerProbability(t *testing.T) {
	var golden struct {
		Cases []struct {
			LogProbs []float32 `json:"logps"`
			Prob     float64
		}
	}
	readGolden(t, "geomean.json", &golden)
	if len(golden.Cases) < 10 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		got, err := AnswerProbability(c.LogProbs, "geometric")
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-c.Prob) > 1e-6*c.Prob {
			t.Errorf("%v: %v, want %v", c.LogProbs, got, c.Prob)
		}
	}
}
