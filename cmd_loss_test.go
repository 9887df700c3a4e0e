package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// lossInput is a line for the loss command; settings are keys of [loss].
func lossInput(t *testing.T, newLogProbs, old, ref, advantage, mask any, settings map[string]any) string {
	t.Helper()
	line := map[string]any{"new": newLogProbs, "old": old, "ref": ref, "advantage": advantage, "mask": mask}
	for key, value := range settings {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

type lossLineOut struct {
	Policy       float64     `json:"policy_loss"`
	KL           float64     `json:"kl_loss"`
	Total        float64     `json:"total"`
	ClipFraction float64     `json:"clip_fraction"`
	Gradient     [][]float64 `json:"grad_new"`
}

func loss(t *testing.T, line string) lossLineOut {
	t.Helper()
	var got lossLineOut
	decodeLine(t, mustRun(t, line, "loss")[0], &got)
	return got
}

// relative compares with an error in proportion to the number, and 1e-6 for small ones.
func relative(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Max(math.Abs(want), 0.1)) {
		t.Errorf("%s = %.9g, want %.9g", what, got, want)
	}
}

// perTokenMode are the results of one aggregation; NaN of an empty mask is null.
type perTokenMode struct {
	Loss     *float64     `json:"loss"`
	Gradient [][]*float64 `json:"grad_logp"`
}

type goldenPolicyLoss struct {
	Cases []struct {
		Name       string                  `json:"name"`
		ClipLow    float64                 `json:"clip_low"`
		ClipHigh   float64                 `json:"clip_high"`
		ClipC      float64                 `json:"clip_c"`
		Dual       bool                    `json:"dual_clip"`
		New        [][]float64             `json:"logp"`
		Old        [][]float64             `json:"old_logp"`
		Advantages [][]float64             `json:"advantages"`
		Mask       [][]int                 `json:"mask"`
		Modes      map[string]perTokenMode `json:"modes"`
		Clipped    float64                 `json:"pg_clipfrac"`
	} `json:"cases"`
	Microbatch struct {
		TokenLoss [][]float64 `json:"token_loss"`
		Mask      [][]int     `json:"mask"`
		Results   []struct {
			Mode  string  `json:"mode"`
			Whole float64 `json:"whole_batch"`
		} `json:"results"`
	} `json:"microbatch"`
}

// The golden seq-mean-token-sum-norm divides by the row length L alone: N · divisor = L.
func TestPolicyLossesAndGradientsOfPyTorch(t *testing.T) {
	var golden goldenPolicyLoss
	readGolden(t, "algo/policy_loss.json", &golden)
	compared := 0
	for _, c := range golden.Cases {
		for mode, want := range c.Modes {
			settings := map[string]any{
				"clip_low": c.ClipLow, "clip_high": c.ClipHigh, "aggregation": mode, "kl_coef": 0,
				"divisor": float64(len(c.Mask[0])) / float64(len(c.Mask)),
			}
			if c.Dual {
				settings["dual_clip"] = c.ClipC
			}
			got := loss(t, lossInput(t, c.New, c.Old, c.Old, c.Advantages, c.Mask, settings))
			what := fmt.Sprintf("%s %s clip_high %v dual %v", c.Name, mode, c.ClipHigh, c.Dual)
			wantLoss := 0.0 // of an empty mask
			if want.Loss != nil {
				wantLoss = *want.Loss
			}
			relative(t, what+" loss", got.Policy, wantLoss, 1e-5)
			relative(t, what+" total", got.Total, wantLoss, 1e-5)
			relative(t, what+" clip fraction", got.ClipFraction, c.Clipped, 1e-5)
			for r, row := range want.Gradient {
				for k, value := range row {
					wantGradient := 0.0
					if value != nil && c.Mask[r][k] == 1 {
						wantGradient = *value
					}
					relative(t, fmt.Sprintf("%s gradient[%d][%d]", what, r, k), got.Gradient[r][k], wantGradient, 1e-5)
				}
			}
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("only %d combinations compared", compared)
	}
}

// Token losses are given through advantages at ratio 1.
func negated(rows [][]float64) [][]float64 {
	out := make([][]float64, len(rows))
	for r, row := range rows {
		for _, value := range row {
			out[r] = append(out[r], -value)
		}
	}
	return out
}

func filled(like [][]float64, value float64) [][]float64 {
	out := make([][]float64, len(like))
	for r, row := range like {
		for range row {
			out[r] = append(out[r], value)
		}
	}
	return out
}

func TestAggregationOfPyTorchsWholeBatch(t *testing.T) {
	var golden goldenPolicyLoss
	readGolden(t, "algo/policy_loss.json", &golden)
	m := golden.Microbatch
	same := filled(m.TokenLoss, -1)
	for _, want := range m.Results {
		got := loss(t, lossInput(t, same, same, same, negated(m.TokenLoss), m.Mask, map[string]any{"aggregation": want.Mode}))
		relative(t, want.Mode, got.Policy, want.Whole, 1e-6)
	}
}

func TestKLEstimatorsAndGradientsOfPyTorch(t *testing.T) {
	var golden struct {
		New        []float64 `json:"logp"`
		Ref        []float64 `json:"ref_logp"`
		Estimators map[string]struct {
			Value    []float64 `json:"value"`
			Gradient []float64 `json:"grad_logp"`
		} `json:"estimators"`
	}
	readGolden(t, "algo/kl.json", &golden)
	for _, estimator := range []string{"k1", "abs", "k2", "k3", "low_var_kl"} {
		want, found := golden.Estimators[estimator]
		if !found || len(want.Value) != len(golden.New) {
			t.Fatalf("no golden values of %s", estimator)
		}
		for k := range golden.New {
			one := func(value float64) [][]float64 { return [][]float64{{value}} }
			got := loss(t, lossInput(t, one(golden.New[k]), one(golden.New[k]), one(golden.Ref[k]), one(0), [][]int{{1}},
				map[string]any{"kl_estimator": estimator, "kl_coef": 1}))
			what := fmt.Sprintf("%s of %v and %v", estimator, golden.New[k], golden.Ref[k])
			relative(t, what, got.KL, want.Value[k], 1e-5)
			relative(t, what+" gradient", got.Gradient[0][0], want.Gradient[k], 1e-5)
		}
	}
}

// row makes the lists of one trajectory.
func row(values ...float64) [][]float64 { return [][]float64{values} }

func TestLowVarianceKLStaysFinite(t *testing.T) {
	for d, want := range map[float64]float64{0: 0, 1: 0.718282, -1: 0.367879, 100: math.NaN(), -100: math.NaN()} {
		got := loss(t, lossInput(t, row(-1), row(-1), row(-1+d), row(0), [][]int{{1}}, map[string]any{"kl_coef": 1}))
		gradient := got.Gradient[0][0]
		if math.IsNaN(want) && (math.IsInf(got.KL, 0) || math.IsNaN(gradient) || math.IsInf(gradient, 0)) ||
			!math.IsNaN(want) && math.Abs(got.KL-want) > 1e-6 {
			t.Errorf("ref − new = %v: KL %v, gradient %v, want %v", d, got.KL, gradient, want)
		}
		if d == 0 && gradient != 0 {
			t.Errorf("gradient %v at equal log-probs", gradient)
		}
	}
	// The other way round would give 0.718282.
	if got := loss(t, lossInput(t, row(-1), row(-1), row(-2), row(0), [][]int{{1}}, map[string]any{"kl_coef": 1})); math.Abs(got.KL-0.367879) > 1e-6 {
		t.Errorf("KL of log-probs −1 and −2 is %v, want 0.367879", got.KL)
	}
}

func TestMaskedTokensDoNotReachTheLoss(t *testing.T) {
	mask := [][]int{{1, 1, 1, 1, 0, 0, 0, 1, 1, 1}}
	tokens := func(masked any) [][]any {
		list := make([]any, 10)
		for k := range list {
			list[k] = -0.1 * float64(k+1)
			if mask[0][k] == 0 {
				list[k] = masked
			}
		}
		return [][]any{list}
	}
	var first string
	for _, masked := range []any{-0.5, 7.25, 1e300, nil} {
		for _, aggregation := range []string{"token-mean", "seq-mean-token-mean"} {
			line := lossInput(t, tokens(masked), tokens(masked), filled([][]float64{make([]float64, 10)}, -0.3), tokens(masked), mask,
				map[string]any{"aggregation": aggregation, "kl_coef": 0.1})
			got := mustRun(t, line, "loss")[0]
			if first == "" {
				first = got
			}
			if got != first {
				t.Errorf("%v where the mask is 0: %s, want %s", masked, got, first)
			}
		}
	}
	var got lossLineOut
	decodeLine(t, first, &got)
	for k, value := range got.Gradient[0] {
		if (value != 0) != (mask[0][k] == 1) {
			t.Errorf("gradient[%d] is %v where the mask is %d", k, value, mask[0][k])
		}
	}
}

// tokenLosses makes a line in which trajectories have given numbers of trained tokens, all with
// one loss, and the rest of 100 tokens is padding.
func tokenLosses(t *testing.T, counts []int, losses []float64, padded int, settings map[string]any) lossLineOut {
	t.Helper()
	var same, advantage [][]float64
	var mask [][]int
	for k, count := range counts {
		same, advantage, mask = append(same, make([]float64, padded)), append(advantage, make([]float64, padded)), append(mask, make([]int, padded))
		for n := range count {
			mask[k][n], advantage[k][n] = 1, -losses[k]
		}
	}
	return loss(t, lossInput(t, same, same, same, advantage, mask, settings))
}

func TestAggregations(t *testing.T) {
	tests := []struct {
		aggregation string
		counts      []int
		losses      []float64
		want        float64
	}{
		{"token-mean", []int{2, 4, 6}, []float64{1, 2, 3}, 2.333333},
		{"token-mean", []int{2, 6}, []float64{1, 3}, 2.5},
		{"seq-mean-token-sum", []int{2, 6}, []float64{1, 3}, 10},
		{"seq-mean-token-mean", []int{2, 6}, []float64{1, 3}, 2},
		{"seq-mean-token-sum-norm", []int{2, 6}, []float64{1, 3}, 1.25},
		{"token-mean", []int{4, 0}, []float64{1, 1}, 1},
		{"token-mean", []int{0, 0}, []float64{1, 1}, 0},
		{"seq-mean-token-mean", []int{0, 0}, []float64{1, 1}, 0},
	}
	for _, test := range tests {
		for _, padded := range []int{6, 100} {
			settings := map[string]any{"aggregation": test.aggregation, "divisor": 8}
			got := tokenLosses(t, test.counts, test.losses, padded, settings)
			if math.Abs(got.Total-test.want) > 1e-6 {
				t.Errorf("%s of %v tokens, rows of %d: %v, want %v", test.aggregation, test.counts, padded, got.Total, test.want)
			}
		}
	}
}

func TestRatiosAreClippedPerToken(t *testing.T) {
	logs := func(p ...float64) [][]float64 {
		for k := range p {
			p[k] = math.Log(p[k])
		}
		return [][]float64{p}
	}
	line := lossInput(t, logs(0.55, 0.36, 0.3), logs(0.5, 0.4, 0.2), logs(0.5, 0.4, 0.2), row(1, 1, 1), [][]int{{1, 1, 1}}, map[string]any{"kl_coef": 0})
	got := loss(t, line)
	if math.Abs(-got.Total-1.066667) > 1e-6 || math.Abs(got.ClipFraction-1.0/3) > 1e-6 {
		t.Errorf("objective %v with %v clipped, want 1.066667 and a third", -got.Total, got.ClipFraction)
	}
}

func TestSignOfTheLoss(t *testing.T) {
	for _, advantage := range []float64{1, -1} {
		got := loss(t, lossInput(t, row(-1), row(-1), row(-1), row(advantage), [][]int{{1}}, nil))
		// A descent step moves a log-prob against its gradient.
		if moved := -got.Gradient[0][0]; moved*advantage <= 0 {
			t.Errorf("advantage %v moves the log-prob by %v", advantage, moved)
		}
	}
}

func TestLossRefuses(t *testing.T) {
	good := lossInput(t, row(-1), row(-1), row(-1), row(1), [][]int{{1}}, nil)
	tests := []struct{ from, to, want string }{
		{`"mask":[[1]]`, `"mask":[[1,1]]`, "has 1 tokens, mask[0] has 2"},
		{`"mask":[[1]]`, `"mask":[[1],[1]]`, "has 1 trajectories, mask has 2"},
		{`"mask":[[1]]`, `"mask":[[2]]`, "want 0 or 1"},
		{`"mask":[[1]]`, `"other":1`, "other"},
		{`,"mask":[[1]]`, ``, `no "mask"`},
		{`"ref":[[-1]]`, `"ref":[[null]]`, "ref[0][0] is null where the mask is 1"},
		{`"ref":[[-1]]`, `"ref":[[1e300]]`, "ref[0][0] is 1e+300"},
		{`"ref":[[-1]]`, `"ref":[-1]`, "want a list"},
		{`,"ref":[[-1]]`, ``, `no "ref"`},
		{`"mask"`, `"kl_estimator":"k4","mask"`, "loss.kl_estimator"},
		{`"mask"`, `"clip_low":-1,"mask"`, "loss.clip_low"},
		{`"mask"`, `"aggregation":"mean","mask"`, "loss.aggregation"},
		{`"mask"`, `"aggregation":"seq-mean-token-sum-norm","mask"`, "loss.divisor"},
	}
	for _, test := range tests {
		line := strings.Replace(good, test.from, test.to, 1)
		if line == good {
			t.Fatalf("%s is not in %s", test.from, good)
		}
		if _, stderr, code := runProgram(good+"\n"+line, "loss"); code != 2 || !oneSentence(stderr) || !strings.Contains(stderr, "line 2: ") || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, %q; want %q", line, code, stderr, test.want)
		}
	}
	mustRun(t, strings.Replace(good, `"mask":[[1]]`, `"mask":[[true]]`, 1), "loss")
}
