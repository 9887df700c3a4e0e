// Package world makes up an encyclopedia, and what a run needs to learn to search in it and to
// remember: passages, questions with held-out entities, demonstrations, and a small model with a
// tokenizer of its own. All are files of the ordinary formats.
//
// Names are fixed, facts are drawn: worlds of the same size have the same names, and a seed says
// what is true of them. The questions are about one world, which is split: no training question
// has to do with an entity that an evaluation question is about. The demonstrations come from other
// worlds, so that nothing they tell is an answer. Those use all names, as words: a token that was
// never to be written in training is never written later.
package world

import (
	"fmt"
	"math/rand/v2"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// Options say what is made.
type Options struct {
	Seed                                       uint64
	People, Towns, Countries, Companies, Books int
	HeldOut                                    float64 // share of each kind that only evaluation asks about
	Questions                                  QuestionOptions
	Demonstrations                             DemonstrationOptions
	Model                                      ModelOptions
}

// QuestionOptions are the questions about the world.
type QuestionOptions struct {
	Train, Eval  int                // how many
	Mix          map[string]float64 // weight of each shape, as in "2+1"
	MaxTurns     int                // that a demonstration may take, the answer's included
	SystemPrompt string             // of the demonstrations
}

// DemonstrationOptions are the demonstrations, in three parts that follow each other, and those of
// the evaluation loss.
type DemonstrationOptions struct {
	Worlds                   int // that the parts come from; the evaluation's come from a further one
	Clean, Forgetful, Flawed int // how many in each part
	Eval                     int

	LimitedShare float64 // of all, shown as one turn of the limited context
	AnswerShare  float64 // of all, shown as the golden answer behind a memory or a history

	ForgetfulShare float64 // of the forgetful part, that loses most of its memory
	MemoryDrop     float64 // the chances of Flaws, in the flawed part
	WrongQuery     float64
	WrongValue     float64
}

// lost is the chance that one that loses most of its memory leaves out a fact, each time.
const lost = 0.8

// part is a stretch of demonstrations that are drawn alike.
type part struct {
	name  string
	count int
	flaws func(*rand.Rand) flaws
}

func (d DemonstrationOptions) parts() []part {
	return []part{
		{"clean", d.Clean, func(*rand.Rand) flaws { return flaws{} }},
		{"forgetful", d.Forgetful, func(random *rand.Rand) flaws {
			if random.Float64() < d.ForgetfulShare {
				return flaws{loseFacts: lost}
			}
			return flaws{}
		}},
		{"flawed", d.Flawed, func(*rand.Rand) flaws {
			return flaws{dropFact: d.MemoryDrop, wrongQuery: d.WrongQuery, wrongValue: d.WrongValue}
		}},
	}
}

// plan is a checked world before anything is drawn.
type plan struct {
	Options
	mix  *mix
	cast *cast
}

func (o Options) plan() (*plan, error) {
	m, err := newMix(o.Questions.Mix, o.Questions.MaxTurns)
	if err != nil {
		return nil, fault.Usage(err)
	}
	count := [kinds]int{person: o.People, town: o.Towns, country: o.Countries, company: o.Companies, book: o.Books}
	c := newCast(count, o.HeldOut)
	for k := range kind(kinds) {
		for _, heldOut := range []bool{false, true} {
			if len(c.of(k, heldOut)) == 0 {
				return nil, fault.Usage(fmt.Errorf("world.held_out is %v, which puts all entities of the kind %s, %d of them, on one side of the split; each side needs one", o.HeldOut, kindNames[k], count[k]))
			}
		}
	}
	return &plan{o, m, c}, nil
}

// The worlds of a seed: the one that questions are about, and those of the demonstrations.
const (
	runWorld            = 0
	firstDemonstrations = 1
)

func (p *plan) atlas(number int) *atlas {
	c := p.cast
	if number != runWorld {
		c = c.together()
	}
	return newAtlas(c, stream("facts", p.Seed, uint64(number)))
}

// questions draws the questions about a world.
func (p *plan) questions(a *atlas) (train, eval []*question, err error) {
	if train, err = newAsker(a, false, stream("training questions", p.Seed)).askAll(p.mix, p.Questions.Train); err != nil {
		return nil, nil, fault.Usage(fmt.Errorf("questions.train: %w", err))
	}
	if eval, err = newAsker(a, true, stream("evaluation questions", p.Seed)).askAll(p.mix, p.Questions.Eval); err != nil {
		return nil, nil, fault.Usage(fmt.Errorf("questions.eval: %w", err))
	}
	return train, eval, nil
}

// demonstrations draws all parts in their order and passes on each demonstration.
func (p *plan) demonstrations(yield func([]Message) error) error {
	askers := make([]*asker, p.Demonstrations.Worlds)
	for k := range askers {
		askers[k] = newAsker(p.atlas(firstDemonstrations+k), false, stream("demonstrated questions", p.Seed, uint64(k)))
	}
	for _, part := range p.Demonstrations.parts() {
		if err := p.draw(part, askers, yield); err != nil {
			return err
		}
	}
	return nil
}

// evalDemonstrations draws clean demonstrations from a world of their own.
func (p *plan) evalDemonstrations(yield func([]Message) error) error {
	a := p.atlas(firstDemonstrations + p.Demonstrations.Worlds)
	held := newAsker(a, false, stream("questions of the evaluation loss", p.Seed))
	part := part{"eval", p.Demonstrations.Eval, func(*rand.Rand) flaws { return flaws{} }}
	return p.draw(part, []*asker{held}, yield)
}

func (p *plan) draw(part part, askers []*asker, yield func([]Message) error) error {
	random := stream("demonstrations "+part.name, p.Seed)
	view := viewer{p.Questions.SystemPrompt, p.Demonstrations.LimitedShare, p.Demonstrations.AnswerShare}
	for _, of := range p.mix.list(part.count, random) {
		q, err := pick(random, askers).ask(of, func(*question) bool { return true })
		if err != nil {
			return fault.Usage(fmt.Errorf("demonstrations.%s: %w", part.name, err))
		}
		t := demonstrate(q, part.flaws(random), p.Questions.MaxTurns, random)
		if err := yield(view.view(&t, random)); err != nil {
			return err
		}
	}
	return nil
}
