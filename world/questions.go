package world

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// hop is one step of a chain: the relation of an entity that is asked for.
type hop struct {
	subject  entity
	relation int
}

// question asks for the ends of one or more chains, one an objective. Within a question each
// relation occurs once, and so does each entity.
type question struct {
	*atlas
	chains [][]hop // from the entity that the question names to the value asked for
}

// shape is the hops of each objective.
func (q *question) shape() shape {
	s := make(shape, len(q.chains))
	for k, chain := range q.chains {
		s[k] = len(chain)
	}
	return s
}

// opening is the word that questions begin with; behind it every word has a space in front of it.
const opening = "Find"

// text is the question: "Find birthplace of author of Tozlum; seat of Vikrax".
func (q *question) text() string {
	asked := make([]string, len(q.chains))
	for k, chain := range q.chains {
		var words []string
		for step := len(chain) - 1; step >= 0; step-- {
			words = append(words, relations[chain[step].relation].name, "of")
		}
		asked[k] = strings.Join(append(words, q.names[chain[0].subject]), " ")
	}
	return opening + " " + strings.Join(asked, "; ")
}

// golden is the answer of each objective. It names the relation, so that an answer whose order is
// wrong is wrong, and what an answer will be about can be told before it is known.
func (q *question) golden() []string {
	answers := make([]string, len(q.chains))
	for k, chain := range q.chains {
		last := chain[len(chain)-1]
		answers[k] = q.fact(last.subject, last.relation)
	}
	return answers
}

// hops are the steps in the order in which they are looked up.
func (q *question) hops() []hop {
	var all []hop
	for _, chain := range q.chains {
		all = append(all, chain...)
	}
	return all
}

// asker makes the questions of one side of a world.
type asker struct {
	*atlas
	heldOut bool
	random  *rand.Rand
	byKind  [kinds][]entity
}

func newAsker(a *atlas, heldOut bool, random *rand.Rand) *asker {
	s := &asker{atlas: a, heldOut: heldOut, random: random}
	for k := range kind(kinds) {
		s.byKind[k] = a.of(k, heldOut)
	}
	return s
}

// tries is how often a question is drawn anew before the world counts as too small for it.
const tries = 2000

// ask draws a question of a shape that accept takes.
func (s *asker) ask(of shape, accept func(*question) bool) (*question, error) {
	for range tries {
		var q *question
		of.paths(s.random, func(chains [][]int) bool {
			q = s.fill(chains)
			return true
		})
		if q != nil && accept(q) {
			return q, nil
		}
	}
	side := "training"
	if s.heldOut {
		side = "held-out"
	}
	return nil, fmt.Errorf("no further question of shape %q was found in %d tries, the %s side of the world is too small for so many; allowed are fewer questions, a smaller weight of the shape, or more entities", of, tries, side)
}

// fill draws the entities that chains of relations start from; nil if one would occur twice.
func (s *asker) fill(chains [][]int) *question {
	q := &question{atlas: s.atlas}
	seen := map[entity]bool{}
	fresh := func(e entity) bool {
		defer func() { seen[e] = true }()
		return !seen[e]
	}
	for _, chain := range chains {
		at := pick(s.random, s.byKind[relations[chain[0]].from])
		if !fresh(at) {
			return nil
		}
		var hops []hop
		for _, r := range chain {
			hops = append(hops, hop{at, r})
			if at = s.value(at, r); !fresh(at) {
				return nil
			}
		}
		q.chains = append(q.chains, hops)
	}
	return q
}

// askAll draws n different questions in the shares of a mix.
func (s *asker) askAll(m *mix, n int) ([]*question, error) {
	asked := map[string]bool{}
	fresh := func(q *question) bool {
		text := q.text()
		defer func() { asked[text] = true }()
		return !asked[text]
	}
	var questions []*question
	for _, of := range m.list(n, s.random) {
		q, err := s.ask(of, fresh)
		if err != nil {
			return nil, err
		}
		questions = append(questions, q)
	}
	return questions, nil
}
