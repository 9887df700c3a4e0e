package world

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
)

// flaws are the mistakes of a demonstration, as chances. The zero value has none.
type flaws struct {
	// loseFacts is the chance, for each fact and each time the memory is written, that the fact is
	// left out.
	loseFacts float64
	// dropFact is the chance, each time the memory is written, that one of its facts is left out.
	dropFact float64
	// wrongQuery is the chance of a turn to search for another entity that was mentioned before; a
	// turn is only wasted so where one can be spared.
	wrongQuery float64
	// wrongValue is the chance that the answer gives, for one objective, the other value of the
	// passage that the right one is in.
	wrongValue float64
}

// turn is what the model writes at a time, and the passage that its search brings.
type turn struct {
	known  []string // facts found before it
	memory []string // those of them that it writes down
	goal   string   // what the thought says
	query  entity   // of a turn that searches
	answer []string // of the last turn, one for each objective
}

// trajectory is a whole conversation about a question.
type trajectory struct {
	question *question
	turns    []turn
}

// demonstrate answers a question within a number of turns, chain by chain. What one memory leaves
// out may stand in the next, as the whole conversation is there to be read.
func demonstrate(q *question, f flaws, maxTurns int, random *rand.Rand) trajectory {
	t := trajectory{question: q}
	spare := maxTurns - q.shape().turns()
	var known []string
	write := func(step turn) {
		step.known = slices.Clone(known)
		step.memory = f.remembered(known, random)
		t.turns = append(t.turns, step)
	}
	for _, h := range q.hops() {
		step := turn{goal: "find " + relations[h.relation].name + " of " + q.names[h.subject], query: h.subject}
		for spare > 0 && len(t.mentioned(h.subject)) > 0 && random.Float64() < f.wrongQuery {
			wrong := step
			wrong.query = pick(random, t.mentioned(h.subject))
			write(wrong)
			spare--
		}
		write(step)
		known = append(known, q.fact(h.subject, h.relation))
	}
	write(turn{goal: "done", answer: q.answer(f, random)})
	return t
}

// remembered is what is written down of the known facts.
func (f flaws) remembered(known []string, random *rand.Rand) []string {
	var memory []string
	for _, fact := range known {
		if random.Float64() >= f.loseFacts {
			memory = append(memory, fact)
		}
	}
	if len(memory) > 0 && random.Float64() < f.dropFact {
		at := random.IntN(len(memory))
		memory = slices.Delete(memory, at, at+1)
	}
	return memory
}

// mentioned lists the entities that the question and the searches so far have named, but for one.
func (t *trajectory) mentioned(but entity) []entity {
	var list []entity
	add := func(e entity) {
		if e != but && !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	for _, chain := range t.question.chains {
		add(chain[0].subject)
	}
	for _, turn := range t.turns {
		add(turn.query)
	}
	return list
}

// answer is the golden answer, or one with a wrong value.
func (q *question) answer(f flaws, random *rand.Rand) []string {
	answer := q.golden()
	if random.Float64() >= f.wrongValue {
		return answer
	}
	k := random.IntN(len(q.chains))
	last := q.chains[k][len(q.chains[k])-1]
	wrong := q.value(last.subject, other(last.relation))
	answer[k] = relations[last.relation].name + " " + q.names[wrong]
	return answer
}

// memoryText is a memory with its tags. Facts stand behind a space, so that every word is the token
// that it is elsewhere.
func memoryText(facts []string) string {
	if len(facts) == 0 {
		return "<mem></mem>"
	}
	return "<mem> " + strings.Join(facts, "; ") + "</mem>"
}

// actionText is the action of a turn with its tags. The answer begins without a space, as the
// golden answer does where it is scored.
func (t *trajectory) actionText(k int) string {
	turn := t.turns[k]
	if turn.answer != nil {
		return "<answer>" + strings.Join(turn.answer, "; ") + "</answer>"
	}
	return "<search> " + t.question.names[turn.query] + "</search>"
}

// text is all that the model writes in a turn.
func (t *trajectory) text(k int) string {
	return memoryText(t.turns[k].memory) + "<think> " + t.turns[k].goal + "</think>" + t.actionText(k)
}

// result is what the search of a turn shows.
func (t *trajectory) result(k int) string {
	title, text := t.question.passage(t.turns[k].query)
	return rollout.ResultText([]retrieval.Passage{{Contents: contents(title, text)}})
}
