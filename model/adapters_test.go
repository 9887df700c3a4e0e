package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestAdapterParametersOfTargets(t *testing.T) {
	a := Architecture{VocabSize: 10, HiddenSize: 6, IntermediateSize: 8, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, QKVBias: true, QKNorm: true}
	adapters := Adapters{Rank: 3, Alpha: 6, Targets: []string{"down_proj", "k_proj"}}
	var got []string
	for _, p := range a.AdapterParameters(adapters) {
		got = append(got, fmt.Sprint(p.Name, p.Shape))
	}
	want := []string{
		"model.layers.0.self_attn.k_proj.lora_A.weight[3 6]", "model.layers.0.self_attn.k_proj.lora_B.weight[4 3]",
		"model.layers.0.mlp.down_proj.lora_A.weight[3 8]", "model.layers.0.mlp.down_proj.lora_B.weight[6 3]",
		"model.layers.1.self_attn.k_proj.lora_A.weight[3 6]", "model.layers.1.self_attn.k_proj.lora_B.weight[4 3]",
		"model.layers.1.mlp.down_proj.lora_A.weight[3 8]", "model.layers.1.mlp.down_proj.lora_B.weight[6 3]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if all := a.AdapterParameters(Adapters{Rank: 1, Targets: Projections}); len(all) != 2*2*len(Projections) {
		t.Errorf("%d parameters on all projections", len(all))
	}
	if trained := a.Trained(Adapters{}); len(trained) != len(a.Parameters()) || len(a.AdapterParameters(Adapters{Targets: Projections})) > 0 {
		t.Errorf("without adapters %d are trained", len(trained))
	}
	if text := adapters.String(); text != "adapters of rank 3 and alpha 6 on k_proj, down_proj" || adapters.Scale() != 2 {
		t.Errorf("%q, scale %v", text, adapters.Scale())
	}
}

func TestAdaptersStartAsUniformNumbersAndZeros(t *testing.T) {
	down, up := Parameter{"model.layers.0.self_attn.q_proj.lora_A.weight", []int64{16, 400}}, Parameter{"model.layers.0.self_attn.q_proj.lora_B.weight", []int64{40, 16}}
	values := down.Start(3)
	var sum, squares, most float64
	for _, v := range values {
		sum, squares, most = sum+float64(v), squares+float64(v)*float64(v), max(most, math.Abs(float64(v)))
	}
	n := float64(len(values))
	// Uniform in ±1/20: the deviation is 1/20/√3; the mean of 6400 deviates by 1/80 of that.
	if deviation := math.Sqrt(squares / n); math.Abs(deviation*20*math.Sqrt(3)-1) > 0.03 || math.Abs(sum/n) > 0.002 || most > 0.05 || most < 0.0499 {
		t.Errorf("deviation %g, mean %g, largest %g", deviation, sum/n, most)
	}
	if slices.Max(up.Start(3)) != 0 || slices.Min(up.Start(3)) != 0 {
		t.Error("B does not start at zero")
	}
	other := Parameter{"model.layers.1.self_attn.q_proj.lora_A.weight", down.Shape}
	if slices.Equal(values, other.Start(3)) || slices.Equal(values, down.Start(4)) || !slices.Equal(values, down.Start(3)) {
		t.Error("the numbers do not belong to seed and name")
	}
}
