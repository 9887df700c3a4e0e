//go:build shared

package index

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHotpotQASample(t *testing.T) {
	folder := os.Getenv("MEMPO_SHARED")
	if folder == "" {
		t.Fatal("MEMPO_SHARED is not set")
	}
	passages, err := LoadCorpus(filepath.Join(folder, "data/hotpotqa_sample/corpus.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := NewBM25(passages).Search(t.Context(), "Demon Dice collectible game Lester Smith", 3)
	if err != nil || len(found) != 3 || found[0].ID != "0" {
		t.Errorf("found %+v, %v", found, err)
	}
}
