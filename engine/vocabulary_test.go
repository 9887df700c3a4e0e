package engine

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// wideVocabulary makes a model of hardly any layers and the vocabulary of Qwen2.5.
func wideVocabulary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config := `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 32,
		"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16384, "rms_norm_eps": 1e-06,
		"rope_theta": 10000.0, "tie_word_embeddings": true, "vocab_size": 151936, "dtype": "float32"}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(17, 18))
	var entries []weights.Entry
	for _, p := range architecture.Parameters() {
		entries = append(entries, weights.Entry{Name: p.Name, DType: "F32", Shape: p.Shape, Data: func() ([]byte, error) {
			data := make([]byte, 0, 4*elements(p.Shape))
			for range elements(p.Shape) {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(r.NormFloat64())/2))
			}
			return data, nil
		}})
	}
	if err := weights.WriteFile(filepath.Join(dir, "model.safetensors"), entries); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Logits of 2,048 tokens by 151,936 ids would take 1.2 GB in float32, and as much again for their gradient. They exist for
// some rows at a time, 64 on a CPU and 883 on a GPU, and how they are cut changes nothing.
func TestAWideVocabularyNeedsNoMatrixOfAllLogits(t *testing.T) {
	const tokens = 2048
	most := int64(700 << 20)
	if device.Device() == "cpu" {
		most = 150 << 20
	}
	m, err := device.Load(wideVocabulary(t), Options{DType: float32Name, Trainable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	r := rand.New(rand.NewPCG(19, 20))
	row := model.ScoreRow{IDs: randomIDs(r, tokens+1, m.Architecture.VocabSize), Positions: every(tokens + 1)}
	before, err := m.MemoryUsage()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ResetPeak(); err != nil {
		t.Fatal(err)
	}
	whole, err := m.Score([]model.ScoreRow{row}, 1)
	if err != nil {
		t.Fatal(err)
	}
	rows := asTrainRows([]model.ScoreRow{row}, whole)
	backward(t, m, rows, 1, ppo)
	after, err := m.MemoryUsage()
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Peak - before.Current; grown > most {
		t.Errorf("scoring and training of %d tokens took %d MiB, at most %d are expected", tokens, grown>>20, most>>20)
	}
	together := gradientsOf(t, m)
	few := model.ScoreRow{IDs: row.IDs, Positions: []int32{1, 63, 64, 65, 883, 884, 885, tokens}}
	alone, err := m.Score([]model.ScoreRow{few}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, position := range few.Positions {
		near(t, "log-prob", whole[0].LogProbs[position-1:position], alone[0].LogProbs[k:k+1], 1e-5)
	}
	// The same tokens in two calls, cut where no chunk ends.
	for _, part := range [][2]int{{0, 777}, {777, tokens}} {
		half := rows[0]
		half.Positions, half.OldLogProbs, half.RefLogProbs = half.Positions[part[0]:part[1]], half.OldLogProbs[part[0]:part[1]], half.RefLogProbs[part[0]:part[1]]
		half.Advantages, half.Weights = half.Advantages[part[0]:part[1]], half.Weights[part[0]:part[1]]
		backward(t, m, []model.TrainRow{half}, 1, ppo)
	}
	for tensor, want := range gradientsOf(t, m) {
		if distance := relativeDistance(together[tensor], want); !(distance <= 1e-4) {
			t.Errorf("%s: relative distance %.2g between the gradients of one call and of two", tensor, distance)
		}
	}
}
