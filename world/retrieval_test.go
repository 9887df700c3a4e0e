package world

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval/index"
)

// The file is read and searched as a run does it.
func TestTheCorpusFileIsSearchedByName(t *testing.T) {
	passages, err := index.LoadCorpus(filepath.Join(standardFolder(t), CorpusFile))
	if err != nil {
		t.Fatal(err)
	}
	x := index.NewBM25(passages)
	for _, passage := range passages {
		title, _, _ := strings.Cut(passage.Contents, "\n")
		found, err := x.Search(t.Context(), strings.Trim(title, `"`), 1)
		if err != nil || len(found) != 1 || found[0] != passage {
			t.Fatalf("a search for %s finds %+v, %v", title, found, err)
		}
	}
}
