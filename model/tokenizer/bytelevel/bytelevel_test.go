package bytelevel

import (
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

func TestWordsAreOneTokenEach(t *testing.T) {
	words := []string{"Velmor", " Velm", " Velmor", "silk", " the", " silk", " lilk"}
	written := Tokenizer{Merges: Words(words...), Special: []string{"<|im_end|>", "<mem>"}, EOS: "<|im_end|>", Template: ChatML}
	dir := t.TempDir()
	if err := written.Write(dir); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		if ids := tok.EncodePlain(word); len(ids) != 1 || tok.Decode(ids) != word {
			t.Errorf("%q is %v", word, ids)
		}
	}
	mem := written.FirstSpecial() + 1
	if ids := tok.EncodeTrusted("<mem>silk"); !slices.Equal(ids, append([]int32{mem}, tok.EncodePlain("silk")...)) {
		t.Errorf("<mem>silk is %v, want %d first", ids, mem)
	}
	if tok.Size() != int(mem)+1 {
		t.Errorf("%d ids, want %d", tok.Size(), mem+1)
	}
}

func TestMergesShareWhatWordsHaveInCommon(t *testing.T) {
	merges := Words("bc", " ab", " abc", " b", "bc")
	want := [][2]string{{"b", "c"}, {" ", "a"}, {" a", "b"}, {" a", "bc"}, {" ", "b"}}
	if !slices.Equal(merges, want) {
		t.Errorf("merges are %q, want %q", merges, want)
	}
}
