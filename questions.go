package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// questions are a question set without those whose prompt is too long.
type questions struct {
	*dataset.Set
	kept    []dataset.Question
	dropped []string // ids
	limit   string   // what the dropped ones exceed
}

// selection says which questions a set has.
type selection struct {
	sources     []dataset.Source
	composition dataset.Composition // without Objectives questions stay as they are
	get         string              // what gets the files
}

// trainingSelection are those of data.train or data.mix.
func trainingSelection(d config.Data) selection {
	return selection{sources(d, d.Train, d.Mix), dataset.Composition{Objectives: d.Compose.Train, Template: d.Compose.Template, Seed: uint64(d.Compose.Seed)}, d.Get}
}

// evaluationSelection are those of data.eval or data.eval_mix: no sources without either.
func evaluationSelection(d config.Data) selection {
	return selection{sources(d, d.Eval, d.EvalMix), dataset.Composition{Objectives: d.Compose.Eval, Each: true, Template: d.Compose.Template, Seed: uint64(d.Compose.Seed)}, d.Get}
}

func sources(d config.Data, files config.List, mix []config.Source) []dataset.Source {
	if len(mix) == 0 && len(files) > 0 {
		return []dataset.Source{{Files: files, Fields: columns(d.Fields, config.Fields{})}}
	}
	list := make([]dataset.Source, len(mix))
	for k, source := range mix {
		list[k] = dataset.Source{
			Files: source.Files, Name: source.Name, Fields: columns(source.Fields, d.Fields), Weight: source.Weight,
			Sample: source.Sample, Seed: uint64(source.Seed), Aliases: source.Aliases, MaxQuestionChars: source.MaxQuestionChars,
		}
	}
	return list
}

// columns are those that fields names, else those that are common to all sources.
func columns(fields, common config.Fields) map[string]string {
	named := map[string]string{}
	for _, f := range []config.Fields{common, fields} {
		for name, column := range map[string]string{
			"id": f.ID, "question": f.Question, "golden_answers": f.GoldenAnswers, "source": f.Source, "hops": f.Hops,
		} {
			if column != "" {
				named[name] = column
			}
		}
	}
	return named
}

// load reads and checks the files.
func (s selection) load() (*dataset.Set, error) {
	set, err := dataset.LoadSources(s.sources)
	if err != nil {
		return nil, fault.Usage(withGet(err, s.get))
	}
	if len(s.composition.Objectives) > 0 {
		if err := set.Compose(s.composition); err != nil {
			return nil, fault.Usage(fmt.Errorf("data.compose: %w", err))
		}
	}
	return set, nil
}

// loadQuestions reads and checks the files, then measures every prompt.
func loadQuestions(c *config.Config, of selection, t *texts) (*questions, error) {
	set, err := of.load()
	if err != nil {
		return nil, err
	}
	q := &questions{Set: set, limit: contextLimit(c, t)}
	if c.Data.MaxPromptTokens > 0 {
		q.limit = fmt.Sprintf("%d tokens (data.max_prompt_tokens)", c.Data.MaxPromptTokens)
	}
	for _, question := range set.Questions {
		fits, err := promptFits(c, t, question)
		if err != nil {
			return nil, fault.Usage(err)
		}
		if fits {
			q.kept = append(q.kept, question)
		} else {
			q.dropped = append(q.dropped, question.ID)
		}
	}
	return q, q.check(c)
}

// sampler draws from the questions by the weights of their sources.
func (q *questions) sampler(c *config.Config) (*dataset.Sampler, error) {
	shares := make([]dataset.Share, len(q.Parts))
	for k, part := range q.Parts {
		shares[k].Weight = part.Weight
	}
	for _, question := range q.kept {
		share := &shares[question.Part]
		share.Questions = append(share.Questions, question)
	}
	return dataset.NewMix(shares, uint64(c.Run.Seed), c.Data.Shuffle)
}

// files are the question files.
func (q *questions) files() []string {
	var files []string
	for _, part := range q.Parts {
		files = append(files, part.Files...)
	}
	return files
}

// announce tells where the questions come from, and what of it is none.
func (q *questions) announce(line func(string), log *zap.Logger) {
	for _, part := range q.Parts {
		line(describePart(part))
	}
	if len(q.dropped) > 0 {
		line(q.overLength() + "; dropped")
		log.Warn("over-long prompts dropped", zap.Strings("questions", q.dropped))
	}
}

// describePart tells on a line what became of a source: 3 of its files, what they were read as, and
// what was left out.
func describePart(part dataset.Part) string {
	const named = 3
	files := part.Files
	text := strings.Join(files[:min(named, len(files))], ", ")
	if len(files) > named {
		text += fmt.Sprintf(", … (%d files)", len(files))
	}
	if part.Name != "" {
		text = part.Name + ", " + text
	}
	text = fmt.Sprintf("%s: %d rows", text, part.Rows)
	if len(part.Shapes) == 1 {
		text += ", read as " + part.Shapes[0].What
	} else {
		for _, shape := range part.Shapes {
			text += fmt.Sprintf(", %d read as %s", shape.Rows, shape.What)
		}
	}
	if len(part.Composed) > 0 {
		text += "; composed: " + counted(part.Composed, "of ")
	}
	if len(part.LeftOut) > 0 {
		text += "; left out: " + counted(part.LeftOut, "")
	}
	return text
}

// onALine is the beginning of a text out of a file, in quotes where a terminal would not show it as it is.
func onALine(text string) string {
	const limit = 300
	shown := text
	if runes := []rune(text[:min(len(text), 4*limit)]); len(text) > limit && len(runes) > limit {
		shown = string(runes[:limit]) + "…"
	}
	if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(shown)
	}
	return shown
}

func counted(counts []dataset.Count, link string) string {
	texts := make([]string, len(counts))
	for k, c := range counts {
		texts[k] = fmt.Sprintf("%d %s%s", c.Rows, link, c.What)
	}
	return strings.Join(texts, ", ")
}

// contextLimit tells how much context there is, and where that is set.
func contextLimit(c *config.Config, t *texts) string {
	length := contextLength(c, t.architecture)
	key := "max_position_embeddings of config.json"
	if length == c.Rollout.ContextLength {
		key = "rollout.context_length"
	}
	return fmt.Sprintf("the context of %d tokens (%s) leaves room for", length, key)
}

func promptFits(c *config.Config, t *texts, question dataset.Question) (bool, error) {
	room, err := t.rules.Room(question)
	if err != nil || room < 1 {
		return false, err
	}
	if c.Data.MaxPromptTokens == 0 {
		return true, nil
	}
	prompt, err := t.rules.Format.Prompt(question.Text)
	return len(prompt) <= c.Data.MaxPromptTokens, err
}

func (q *questions) check(c *config.Config) error {
	if len(q.dropped) > 0 && c.Data.OverLength == "error" {
		return fault.Usage(errors.New(q.overLength() + `; data.over_length = "drop" takes the rest`))
	}
	left := make([]int, len(q.Parts))
	for _, question := range q.kept {
		left[question.Part]++
	}
	for k, n := range left {
		if n == 0 {
			return fault.Usage(fmt.Errorf("no question is left of %s: %s", strings.Join(q.Parts[k].Files, ", "), q.overLength()))
		}
	}
	return nil
}

// overLength tells which prompts are too long.
func (q *questions) overLength() string {
	const listed = 10
	var shown []string
	for _, id := range q.dropped[:min(listed, len(q.dropped))] {
		shown = append(shown, onALine(id))
	}
	more := ""
	if len(q.dropped) > listed {
		more = ", …"
	}
	return fmt.Sprintf("%d of %d prompts are longer than %s: %s%s", len(q.dropped), len(q.Questions), q.limit, strings.Join(shown, ", "), more)
}
