package main

import (
	"slices"

	"github.com/mempo-train/mempo-train/model/tokenizer/bytelevel"
)

const startOfTurn, endOfTurn = "<|im_start|>", "<|im_end|>"

var tags = []string{
	"<mem>", "</mem>", "<think>", "</think>", "<search>", "</search>", "<access>", "</access>", "<answer>", "</answer>",
	"<information>", "</information>",
}

// connectives are the other words of passages and questions.
var connectives = []string{" trades", " in", " lies", " on", " the", " does", " trade", " lie", " river", " next", "What", "Which"}

// follows is a pair of tokens of which the second is likely behind the first.
type follows struct {
	first, second string
	probability   float64
}

// language is a vocabulary and which of its tokens follow which.
type language struct {
	tokenizer bytelevel.Tokenizer
	pairs     []follows
}

func newLanguage(w *world) *language {
	answers := slices.Concat(goods, rivers)
	var names, words []string
	for _, t := range w.towns {
		names = append(names, t.name)
	}
	for _, word := range slices.Concat(answers, names) {
		words = append(words, word, " "+word)
	}
	l := &language{tokenizer: bytelevel.Tokenizer{
		Merges: bytelevel.Words(append(words, connectives...)...), Special: append([]string{startOfTurn, endOfTurn}, tags...),
		EOS: endOfTurn, Template: bytelevel.ChatML,
	}}
	l.plantTurn(names, answers)
	return l
}

// plantTurn makes turns likely that keep the format: a memory that is empty or one word, a search
// for a town or an answer.
func (l *language) plantTurn(names, answers []string) {
	l.plant("\n", 1, "<mem>") // ends the generation prompt
	l.plant("<mem>", 0.4, "</mem>")
	l.plant("</mem>", 1, "<think>")
	l.plant("<think>", 1, " next")
	l.plant(" next", 1, "</think>")
	l.plant("</think>", 0.6, "<search>")
	l.plant("</think>", 0.4, "<answer>")
	l.plant("<search>", 1, names...)
	for _, name := range names {
		l.plant(name, 1, "</search>")
	}
	l.plant("<answer>", 1, answers...)
	for _, answer := range answers {
		l.plant("<mem>", 0.6/float64(len(answers)), " "+answer)
		l.plant(" "+answer, 1, "</mem>")
		l.plant(answer, 1, "</answer>")
	}
}

// plant shares a probability among the tokens that may follow.
func (l *language) plant(first string, probability float64, seconds ...string) {
	for _, second := range seconds {
		l.pairs = append(l.pairs, follows{first, second, probability / float64(len(seconds))})
	}
}
