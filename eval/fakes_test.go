package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
)

const (
	endID   = 256    // end of sequence; every other id is a byte
	writeAt = "\nA:" // where the model starts to write
)

// byteVocabulary has a token for each byte.
type byteVocabulary struct{}

func (byteVocabulary) Encode(segments ...tokenizer.Segment) []int32 {
	var ids []int32
	for _, segment := range segments {
		for _, b := range []byte(segment.Text) {
			ids = append(ids, int32(b))
		}
	}
	return ids
}

func (v byteVocabulary) EncodePlain(text string) []int32 {
	return v.Encode(tokenizer.Segment{Text: text})
}

func (byteVocabulary) TokenBytes(id int32) ([]byte, bool) {
	if id < 0 || id >= endID {
		return nil, id == endID
	}
	return []byte{byte(id)}, true
}

func (byteVocabulary) Valid() []bool { return make([]bool, endID+1) }

// byteFormat writes the question and results between the turns.
type byteFormat struct{}

func (byteFormat) Prompt(question string) ([]int32, error) {
	return byteVocabulary{}.EncodePlain(question + writeAt), nil
}

func (byteFormat) Observation(result []tokenizer.Segment, _ bool) []int32 {
	return byteVocabulary{}.Encode(append(result, tokenizer.Segment{Text: writeAt})...)
}

func (byteFormat) EndOfTurn() []int32 { return []int32{endID} }

// writer is a policy that reads what stands before a turn, and writes it as script says.
type writer struct {
	script func(context string, luck uint64) string // luck is the seed of the turn's first token
	draws  map[uint64]int                           // of each seed
	rows   map[int]*fakeRow
	opened int
	onStep func(step int) error // may refuse a step
	steps  int
}

type fakeRow struct {
	text string // what was fed
	left string // to be written in the turn under way
}

func (w *writer) NewSession(model.SessionOptions) (model.Session, error) {
	w.rows = map[int]*fakeRow{}
	return w, nil
}

func (w *writer) Open() (int, error) { return w.add(&fakeRow{}), nil }
func (w *writer) Fork(source, length int) (int, error) {
	return w.add(&fakeRow{text: w.rows[source].text[:length]}), nil
}

func (w *writer) Score([]model.Piece) ([]model.RowScores, error) {
	return nil, errors.New("nothing is scored")
}

func (w *writer) Usage() model.CacheUsage { return model.CacheUsage{PageTokens: 1} }

func (w *writer) Close() error { return nil }

func (w *writer) add(r *fakeRow) int {
	w.opened++
	w.rows[w.opened] = r
	return w.opened
}

func (w *writer) Release(row int) error {
	delete(w.rows, row)
	return nil
}

func (w *writer) Step(inputs []model.RowInput) ([]model.Sampled, error) {
	w.steps++
	if w.onStep != nil {
		if err := w.onStep(w.steps); err != nil {
			return nil, err
		}
	}
	sampled := make([]model.Sampled, len(inputs))
	for k, in := range inputs {
		r := w.rows[in.Row]
		for _, id := range in.IDs {
			r.text += string([]byte{byte(id)})
		}
		sampled[k].ID = -1
		if in.Sample {
			sampled[k] = model.Sampled{ID: w.next(r, in.Seed), LogProb: -1}
		}
	}
	return sampled, nil
}

func (w *writer) next(r *fakeRow, seed uint64) int32 {
	w.draws[seed]++
	if strings.HasSuffix(r.text, writeAt) {
		r.left = w.script(r.text, seed)
	}
	if r.left == "" {
		return endID
	}
	id := int32(r.left[0])
	r.left = r.left[1:]
	return id
}

// turn is a turn of the model's with an action.
func turn(memory, action, text string) string {
	return fmt.Sprintf("<mem>%s</mem><think></think><%s>%s</%s>", memory, action, text, action)
}

func newWriter(script func(context string, luck uint64) string) *writer {
	return &writer{script: script, draws: map[uint64]int{}}
}

// answersAtOnce writes the answer that a question's text names, at once.
func answersAtOnce(context string, _ uint64) string {
	answer, _, _ := strings.Cut(context, writeAt)
	return turn("m", "answer", answer)
}

// questions are asked by the texts of answers; the golden answer of each is "yes".
func questions(answers ...string) []dataset.Question {
	var all []dataset.Question
	for k, answer := range answers {
		all = append(all, dataset.Question{ID: fmt.Sprint("q", k), Text: answer, Objectives: [][]string{{"yes"}}})
	}
	return all
}

type searchFunc func(query string) ([]retrieval.Passage, error)

func (f searchFunc) Search(_ context.Context, query string, _ int) ([]retrieval.Passage, error) {
	return f(query)
}

func echo(query string) ([]retrieval.Passage, error) {
	return []retrieval.Passage{{ID: "1", Contents: "about " + query}}, nil
}

func tools() rollout.Tools {
	return rollout.Tools{Search: searchFunc(echo), TopK: 1, Concurrency: 4}
}

// options are greedy in limited context, without a limit in sight.
func options() Options {
	return Options{Rollout: rollout.Options{
		Rules: rollout.Rules{
			Limits: rollout.Limits{MaxTurns: 4, MaxTurnTokens: 200, MaxResponseTokens: 1000, ToolResultTokens: 100, ContextLength: 2000},
			Format: byteFormat{}, Vocabulary: byteVocabulary{}, EOS: []int32{endID}, AnswerPrefix: "<answer>",
		},
		Context: rollout.Limited, GroupSize: 1, Seed: 7, Schedule: rollout.Fixed, BatchTokens: 4096,
	}}
}

func run(t *testing.T, w *writer, asked []dataset.Question, o Options) *Result {
	t.Helper()
	result, err := Run(t.Context(), w, asked, o, tools())
	if err != nil {
		t.Fatal(err)
	}
	result.Seconds = 0
	return result
}
