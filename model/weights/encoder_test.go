package weights

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

const tinyEncoder = `{"model_type": "bert", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 6, "num_hidden_layers": 1,
	"num_attention_heads": 2, "max_position_embeddings": 16}`

// encoderFolder writes the parameters of a tiny encoder, each name with a prefix, and further tensors.
func encoderFolder(t *testing.T, prefix string, further ...Entry) string {
	t.Helper()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "config.json"), tinyEncoder)
	architecture, err := model.LoadEncoderArchitecture(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, parameter := range architecture.Parameters() {
		e := entry(parameter.Name, F32, parameter.Shape...)
		e.Name = prefix + e.Name
		further = append(further, e)
	}
	writeEntries(t, filepath.Join(dir, SingleFile), further)
	return dir
}

func TestOpenEncoder(t *testing.T) {
	hashes := map[string]bool{}
	for _, dir := range []string{
		encoderFolder(t, ""), encoderFolder(t, "bert."),
		encoderFolder(t, "", entry("embeddings.position_ids", "I32", 1, 16), entry("pooler.dense.weight", F32, 4, 4)),
		encoderFolder(t, "bert.", entry("cls.predictions.bias", F32, 8), entry("bert.pooler.dense.bias", F32, 4)),
	} {
		folder, err := OpenEncoder(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := folder.Tensor("encoder.layer.0.output.dense.weight"); !ok || len(folder.Tensors()) != 21 {
			t.Errorf("%d parameters, without a known one", len(folder.Tensors()))
		}
		hashes[folder.Hash()] = true
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	}
	if len(hashes) != 1 {
		t.Errorf("the same weights have %d hashes", len(hashes))
	}
}

func TestOpenEncoderRefuses(t *testing.T) {
	for want, dir := range map[string]string{
		`"bert.extra" does not belong to BertModel`:            encoderFolder(t, "bert.", entry("bert.extra", F32, 1)),
		`"lm_head.weight" does not belong`:                     encoderFolder(t, "", entry("lm_head.weight", F32, 8, 4)),
		`"embeddings.word_embeddings.weight", which BertModel`: encoderFolder(t, "roberta."),
	} {
		folder, err := OpenEncoder(dir)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if folder != nil {
			t.Error("a folder beside an error")
		}
	}
	if _, err := OpenEncoder(filepath.Join(golden, "qwen2-tiny")); err == nil || !strings.Contains(err.Error(), "model_type") {
		t.Errorf("a language model: %v", err)
	}
}
