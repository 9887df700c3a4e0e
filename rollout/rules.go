package rollout

import (
	"fmt"
	"strings"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// AnswerText is the golden answer whose probability measures a memory: the first answer of each
// objective, trimmed, joined by "; ".
func AnswerText(question dataset.Question) string {
	answers := make([]string, 0, len(question.Objectives))
	for _, objective := range question.Objectives {
		if len(objective) > 0 {
			answers = append(answers, strings.TrimSpace(objective[0]))
		}
	}
	return strings.Join(answers, "; ")
}

// Room is the number of tokens that fit into the context behind the question's prompt and the
// prefill. A question without room (0 or less) cannot be answered: its prompt is over-long.
func (r Rules) Room(question dataset.Question) (int, error) {
	prompt, err := r.prompt(question)
	if err != nil {
		return 0, err
	}
	return r.contextLimit(question) - len(prompt) - len(r.prefill()), nil
}

func (r Rules) prompt(question dataset.Question) ([]int32, error) {
	prompt, err := r.Format.Prompt(question.Text)
	if err != nil {
		return nil, fmt.Errorf("question %q has no prompt: %w", question.ID, err)
	}
	if len(prompt) == 0 {
		return nil, fmt.Errorf("question %q has an empty prompt", question.ID)
	}
	return prompt, nil
}

// contextLimit is the context length less what the scoring of memories will append.
func (r Rules) contextLimit(question dataset.Question) int {
	answer := r.Vocabulary.EncodePlain(AnswerText(question))
	return r.ContextLength - len(trusted(r.Vocabulary, r.AnswerPrefix)) - len(answer)
}

func (r Rules) prefill() []int32 { return trusted(r.Vocabulary, r.Prefill) }

func trusted(vocabulary Vocabulary, text string) []int32 {
	if text == "" {
		return nil
	}
	return vocabulary.Encode(tokenizer.Segment{Text: text, Trusted: true})
}

// rules are Rules with what follows from them, shared by all machines and never changed.
type rules struct {
	Rules
	limited       bool // the context is
	tools         Tools
	tags          chat.Tags
	prefillIDs    []int32
	endOfTurn     []int32 // the tokens that close a turn in this format
	maxTokenBytes int     // length of the longest token
}

// newRules takes tools that Options.validate has let pass.
func newRules(r Rules, context Context, tools Tools) *rules {
	tags, err := tools.Tags()
	if err != nil {
		panic(err)
	}
	compiled := &rules{
		Rules: r, limited: context == Limited, tools: tools, tags: tags, prefillIDs: r.prefill(), endOfTurn: r.Format.EndOfTurn(),
	}
	for id := range r.Vocabulary.Valid() {
		token, _ := r.Vocabulary.TokenBytes(int32(id))
		compiled.maxTokenBytes = max(compiled.maxTokenBytes, len(token))
	}
	return compiled
}
