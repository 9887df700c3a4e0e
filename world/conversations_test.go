package world

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/chat"
)

const (
	wholeView = iota
	limitedView
	behindMemoryView
	behindHistoryView
)

func isContext(m Message) bool { return m.Role == "assistant" && m.Weight != nil && *m.Weight == 0 }

func (d demonstration) view() int {
	last := d.Messages[len(d.Messages)-1]
	switch {
	case last.Prefix == openAnswer:
		return behindHistoryView
	case last.Prefix != "":
		return behindMemoryView
	case slices.ContainsFunc(d.Messages, isContext):
		return limitedView
	}
	return wholeView
}

// spoken is a turn of the model, read back from its text.
type spoken struct {
	facts           []string // of its memory
	thought         string
	query, answered string // one of them
}

var (
	wholeForm  = regexp.MustCompile(`^<mem>(| [\w ;]+)</mem><think> ([\w ]+)</think>(?:<search> (\w+)</search>|<answer>([\w ;]+)</answer>)$`)
	forgotForm = regexp.MustCompile(`^<mem>(| [\w ;]+)</mem>()(?:<search> (\w+)</search>|<answer>([\w ;]+)</answer>)$`)
	memoryForm = regexp.MustCompile(`^<mem>(| [\w ;]+)</mem>()<answer>()()$`)
)

// hear reads a turn in one of the forms.
func hear(form *regexp.Regexp, text string) (spoken, error) {
	parts := form.FindStringSubmatch(text)
	if parts == nil {
		return spoken{}, fmt.Errorf("%q does not have the form of a turn", text)
	}
	s := spoken{thought: parts[2], query: parts[3], answered: parts[4]}
	if parts[1] != "" {
		s.facts = strings.Split(parts[1][1:], "; ")
	}
	return s, nil
}

// conversation is a demonstration that is shown whole, or its beginning.
type conversation struct {
	question string
	turns    []spoken
	seen     encyclopedia // what the results told
	texts    []string     // of the turns
}

// follow reads the messages of a conversation behind its prompt.
func (d demonstration) follow(messages []Message) (c conversation, err error) {
	c = conversation{question: d.Messages[1].Content, seen: encyclopedia{}}
	for k, m := range messages {
		if k%2 == 1 {
			if err := c.seen.learnResult(m.Content); err != nil {
				return c, err
			}
			continue
		}
		turn, err := hear(wholeForm, m.Content)
		if err != nil {
			return c, err
		}
		c.turns = append(c.turns, turn)
		c.texts = append(c.texts, m.Content)
	}
	return c, nil
}

// check checks the form of a demonstration, whichever way it is shown.
func (d demonstration) check(t *testing.T, line int, o Options) {
	t.Helper()
	for k, m := range d.Messages {
		role := "assistant"
		if k == 0 {
			role = "system"
		} else if k%2 == 1 {
			role = "user"
		}
		if m.Role != role || role != "assistant" && (m.Weight != nil || m.Prefix != "") {
			t.Fatalf("line %d: message %d is %+v, want one of the %s", line, k, m, role)
		}
	}
	last := len(d.Messages) - 1
	if d.Messages[0].Content != o.Questions.SystemPrompt || last < 2 || d.Messages[last].Role != "assistant" || isContext(d.Messages[last]) {
		t.Fatalf("line %d: %+v", line, d.Messages)
	}
	var err error
	switch d.view() {
	case wholeView:
		err = d.checkWhole(o.Questions.MaxTurns)
	case limitedView:
		err = d.checkLimited()
	case behindMemoryView:
		if err = checkAnswer(d.Messages[last], d.Messages[1].Content); err == nil && last != 2 {
			err = fmt.Errorf("%d messages come before the memory", last)
		}
	case behindHistoryView:
		err = d.checkBehindHistory(o.Questions.MaxTurns)
	}
	if err != nil {
		t.Errorf("line %d: %v in %+v", line, err, d.Messages)
	}
}

// checkWhole checks a whole conversation: its format, its turns, and that what it looks up suffices.
func (d demonstration) checkWhole(maxTurns int) error {
	if slices.ContainsFunc(d.Messages, isContext) {
		return fmt.Errorf("a turn of a whole conversation is not learnt")
	}
	c, err := d.follow(d.Messages[2:])
	if err != nil {
		return err
	}
	if problem := chat.ParseTrajectory(c.texts); problem != "" {
		return fmt.Errorf("the format is broken: %s", problem)
	}
	if len(c.turns) > maxTurns {
		return fmt.Errorf("%d turns", len(c.turns))
	}
	_, err = c.seen.solve(c.question)
	return err
}

// checkLimited checks a turn behind the memory and the action of the turn before it. That memory
// holds all that was known: the facts of the question's first look-ups.
func (d demonstration) checkLimited() error {
	if len(d.Messages) != 5 || !isContext(d.Messages[2]) {
		return fmt.Errorf("a turn of limited context has %d messages, want 5", len(d.Messages))
	}
	before, err := hear(forgotForm, d.Messages[2].Content)
	if err != nil {
		return err
	}
	if turn := chat.ParseTurn(d.Messages[4].Content); turn.FormatError != "" {
		return fmt.Errorf("the format is broken: %s", turn.FormatError)
	}
	if _, err := hear(wholeForm, d.Messages[4].Content); err != nil {
		return err
	}
	relations, _ := relationsAsked(d.Messages[1].Content)
	if len(before.facts) >= len(relations) {
		return fmt.Errorf("%d facts are known before the last look-up", len(before.facts))
	}
	for k, fact := range before.facts {
		if relation, _, _ := strings.Cut(fact, " "); relation != relations[k] {
			return fmt.Errorf("known fact %d is %q, which is not of the question's look-up %q", k, fact, relations[k])
		}
	}
	return encyclopedia{}.learnResult(d.Messages[3].Content)
}

func (d demonstration) checkBehindHistory(maxTurns int) error {
	last := len(d.Messages) - 1
	for _, m := range d.Messages[2:last] {
		if m.Role == "assistant" && !isContext(m) {
			return fmt.Errorf("a turn before the answer is learnt")
		}
	}
	c, err := d.follow(d.Messages[2:last])
	if err != nil {
		return err
	}
	if len(c.turns) == 0 || len(c.turns) >= maxTurns {
		return fmt.Errorf("%d turns come before the answer", len(c.turns))
	}
	for k := range c.texts {
		if turn := chat.ParseTurn(c.texts[k]); turn.FormatError != "" || turn.Action != chat.ActionSearch {
			return fmt.Errorf("turn %d is no search in the format", k)
		}
	}
	return checkAnswer(d.Messages[last], c.question)
}

// checkAnswer checks an answer behind a memory or nothing: it gives the relations asked for.
func checkAnswer(m Message, question string) error {
	if m.Prefix != openAnswer {
		if _, err := hear(memoryForm, m.Prefix); err != nil {
			return err
		}
	}
	answer, closed := strings.CutSuffix(m.Content, closeAnswer)
	relations, hops := relationsAsked(question)
	facts := strings.Split(answer, "; ")
	if !closed || len(facts) != len(hops) {
		return fmt.Errorf("%q answers %q", m.Content, question)
	}
	at := 0
	for k, fact := range facts {
		at += hops[k]
		if relation, value, _ := strings.Cut(fact, " "); relation != relations[at-1] || value == "" {
			return fmt.Errorf("%q answers %q", m.Content, question)
		}
	}
	return nil
}
