package engine

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

const golden = "../testdata/golden"

var tinyModels = []string{"qwen2-tiny", "llama-tiny", "qwen3-tiny"}

// device is one runtime for all tests: there is one device thread per process. MEMPO_TEST_DEVICE
// names another than the CPU. Tolerances are the same on every device: float32 is float32 there too.
var device *Runtime

func TestMain(m *testing.M) {
	where := os.Getenv("MEMPO_TEST_DEVICE")
	if where == "" {
		where = "cpu"
	}
	var err error
	if device, err = Start(where, threads()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	code := m.Run()
	if err := writeFigures(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if handles := LiveHandles(); code == 0 && handles != 0 {
		fmt.Fprintf(os.Stderr, "%d models or sessions were not closed\n", handles)
		code = 1
	}
	os.Exit(code)
}

func load(t testing.TB, name string, o Options) *Model {
	t.Helper()
	o.DType = cmp.Or(o.DType, float32Name)
	m, err := device.Load(filepath.Join(golden, "models", name), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(golden, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(path, err)
	}
}

type goldenForward struct {
	InputIDs  [][]int32 `json:"input_ids"`
	Sequences []struct {
		LogProbs     []float32 `json:"logprobs"`
		LogProbs07   []float32 `json:"logprobs_temp0.7"`
		Entropy      []float32 `json:"entropy"`
		Entropy07    []float32 `json:"entropy_temp0.7"`
		LikeliestIDs []int32   `json:"argmax"`
	} `json:"sequences"`
	Greedy []struct {
		Prompt   []int32   `json:"prompt"`
		Tokens   []int32   `json:"tokens"`
		LogProbs []float32 `json:"logprobs"`
	} `json:"greedy"`
	Filtered   map[string]json.RawMessage `json:"filtered"`
	AnswerProb []struct {
		Prompt []int32 `json:"prompt"`
		Answer []int32 `json:"answer"`
		Turns  []struct {
			Generated, Tool, Memory []int32
			Full, Mem               struct {
				LogProbs []float32 `json:"answer_logprobs"`
				GeoMean  float64   `json:"geomean_prob"`
			}
		} `json:"turns"`
	} `json:"answer_prob"`
}

// every lists the positions 1 … n−1.
func every(n int) []int32 {
	positions := make([]int32, 0, n)
	for p := 1; p < n; p++ {
		positions = append(positions, int32(p))
	}
	return positions
}

func near(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	largest, at := 0.0, 0
	for k := range got {
		diff := math.Abs(float64(got[k]) - float64(want[k]))
		if math.IsNaN(diff) {
			diff = math.Inf(1)
		}
		if diff > largest {
			largest, at = diff, k
		}
	}
	record(t, largest, tolerance)
	if largest > tolerance {
		t.Fatalf("%s[%d] = %v, want %v (tolerance %g)", what, at, got[at], want[at], tolerance)
	}
}

// nearInSize is near with a tolerance that is relative to the largest number wanted. What is a sum of terms of both signs, as a
// logit or a gradient, has the rounding errors of its terms, not of itself.
func nearInSize(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	largest := 0.0
	for _, x := range want {
		largest = math.Max(largest, math.Abs(float64(x)))
	}
	near(t, what, got, want, tolerance*largest)
}

func TestLogProbsAndEntropiesOfPyTorch(t *testing.T) {
	for _, name := range append([]string{"qwen2-tiny-sharded"}, tinyModels...) {
		t.Run(name, func(t *testing.T) {
			file := name
			if name == "qwen2-tiny-sharded" {
				file = "qwen2-tiny"
			}
			var want goldenForward
			readJSON(t, "forward/"+file+".json", &want)
			m := load(t, name, Options{})
			var rows []model.ScoreRow
			for _, ids := range want.InputIDs {
				rows = append(rows, model.ScoreRow{IDs: ids, Positions: every(len(ids))})
			}
			for _, temperature := range []float64{1, 0.7} {
				got, err := m.Score(rows, temperature)
				if err != nil {
					t.Fatal(err)
				}
				for k, s := range want.Sequences {
					logProbs, entropy := s.LogProbs, s.Entropy
					if temperature != 1 {
						logProbs, entropy = s.LogProbs07, s.Entropy07
					}
					near(t, "log-probs", got[k].LogProbs, logProbs, 1e-4)
					near(t, "entropy", got[k].Entropy, entropy[:len(entropy)-1], 1e-4)
				}
			}
		})
	}
}

func TestShardedFilesGiveTheSameModel(t *testing.T) {
	whole, sharded := load(t, "qwen2-tiny", Options{}), load(t, "qwen2-tiny-sharded", Options{})
	for _, p := range whole.Parameters() {
		a, errA := whole.ReadFloat32(model.Master, p.Name)
		b, errB := sharded.ReadFloat32(model.Master, p.Name)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		near(t, p.Name, a, b, 0)
	}
}

// generate samples n tokens one by one after a prompt.
func generate(t *testing.T, m *Model, prompt []int32, n int, sampling model.Sampling, seed uint64) (ids []int32, logProbs []float32) {
	t.Helper()
	s, err := m.NewSession(model.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	row, err := s.Open()
	if err != nil {
		t.Fatal(err)
	}
	next := prompt
	for k := range n {
		out, err := s.Step([]model.RowInput{{Row: row, IDs: next, Sample: true, Sampling: sampling, Seed: seed + uint64(k)}})
		if err != nil {
			t.Fatal(err)
		}
		ids, logProbs = append(ids, out[0].ID), append(logProbs, out[0].LogProb)
		next = []int32{out[0].ID}
	}
	return ids, logProbs
}

func TestGreedyContinuationsOfPyTorch(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenForward
		readJSON(t, "forward/"+name+".json", &want)
		m := load(t, name, Options{})
		for _, g := range want.Greedy {
			ids, logProbs := generate(t, m, g.Prompt, len(g.Tokens), model.Sampling{}, 0)
			if fmt.Sprint(ids) != fmt.Sprint(g.Tokens) {
				t.Fatalf("%s: greedy %v, want %v", name, ids, g.Tokens)
			}
			near(t, name, logProbs, g.LogProbs, 1e-4)
		}
	}
}

func TestAnswerProbabilitiesOfPyTorch(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenForward
		readJSON(t, "forward/"+name+".json", &want)
		m := load(t, name, Options{})
		for _, dialogue := range want.AnswerProb {
			history := dialogue.Prompt
			for _, turn := range dialogue.Turns {
				history = concat(history, turn.Generated, turn.Tool)
				contexts := [][]int32{history, concat(dialogue.Prompt, turn.Memory)}
				wants := [][]float32{turn.Full.LogProbs, turn.Mem.LogProbs}
				var rows []model.ScoreRow
				for _, context := range contexts {
					row := model.ScoreRow{IDs: concat(context, dialogue.Answer)}
					for k := range dialogue.Answer {
						row.Positions = append(row.Positions, int32(len(context)+k))
					}
					rows = append(rows, row)
				}
				got, err := m.Score(rows, 1)
				if err != nil {
					t.Fatal(err)
				}
				for k := range rows {
					near(t, name+" answer log-probs", got[k].LogProbs, wants[k], 1e-4)
				}
			}
		}
	}
}

func concat(parts ...[]int32) []int32 {
	var all []int32
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// tensors reads a file of numbers; int32 tensors come out as float32.
type tensors struct {
	t    *testing.T
	file *weights.File
}

func openTensors(t *testing.T, path string) tensors {
	t.Helper()
	file, err := weights.OpenFile(filepath.Join(golden, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return tensors{t, file}
}

func (f tensors) get(name string) ([]float32, []int64) {
	f.t.Helper()
	stored, found := f.file.Tensor(name)
	if !found {
		f.t.Fatal("no tensor " + name)
	}
	if stored.DType == "I32" {
		var values []float32
		for at := 0; at < len(stored.Data); at += 4 {
			values = append(values, float32(int32(binary.LittleEndian.Uint32(stored.Data[at:]))))
		}
		return values, stored.Shape
	}
	values, err := stored.Float32()
	if err != nil {
		f.t.Fatal(err)
	}
	return values, stored.Shape
}

func (f tensors) rows(name string) [][]float32 {
	values, shape := f.get(name)
	var rows [][]float32
	for at := int64(0); at < int64(len(values)); at += shape[1] {
		rows = append(rows, values[at:at+shape[1]])
	}
	return rows
}

func TestFilteredDistributionsOfPyTorch(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenForward
		readJSON(t, "forward/"+name+".json", &want)
		var prompt []int32
		if err := json.Unmarshal(want.Filtered["prompt"], &prompt); err != nil {
			t.Fatal(err)
		}
		logits := nextLogits(t, name, prompt)
		rules := map[string]model.Sampling{
			"plain": {Temperature: 1}, "temp": {Temperature: 0.7}, "temp_topk": {Temperature: 0.7, TopK: 20},
			"temp_topp": {Temperature: 0.7, TopP: 0.9}, "temp_topk_topp": {Temperature: 0.7, TopK: 20, TopP: 0.9},
			"topk_topp_no_temp": {Temperature: 1, TopK: 20, TopP: 0.9},
		}
		for rule, sampling := range rules {
			var p []float32
			if err := json.Unmarshal(want.Filtered[rule], &p); err != nil {
				t.Fatal(err)
			}
			got, err := filteredDistribution(logits, sampling)
			if err != nil {
				t.Fatal(err)
			}
			near(t, name+" "+rule, got, p, 1e-5)
			for id := range p {
				if (got[id] == 0) != (p[id] == 0) {
					t.Fatalf("%s %s: id %d has probability %v, want %v", name, rule, id, got[id], p[id])
				}
			}
		}
	}
}

// nextLogits scores every id after the prompt: log-probs are logits but for a constant.
func nextLogits(t *testing.T, name string, prompt []int32) []float32 {
	t.Helper()
	m := load(t, name, Options{})
	var rows []model.ScoreRow
	for id := range m.Architecture.VocabSize {
		rows = append(rows, model.ScoreRow{IDs: concat(prompt, []int32{int32(id)}), Positions: []int32{int32(len(prompt))}})
	}
	scores, err := m.Score(rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for _, s := range scores {
		logits = append(logits, s.LogProbs[0])
	}
	return logits
}

// threads is 1 for tests: the tiny models gain nothing from more, and lose much on a busy machine.
func threads() int {
	n, err := strconv.Atoi(os.Getenv("MEMPO_TEST_THREADS"))
	if err != nil {
		return 1
	}
	return n
}
