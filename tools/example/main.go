// Command example makes what a first training run needs, without a download: a corpus of made-up
// facts, questions about them, and a small model. Its weights are random but for one thing: pairs
// of tokens that follow each other are planted in the output head, so that the model opens and
// closes the tags of a turn and guesses at their contents. `go run ./tools/example DIR` writes
// DIR/corpus.jsonl, DIR/questions.jsonl and the HuggingFace folder DIR/model.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./tools/example DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	w := newWorld(1)
	if err := w.writeTexts(dir); err != nil {
		return err
	}
	return newLanguage(w).writeModel(dir)
}
