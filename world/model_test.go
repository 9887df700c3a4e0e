package world

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

func TestModelFolder(t *testing.T) {
	o := someOptions(1)
	o.Model = ModelOptions{Hidden: 128, Layers: 3, Heads: 4, KVHeads: 4, Intermediate: 384, RopeTheta: 1000, MaxPositions: 1024, CopyingStart: true}
	world := made(t, o)
	dir := filepath.Join(world, ModelFolder)
	a, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	tok := loadTokenizer(t, world)
	if a.Name != model.Qwen2 || a.HiddenSize != 128 || a.HeadDim != 32 || a.VocabSize != tok.Size() || !a.QKVBias || !a.TiedEmbeddings ||
		a.Rope.Theta != 1000 || a.MaxPositions != 1024 || a.DType != "float32" {
		t.Errorf("architecture %+v", a)
	}
	generation, err := model.LoadGenerationConfig(dir)
	if end, _ := tok.ID(endToken); err != nil || !slices.Equal(generation.EOS, []int32{end}) {
		t.Errorf("end of sequence %v, %v, want %d", generation.EOS, err, end)
	}
	folder, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	count := 0
	for _, p := range a.Parameters() {
		tensor, found := folder.Tensor(p.Name)
		values, err := tensor.Float32()
		if !found || err != nil {
			t.Fatalf("%s: %v, %v", p.Name, found, err)
		}
		count += len(values)
		for _, x := range values {
			if math.IsNaN(float64(x)) || math.Abs(float64(x)) > 10 {
				t.Fatalf("%s holds %v", p.Name, x)
			}
		}
	}
	if count < 700_000 || count > 800_000 {
		t.Errorf("%d parameters, want about three quarters of a million", count)
	}
}

// someArchitecture has more query heads than key heads where grouped.
func someArchitecture(grouped bool) model.Architecture {
	a := model.Architecture{
		Name: model.Qwen2, VocabSize: 50, HiddenSize: 128, IntermediateSize: 64, Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 32,
		Rope: model.Rope{Type: model.RopeDefault, Theta: 1000}, QKVBias: true, TiedEmbeddings: true,
	}
	if grouped {
		a.KVHeads = 2
	}
	return a
}

func start(a model.Architecture) map[string][]float32 {
	tensors := plainStart(a, stream("test"))
	copyingStart(a, tensors, stream("test"))
	return tensors
}

// The heads of the first layer look 1, 2 or 3 tokens back, wherever they are.
func TestFirstLayerLooksBack(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		a := someArchitecture(grouped)
		tensors := start(a)
		query, key := tensors["model.layers.0.self_attn.q_proj.bias"], tensors["model.layers.0.self_attn.k_proj.bias"]
		angles := a.Rope.InverseFrequencies(a.HeadDim)
		for head := range a.Heads {
			kvHead := head * a.KVHeads / a.Heads
			q, k := query[head*a.HeadDim:][:a.HeadDim], key[kvHead*a.HeadDim:][:a.HeadDim]
			const position = 60
			var sum, largest float64
			at := -1
			for back := range position {
				p := math.Exp(dot(turned(q, angles, position), turned(k, angles, position-back)) / math.Sqrt(float64(a.HeadDim)))
				sum += p
				if p > largest {
					at, largest = back, p
				}
			}
			if want := 1 + kvHead%3; at != want || largest/sum < 0.8 {
				t.Errorf("head %d looks %d tokens back with weight %.2f, want %d", head, at, largest/sum, want)
			}
		}
	}
}

// turned applies the rotary embedding: dimensions k and k + half are a pair.
func turned(x []float32, angles []float32, position int) []float64 {
	half := len(x) / 2
	y := make([]float64, len(x))
	for k, angle := range angles {
		sin, cos := math.Sincos(float64(position) * float64(angle))
		y[k] = float64(x[k])*cos - float64(x[k+half])*sin
		y[k+half] = float64(x[k+half])*cos + float64(x[k])*sin
	}
	return y
}

func dot(x, y []float64) float64 {
	sum := 0.0
	for k := range x {
		sum += x[k] * y[k]
	}
	return sum
}

// times is a matrix, row by row, times a vector.
func times(matrix []float32, x []float64) []float64 {
	y := make([]float64, len(matrix)/len(x))
	for row := range y {
		for k := range x {
			y[row] += float64(matrix[row*len(x)+k]) * x[k]
		}
	}
	return y
}

func randomVector(n int, random *rand.Rand) []float64 {
	x := make([]float64, n)
	for k := range x {
		x[k] = random.NormFloat64()
	}
	return x
}

// What a head reads it writes on, and heads of the second layer find what is alike.
func TestHeadsCopyAndMatch(t *testing.T) {
	random := stream("vectors")
	for _, grouped := range []bool{false, true} {
		a := someArchitecture(grouped)
		tensors := start(a)
		layer := func(name string) []float32 { return tensors["model.layers.1.self_attn."+name] }
		for range 20 {
			x, y := randomVector(a.HiddenSize, random), randomVector(a.HiddenSize, random)
			values := times(layer("v_proj.weight"), x)
			var spread []float64 // each key head's values, once for each of its query heads
			for head := range a.Heads {
				spread = append(spread, values[head*a.KVHeads/a.Heads*a.HeadDim:][:a.HeadDim]...)
			}
			written := times(layer("o_proj.weight"), spread)
			if cosine := dot(written, x) / math.Sqrt(dot(written, written)*dot(x, x)); cosine < 0.4 {
				t.Errorf("what is written is at a cosine of %.2f to what is read", cosine)
			}
			query, alike, unlike := times(layer("q_proj.weight"), x), times(layer("k_proj.weight"), x), times(layer("k_proj.weight"), y)
			for head := range a.Heads {
				q := query[head*a.HeadDim:][:a.HeadDim]
				from := head * a.KVHeads / a.Heads * a.HeadDim
				if match := dot(q, alike[from:][:a.HeadDim]); match < 10 || match < dot(q, unlike[from:][:a.HeadDim]) {
					t.Errorf("head %d: %.1f for a place that is alike, %.1f for another", head, match, dot(q, unlike[from:][:a.HeadDim]))
				}
			}
		}
	}
}

func TestPlainStart(t *testing.T) {
	for name, values := range plainStart(someArchitecture(false), stream("test")) {
		mean, square := 0.0, 0.0
		for _, x := range values {
			mean += float64(x) / float64(len(values))
			square += float64(x) * float64(x) / float64(len(values))
		}
		want, deviation := 0.0, plainStd
		switch {
		case strings.HasSuffix(name, "norm.weight"):
			want, deviation = 1, 0
		case strings.HasSuffix(name, ".bias"):
			deviation = 0
		}
		if got := math.Sqrt(max(0, square-mean*mean)); math.Abs(mean-want) > 0.002 || math.Abs(got-deviation) > 0.002 {
			t.Errorf("%s: mean %.4f, deviation %.4f", name, mean, got)
		}
	}
}

func TestLittleEndian(t *testing.T) {
	data := littleEndian([]float32{1, -2.5})
	if len(data) != 8 || math.Float32frombits(binary.LittleEndian.Uint32(data[4:])) != -2.5 {
		t.Errorf("bytes %v", data)
	}
}
