package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

var (
	firstHalves  = []string{"Bel", "Cor", "Dun", "Fal", "Gor", "Hel"}
	secondHalves = []string{"mar", "nis", "tor", "vik"}
	goods        = []string{"silk", "salt", "amber", "copper", "wool", "glass"}
	rivers       = []string{"Ansel", "Brume", "Ister", "Orven", "Tavy", "Wend"}
)

// town is a made-up town with the two facts about it.
type town struct{ name, good, river string }

type world struct{ towns []town }

func newWorld(seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 0))
	w := &world{}
	for _, first := range firstHalves {
		for _, second := range secondHalves {
			w.towns = append(w.towns, town{
				name: first + second, good: goods[random.IntN(len(goods))], river: rivers[random.IntN(len(rivers))],
			})
		}
	}
	return w
}

func (t town) passage() string {
	return fmt.Sprintf("\"%s\"\n%s trades in %s. %s lies on the %s.", t.name, t.name, t.good, t.name, t.river)
}

// questions lists each question with its answer.
func (t town) questions() [][2]string {
	return [][2]string{
		{fmt.Sprintf("What does %s trade in?", t.name), t.good},
		{fmt.Sprintf("Which river does %s lie on?", t.name), t.river},
	}
}

// writeTexts writes corpus.jsonl and questions.jsonl.
func (w *world) writeTexts(dir string) error {
	var corpus, questions []any
	for k, t := range w.towns {
		corpus = append(corpus, map[string]any{"id": fmt.Sprint(k + 1), "contents": t.passage()})
		for n, question := range t.questions() {
			questions = append(questions, map[string]any{
				"id": fmt.Sprintf("%s-%d", t.name, n+1), "question": question[0], "golden_answers": []string{question[1]},
			})
		}
	}
	if err := writeLines(filepath.Join(dir, "corpus.jsonl"), corpus); err != nil {
		return err
	}
	return writeLines(filepath.Join(dir, "questions.jsonl"), questions)
}

func writeLines(path string, rows []any) error {
	var text strings.Builder
	for _, row := range rows {
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}
