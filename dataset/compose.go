package dataset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// MaxObjectives is the most that a composition asks for.
const MaxObjectives = 10

// DefaultTemplate joins questions as the MemPO paper does.
const DefaultTemplate = `Answer the following questions: {{join .Questions "; "}}`

// Composition says how questions that ask for one thing each become questions that ask for several.
type Composition struct {
	// Objectives are numbers of questions, from 1 to MaxObjectives. At 1 a question stays as it is.
	Objectives []int
	// Each makes a set of every number, out of all questions; else the questions are shared out, to
	// the numbers in turn.
	Each bool
	Seed uint64 // of the order in which questions meet
	// Template is a text/template over .Questions, their texts, with the functions join (list,
	// separator), trimPrefix and trimSuffix (text, what) and inc (number); "" is DefaultTemplate. It may
	// go round its loops 10,000 times and make 1 MiB of text.
	Template string
}

// Compose puts compositions in the place of the questions, source by source. Those of a source are
// shuffled once and cut into pieces, so that no question stands twice in a composition or, of one
// number, in two. Left out and counted are questions that ask for several things already, those whose
// text came before, those whose golden answers all hold a ';', and those that are too few for another
// composition. A composition's id has the ids of its questions, joined by '+'; its golden answers are
// theirs in order; its hops are the most of them; its source is theirs, or "mixed".
func (s *Set) Compose(c Composition) error {
	for _, n := range c.Objectives {
		if n < 1 || n > MaxObjectives {
			return fmt.Errorf("%d objectives, allowed are 1 to %d", n, MaxObjectives)
		}
	}
	if len(c.Objectives) == 0 {
		return errors.New("no number of objectives is given")
	}
	text, err := parseTemplate(c.Template)
	if err != nil {
		return err
	}
	for _, n := range c.Objectives {
		if err := showsAll(text, n); err != nil {
			return err
		}
	}
	var composed []Question
	for k := range s.Parts {
		single := s.Parts[k].single(s.Questions, k)
		var pieces [][]int
		if len(single) > 0 {
			order, err := NewOrder("question composition", len(single), c.Seed, true)
			if err != nil {
				return err
			}
			pieces = s.Parts[k].cut(order.Next(len(single)), c)
		}
		if s.Parts[k].Questions = len(pieces); len(pieces) == 0 {
			return fmt.Errorf("question file %s: no question can be composed with others: %s", strings.Join(s.Parts[k].Files, ", "), list(s.Parts[k].LeftOut))
		}
		for _, piece := range pieces {
			question, err := compose(single, piece, text)
			if err != nil {
				return err
			}
			composed = append(composed, question)
		}
	}
	if err := differentIDs(composed); err != nil {
		return err
	}
	s.Questions = composed
	s.rehash()
	return nil
}

// single lists the questions of a part that can be composed, in their order.
func (p *Part) single(questions []Question, part int) []Question {
	var single []Question
	asked := map[string]bool{}
	for _, q := range questions {
		switch {
		case q.Part != part:
		case len(q.Objectives) > 1:
			count(&p.LeftOut, "with several objectives already")
		case !slices.ContainsFunc(q.Objectives[0], func(answer string) bool { return !holdsSeparator(answer) }):
			count(&p.LeftOut, noSeparable)
		case asked[q.Text]:
			count(&p.LeftOut, "with the text of another one")
		default:
			asked[q.Text] = true
			single = append(single, q)
		}
	}
	return single
}

// cut cuts an order of questions into pieces and counts them. The numbers of objectives take turns.
func (p *Part) cut(order []int, c Composition) [][]int {
	var pieces [][]int
	rests := slices.Repeat([][]int{order}, len(c.Objectives)) // of which each number takes
	for going := true; going; {
		going = false
		for k, n := range c.Objectives {
			if len(rests[k]) < n {
				continue
			}
			going = true
			count(&p.Composed, objectives(n))
			pieces = append(pieces, rests[k][:n])
			rests[k] = rests[k][n:]
			if !c.Each {
				rests = slices.Repeat([][]int{rests[k]}, len(rests))
			}
		}
	}
	for k, n := range c.Objectives {
		if !c.Each && n > slices.Min(c.Objectives) {
			continue
		}
		if rest := len(rests[k]); rest > 0 {
			p.LeftOut = append(p.LeftOut, Count{"too few for another of " + objectives(n), rest})
		}
		if !c.Each {
			break
		}
	}
	return pieces
}

func objectives(n int) string {
	if n == 1 {
		return "1 objective"
	}
	return fmt.Sprintf("%d objectives", n)
}

// compose makes one question of those at places.
func compose(questions []Question, places []int, text *template.Template) (Question, error) {
	first := questions[places[0]]
	if len(places) == 1 {
		return first, nil
	}
	composed := Question{Source: first.Source, Hops: first.Hops, Part: first.Part}
	var ids, texts []string
	for _, place := range places {
		q := questions[place]
		ids, texts = append(ids, q.ID), append(texts, strings.TrimSpace(q.Text))
		composed.Objectives = append(composed.Objectives, q.Objectives[0])
		if q.Source != composed.Source {
			composed.Source = "mixed"
		}
		if q.Hops == 0 || composed.Hops == 0 {
			composed.Hops = 0 // not known of all
		} else {
			composed.Hops = max(composed.Hops, q.Hops)
		}
	}
	composed.ID = strings.Join(ids, "+")
	var err error
	if composed.Objectives, err = separable(composed.Objectives); err != nil {
		return composed, err
	}
	composed.Text, err = fill(text, texts)
	return composed, err
}

// showsAll refuses a template that leaves out one of n questions, which nobody could then answer.
func showsAll(text *template.Template, n int) error {
	if n == 1 {
		return nil // a question alone stays as it is
	}
	questions := make([]string, n)
	for k := range questions {
		questions[k] = fmt.Sprintf("[question %d]", k+1)
	}
	written, err := fill(text, questions)
	if err != nil {
		return err
	}
	for k, question := range questions {
		if !strings.Contains(written, question) {
			return fmt.Errorf("the template leaves out question %d of %d: it makes %s", k+1, n, quote(written))
		}
	}
	return nil
}

// differentIDs refuses ids in which a '+' of their own makes two compositions look like one.
func differentIDs(questions []Question) error {
	seen := make(map[string]bool, len(questions))
	for _, q := range questions {
		if seen[q.ID] {
			return fmt.Errorf("two compositions have the id %s, as ids of questions hold a '+'", quote(q.ID))
		}
		seen[q.ID] = true
	}
	return nil
}
