package world

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Message is one message of a demonstration.
type Message struct {
	Role    string `json:"role"`             // system, user or assistant
	Weight  *int   `json:"weight,omitempty"` // 0: context only. nil: what the model wrote is learnt
	Prefix  string `json:"prefix,omitempty"` // text of the same turn before Content: context only
	Content string `json:"content"`
}

// viewer shows trajectories as demonstrations.
type viewer struct {
	systemPrompt              string
	limitedShare, answerShare float64
}

// view shows a trajectory whole, as one turn of the limited context, or in one of the forms that
// the memory reward scores: the golden answer behind a memory alone, or behind the whole history
// before it.
func (v viewer) view(t *trajectory, random *rand.Rand) []Message {
	at := 1 + random.IntN(len(t.turns)-1) // a turn that has one before it
	choice, behindMemory := random.Float64(), random.IntN(2) == 0
	switch {
	case choice < v.limitedShare:
		return v.limited(t, at)
	case choice >= v.limitedShare+v.answerShare:
		return v.whole(t)
	case behindMemory:
		return v.answerBehindMemory(t, at)
	}
	return v.answerBehindHistory(t, at)
}

func (v viewer) prompt(t *trajectory) []Message {
	return []Message{{Role: "system", Content: v.systemPrompt}, {Role: "user", Content: t.question.text()}}
}

func (v viewer) whole(t *trajectory) []Message {
	messages := v.history(t, len(t.turns)-1)
	return append(messages, Message{Role: "assistant", Content: t.text(len(t.turns) - 1)})
}

// history is the conversation before turn at.
func (v viewer) history(t *trajectory, at int) []Message {
	messages := v.prompt(t)
	for k := range at {
		messages = append(messages, Message{Role: "assistant", Content: t.text(k)}, Message{Role: "user", Content: t.result(k)})
	}
	return messages
}

// limited shows a turn behind a memory that holds all that was known: what to do is then to be told
// from it, however careless the memory is that the turn writes.
func (v viewer) limited(t *trajectory, at int) []Message {
	return append(v.prompt(t),
		Message{Role: "assistant", Weight: new(int), Content: memoryText(t.turns[at-1].known) + t.actionText(at-1)},
		Message{Role: "user", Content: t.result(at - 1)},
		Message{Role: "assistant", Content: t.text(at)},
	)
}

const openAnswer, closeAnswer = "<answer>", "</answer>"

func (v viewer) answerBehindMemory(t *trajectory, at int) []Message {
	return append(v.prompt(t), t.goldenAnswer(memoryText(t.turns[at].memory)+openAnswer))
}

func (v viewer) answerBehindHistory(t *trajectory, at int) []Message {
	messages := v.history(t, at)
	for k := range messages {
		if messages[k].Role == "assistant" {
			messages[k].Weight = new(int)
		}
	}
	return append(messages, t.goldenAnswer(openAnswer))
}

func (t *trajectory) goldenAnswer(prefix string) Message {
	return Message{Role: "assistant", Prefix: prefix, Content: strings.Join(t.question.golden(), "; ") + closeAnswer}
}

// words lists what the messages of any question are made of besides names, each as it stands in
// the text: with the space before it where it has one.
func words(systemPrompt string) []string {
	list := []string{opening, " of", " find", " done", "Doc", " 1", "Title", " \"", "\")"}
	for _, r := range relations {
		list = append(list, r.name, " "+r.name)
	}
	for k, word := range strings.Fields(systemPrompt) {
		word = strings.TrimRight(word, ".,;:!?")
		if k > 0 {
			word = " " + word
		}
		if !slices.Contains(list, word) {
			list = append(list, word)
		}
	}
	return list
}
