package reward

import (
	"math"
	"strings"
	"testing"
	"unicode"
)

func TestExactMatch(t *testing.T) {
	for _, test := range []struct {
		golden     string
		prediction string
		want       float64
	}{
		// an answer that is an article keeps it, and an empty one matches nothing
		{"A", "A", 1},
		{"A", "a.", 1},
		{"A", "B", 0},
		{"A", "the", 0},
		{"A", "", 0},
		{"", "", 0},
		{"...", "!", 0},
		{"The The", "the the", 1},
		// one string is one golden answer, not a list of letters
		{"cat", "cat", 1},
		{"cat", "c", 0},
		// order and repeats count
		{"red blue", "blue red", 0},
		{"hello", "hello hello", 0},
		{"The Beatles", "beatles!", 1},
		// an answer with a semicolon is whole where there is one objective
		{"a; b", "a; b", 1},
	} {
		if got := GradeAnswer(&test.prediction, [][]string{{test.golden}}); got.EM != test.want {
			t.Errorf("%q against %q: %v, want %v", test.prediction, test.golden, got.EM, test.want)
		}
	}
}

func TestSeveralObjectives(t *testing.T) {
	objectives := [][]string{{"Lima"}, {"New York City", "NYC"}, {"42"}}
	for _, test := range []struct {
		prediction string
		sum        float64
		f1         float64
		normalized string
	}{
		{"Lima; nyc; 42", 3, 1, "lima; nyc; 42"},
		{"Lima;New York;41", 1, (1 + 0.8) / 3, "lima; new york; 41"},
		{"NYC; Lima; 42", 1, 1.0 / 3, "nyc; lima; 42"},
		{"Lima", 1, 1.0 / 3, "lima; ; "},
		{";;42", 1, 1.0 / 3, "; ; 42"},
		{"Lima; NYC; 42; Oslo", 3, 1, "lima; nyc; 42"},
		{"", 0, 0, "; ; "},
	} {
		got := GradeAnswer(&test.prediction, objectives)
		if got.EMSum != test.sum || math.Abs(got.EM-test.sum/3) > 1e-12 || math.Abs(got.F1-test.f1) > 1e-12 || got.Normalized() != test.normalized {
			t.Errorf("%q: %+v", test.prediction, got)
		}
	}
	if got := GradeAnswer(nil, objectives); got.EM != 0 || got.F1 != 0 || len(got.Objectives) != 3 {
		t.Errorf("no answer: %+v", got)
	}
}

func TestScore(t *testing.T) {
	for _, test := range []struct {
		mode     string
		formatOK bool
		want     float64
	}{
		{"gate", true, 0.5},
		{"gate", false, 0},
		{"bonus", true, 0.7},
		{"bonus", false, 0.5},
		{"off", true, 0.5},
		{"off", false, 0.5},
	} {
		got, err := Score(0.5, test.formatOK, test.mode, 0.2)
		if err != nil || got != test.want {
			t.Errorf("%s, format %v: %v, %v; want %v", test.mode, test.formatOK, got, err, test.want)
		}
	}
	if _, err := Score(0.5, true, "penalty", 0.2); err == nil || err.Error() != `format_reward is "penalty", allowed: "gate", "bonus" or "off"` {
		t.Error(err)
	}
}

func TestAnswerProbability(t *testing.T) {
	if got, err := AnswerProbability([]float32{-1, -2}, "product"); err != nil || math.Abs(got-math.Exp(-3)) > 1e-12 {
		t.Error(got, err)
	}
	for _, mode := range []string{"geometric", "product"} {
		if got, err := AnswerProbability(nil, mode); err != nil || !math.IsNaN(got) {
			t.Errorf("%s of no tokens: %v, %v", mode, got, err)
		}
		if got, err := AnswerProbability([]float32{0, float32(math.Inf(-1))}, mode); err != nil || got != 0 {
			t.Errorf("%s of an impossible token: %v, %v", mode, got, err)
		}
	}
	if _, err := AnswerProbability(nil, "mean"); err == nil || err.Error() != `answer_prob is "mean", allowed: "geometric" or "product"` {
		t.Error(err)
	}
}

func TestMemoryReward(t *testing.T) {
	for _, test := range []struct {
		mode string
		want float64
	}{
		{"mem_minus_full", -0.25},
		{"mem", 0.5},
		{"off", math.NaN()},
	} {
		got, err := MemoryReward(0.5, 0.75, test.mode)
		if err != nil || got != test.want && !(math.IsNaN(got) && math.IsNaN(test.want)) {
			t.Errorf("%s: %v, %v", test.mode, got, err)
		}
	}
	if _, err := MemoryReward(0, 0, "full"); err == nil || err.Error() != `memory_reward is "full", allowed: "mem_minus_full", "mem" or "off"` {
		t.Error(err)
	}
}

func TestNormalize(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		// articles go only as whole words, which digits and letters of any script make up
		{"a1 a² an٣ the东 ªa a", "a1 a² an٣ the东 ªa"},
		{"–the–an", "– –"},
		{"the\u0301 end", "\u0301 end"},
		// the four separators are white space to Python
		{"x\x1cy\x1dz\x1ew\x1fv", "x y z w v"},
		{"x\u200by", "x\u200by"},
		// sigma at the end of a word, looking past marks and apostrophes
		{"ΑΣ ΑΣ'Β Σ ΑΣ\u0301 ΑΣ1 1Σ", "ας ασβ σ ας\u0301 ας1 1σ"},
		{"İI", "i\u0307i"},
		{"\xe6\x9dÀ", "\ufffd\ufffdà"},
		{"", ""},
		{" \n", ""},
	} {
		if got := Normalize(test.in); got != test.want {
			t.Errorf("%q: %q, want %q", test.in, got, test.want)
		}
	}
}

// A normalised text is normalised, has single spaces, and no ASCII punctuation or capitals.
func FuzzNormalize(f *testing.F) {
	for _, seed := range []string{"The Eiffel-Tower!", "a", "İ ΟΔΟΣ ẞ", "a_the_b", "x\x1f\u3000y", "\xff\xfe the", "an a.n a", "Σ'Σ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Normalize(text)
		if again := Normalize(got); again != got {
			t.Errorf("%q becomes %q, then %q", text, got, again)
		}
		if strings.Join(strings.FieldsFunc(got, isSpace), " ") != got {
			t.Errorf("%q becomes %q: white space", text, got)
		}
		for _, r := range got {
			if r <= unicode.MaxASCII && (unicode.IsPunct(r) || unicode.IsSymbol(r) || unicode.IsUpper(r)) {
				t.Errorf("%q becomes %q: %q", text, got, r)
			}
		}
	})
}
