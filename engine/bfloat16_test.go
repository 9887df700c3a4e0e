package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// What computing in bfloat16 may cost on the golden models, whose logits have a standard deviation
// of 3 and reach 15: a logit is rounded to 8 bits, which is 1/32 at 15, behind layers of rounded
// sums. On the CPU the largest distance is 0.17 and the mean 0.04.
const (
	bfloat16Largest, bfloat16Mean = 0.4, 0.1
	bfloat16Cosine                = 0.99 // between the gradients of a parameter
)

func TestBFloat16StaysNearFloat32(t *testing.T) {
	for _, name := range tinyModels {
		var golden goldenForward
		readJSON(t, "forward/"+name+".json", &golden)
		var rows []model.ScoreRow
		for _, ids := range golden.InputIDs {
			rows = append(rows, model.ScoreRow{IDs: ids, Positions: every(len(ids))})
		}
		wide, narrow := load(t, name, Options{Trainable: true}), load(t, name, Options{DType: bfloat16Name, Trainable: true})
		want, got := scoreInSplits(t, wide, rows, len(rows)), scoreInSplits(t, narrow, rows, len(rows))
		sum, count := 0.0, 0
		for k := range rows {
			near(t, name+" in bfloat16", got[k].LogProbs, want[k].LogProbs, bfloat16Largest)
			for j, p := range got[k].LogProbs {
				sum += math.Abs(float64(p - want[k].LogProbs[j]))
				count++
			}
		}
		if mean := sum / float64(count); mean > bfloat16Mean {
			t.Errorf("%s: mean distance of log-probs %.3f, allowed is %g", name, mean, bfloat16Mean)
		}
		backward(t, wide, asTrainRows(rows, want), len(rows), ppo)
		backward(t, narrow, asTrainRows(rows, got), len(rows), ppo)
		compareDirections(t, wide, narrow)
	}
}

func compareDirections(t *testing.T, a, b *Model) {
	t.Helper()
	for _, p := range a.Parameters() {
		x, errX := a.ReadFloat32(gradient, p.Name)
		y, errY := b.ReadFloat32(gradient, p.Name)
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		var xy, xx, yy float64
		for k := range x {
			xy += float64(x[k]) * float64(y[k])
			xx += float64(x[k]) * float64(x[k])
			yy += float64(y[k]) * float64(y[k])
		}
		if cosine := xy / math.Sqrt(xx*yy); !(cosine >= bfloat16Cosine) {
			t.Errorf("%s: cosine of the gradients %.4f, at least %g is wanted", p.Name, cosine, bfloat16Cosine)
		}
	}
}

// In bfloat16 the passes of decoding and of scoring round differently, but no more than that.
func TestBFloat16DecodeAndPrefillAgree(t *testing.T) {
	for _, name := range tinyModels {
		m := load(t, name, Options{DType: bfloat16Name})
		sampled, rows := generateRagged(t, m, rand.New(rand.NewPCG(1, 2)))
		for k, s := range scoreInSplits(t, m, rows, len(rows)) {
			near(t, name+" sampled in bfloat16", sampled[k], s.LogProbs, bfloat16Largest)
		}
	}
}
