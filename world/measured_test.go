package world

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"testing"
)

// Figures that were measured in the standard world are of these bytes: whatever changes one of them
// makes another world, which has to be measured anew. The weights are left out, as their last bits
// may depend on the processor.
func TestTheStandardWorldIsTheMeasuredOne(t *testing.T) {
	for file, want := range map[string]string{
		CorpusFile:                      "34245a02aaeed4342c677848eeaeec52eb153ef88d5270da60481717cf28d8bd",
		TrainFile:                       "d249ad218076b69748bd84466d96a42a0b40c5841aed12d8570c67e1daac6d8b",
		EvalFile:                        "73bc94df6bfd737ef920861b4438eb545111c07f9eb476ef5a2f9fecee83ed7b",
		DemonstrationsFile:              "aa70b57a02d6e79f8ec886f29143f2599fa8481597963dcca24424f2ade5219b",
		EvalDemonstrationsFile:          "67d336bc2642a5862324eadbb571e76918ce270f24b50eba9d71897af6abb8f0",
		ModelFolder + "/tokenizer.json": "7bb10d2bc68eba7d44339be6e0aa9dab6bb6c064075d3877684c37099050d8b2",
	} {
		sum := sha256.Sum256([]byte(readText(t, filepath.Join(standardFolder(t), file))))
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s has the hash %s, want %s", file, got, want)
		}
	}
}
