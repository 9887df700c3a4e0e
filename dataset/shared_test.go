//go:build shared

package dataset

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
	set, err := Load([]string{filepath.Join(folder, "data/hotpotqa_sample/questions.jsonl")}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := set.Questions[0]
	if q.ID != "5a77ec115542992a6e59dff7" || q.Text != "If Gallu is a demon Lilu is what?" || q.Objectives[0][0] != "a spirit" {
		t.Errorf("first question %+v", q)
	}
	if len(set.Questions) < 50 {
		t.Errorf("%d questions", len(set.Questions))
	}
}
