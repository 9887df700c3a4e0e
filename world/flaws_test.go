package world

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
)

// near compares a share with a chance: n draws of it miss by more than five deviations practically
// never.
func near(t *testing.T, what string, count, of int, chance float64) {
	t.Helper()
	if deviation := math.Sqrt(chance * (1 - chance) / float64(of)); math.Abs(float64(count)/float64(of)-chance) > 5*deviation {
		t.Errorf("%s: %d of %d = %.4f, want %.4f ± %.4f", what, count, of, float64(count)/float64(of), chance, 5*deviation)
	}
	t.Logf("%s: %d of %d = %.4f, chance %.4f", what, count, of, float64(count)/float64(of), chance)
}

// tally is what is counted in conversations that are shown whole.
type tally struct {
	conversations, turns int
	due, lost            int     // facts that a memory could hold, and those it does not
	memories, spoilt     int     // memories that could hold a fact, and those that do not hold all
	mostLost             int     // facts, of one memory
	incomplete           int     // conversations with a spoilt memory
	expectIncomplete     float64 // of them when each loses each fact with the chance lost
	chances, wasted      int     // turns that could be spared for a wrong search, and those that were
	wrongAnswers         int
}

// count adds a whole conversation of at most maxTurns turns.
func (n *tally) count(t *testing.T, d demonstration, maxTurns int) {
	t.Helper()
	c, err := d.follow(d.Messages[2:])
	if err != nil {
		t.Fatal(err)
	}
	objectives, err := c.seen.solve(c.question)
	if err != nil {
		t.Fatal(err)
	}
	steps := slices.Concat(objectives...)
	mentioned := map[string]bool{}
	for _, objective := range objectives {
		mentioned[objective[0].subject] = true
	}
	spare := maxTurns - len(steps) - 1
	spoilt, due := n.spoilt, n.due
	done := 0
	for _, turn := range c.turns {
		n.memory(t, turn.facts, steps[:done])
		if done == len(steps) {
			n.answer(t, turn, c.seen, objectives)
			continue
		}
		step := steps[done]
		others := len(mentioned)
		if mentioned[step.subject] {
			others--
		}
		if spare > 0 && others > 0 {
			n.chances++
		}
		switch {
		case turn.thought != "find "+step.relation+" of "+step.subject:
			t.Errorf("%q is thought where %+v is next in %+v", turn.thought, step, d.Messages)
		case turn.query == step.subject:
			done++
		case spare > 0 && mentioned[turn.query]:
			spare--
			n.wasted++
		default:
			t.Errorf("a search for %q, with %d turns to spare, in %+v", turn.query, spare, d.Messages)
		}
		mentioned[turn.query] = true
	}
	if n.spoilt > spoilt {
		n.incomplete++
	}
	n.expectIncomplete += 1 - math.Pow(1-lost, float64(n.due-due))
	n.conversations++
	n.turns += len(c.turns)
}

// memory counts the facts that a memory lacks; it may hold none that were not found.
func (n *tally) memory(t *testing.T, facts []string, found []step) {
	t.Helper()
	at := 0
	for _, step := range found {
		if at < len(facts) && facts[at] == step.fact() {
			at++
		}
	}
	if at < len(facts) {
		t.Errorf("a memory holds %q when %+v was found", facts, found)
	}
	missing := len(found) - len(facts)
	n.due += len(found)
	n.lost += missing
	n.mostLost = max(n.mostLost, missing)
	if len(found) > 0 {
		n.memories++
	}
	if missing > 0 {
		n.spoilt++
	}
}

// answer counts a wrong answer: for one objective it has the other value of the right one's passage.
func (n *tally) answer(t *testing.T, turn spoken, seen encyclopedia, objectives [][]step) {
	t.Helper()
	golden := answers(objectives)
	given := strings.Split(turn.answered, "; ")
	if turn.thought != "done" || len(given) != len(golden) {
		t.Fatalf("%+v at the end, want the answer %q", turn, golden)
	}
	wrong := 0
	for k, fact := range given {
		if fact == golden[k] {
			continue
		}
		wrong++
		last := objectives[k][len(objectives[k])-1]
		relation, value, _ := strings.Cut(fact, " ")
		others := maps.Clone(seen[last.subject])
		delete(others, last.relation)
		if relation != last.relation || !slices.Contains(slices.Collect(maps.Values(others)), value) {
			t.Errorf("%q is answered where %q is right and the passage says %v", fact, golden[k], seen[last.subject])
		}
	}
	if wrong > 1 {
		t.Errorf("%d of the answers %q are wrong", wrong, given)
	}
	n.wrongAnswers += wrong
}

// countAll checks demonstrations and counts those shown whole. It returns how many are shown in
// each way.
func countAll(t *testing.T, list []demonstration, o Options) (n tally, views [4]int) {
	t.Helper()
	for k, d := range list {
		d.check(t, k, o)
		views[d.view()]++
		if d.view() == wholeView {
			n.count(t, d, o.Questions.MaxTurns)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	return n, views
}

func TestCleanDemonstrationsHaveNoFlaw(t *testing.T) {
	o := standard()
	dir := standardFolder(t)
	for _, list := range [][]demonstration{
		readLines[demonstration](t, filepath.Join(dir, DemonstrationsFile))[:o.Demonstrations.Clean],
		readLines[demonstration](t, filepath.Join(dir, EvalDemonstrationsFile)),
	} {
		n, views := countAll(t, list, o)
		if n.lost+n.wasted+n.wrongAnswers > 0 || n.conversations == 0 || n.due == 0 {
			t.Errorf("clean demonstrations: %+v", n)
		}
		near(t, "limited context", views[limitedView], len(list), o.Demonstrations.LimitedShare)
		near(t, "answers", views[behindMemoryView]+views[behindHistoryView], len(list), o.Demonstrations.AnswerShare)
		near(t, "behind a memory", views[behindMemoryView], views[behindMemoryView]+views[behindHistoryView], 0.5)
	}
}

func TestFlawsComeInTheirChances(t *testing.T) {
	o := standard()
	list := readLines[demonstration](t, filepath.Join(standardFolder(t), DemonstrationsFile))
	wanted := o.Demonstrations
	if len(list) != wanted.Clean+wanted.Forgetful+wanted.Flawed {
		t.Fatalf("%d demonstrations", len(list))
	}
	n, _ := countAll(t, list[wanted.Clean:wanted.Clean+wanted.Forgetful], o)
	near(t, "forgetful", n.incomplete, n.conversations, wanted.ForgetfulShare*n.expectIncomplete/float64(n.conversations))
	if share := float64(n.lost) / float64(n.due); math.Abs(share-wanted.ForgetfulShare*lost) > 0.06 {
		t.Errorf("%.3f of the facts are lost by forgetful demonstrations", share)
	}
	if n.wasted+n.wrongAnswers > 0 {
		t.Errorf("forgetful demonstrations are flawed otherwise: %+v", n)
	}
	n, views := countAll(t, list[wanted.Clean+wanted.Forgetful:], o)
	near(t, "dropped facts", n.spoilt, n.memories, wanted.MemoryDrop)
	near(t, "wrong searches", n.wasted, n.chances, wanted.WrongQuery)
	near(t, "wrong values", n.wrongAnswers, n.conversations, wanted.WrongValue)
	if n.mostLost != 1 {
		t.Errorf("a flawed memory lost %d facts", n.mostLost)
	}
	near(t, "flawed ones in limited context", views[limitedView], wanted.Flawed, wanted.LimitedShare)
}

// TestWrongSearchesKeepTheTurns has so many wrong searches that turns run short.
func TestWrongSearchesKeepTheTurns(t *testing.T) {
	o := small()
	o.Questions.Mix = map[string]float64{"1+1": 1, "2": 1, "2+1": 1, "3": 1}
	o.Questions.MaxTurns = 6
	o.Demonstrations = DemonstrationOptions{Worlds: 2, Flawed: 400, WrongQuery: 0.9}
	n, views := countAll(t, readLines[demonstration](t, filepath.Join(made(t, o), DemonstrationsFile)), o)
	near(t, "wrong searches", n.wasted, n.chances, o.Demonstrations.WrongQuery)
	if views[wholeView] != 400 || n.lost+n.wrongAnswers > 0 || n.turns < 400*5 {
		t.Errorf("%v, %+v", views, n)
	}
}

// TestDemonstrationsTellTheFactsOfTheirWorld compares every result, memory and answer with the
// passages of the one world that they come from.
func TestDemonstrationsTellTheFactsOfTheirWorld(t *testing.T) {
	o := small()
	o.Demonstrations.Flawed = 0
	p, err := o.plan()
	if err != nil {
		t.Fatal(err)
	}
	dir := made(t, o)
	for k, file := range []string{DemonstrationsFile, EvalDemonstrationsFile} {
		x, of := encyclopedia{}, p.atlas(firstDemonstrations+k)
		shown := map[string]bool{}
		for e := range of.names {
			passage := contents(of.passage(entity(e)))
			shown[rollout.ResultText([]retrieval.Passage{{Contents: passage}})] = true
			if err := x.learn(passage); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range readLines[demonstration](t, filepath.Join(dir, file)) {
			objectives, err := x.solve(d.Messages[1].Content)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range d.Messages[2:] {
				if m.Role == "user" && !shown[m.Content] {
					t.Errorf("%s: result %q", file, m.Content)
				}
			}
			d.checkFacts(t, slices.Concat(objectives...))
			_, answer, found := strings.Cut(d.Messages[len(d.Messages)-1].Prefix+d.Messages[len(d.Messages)-1].Content, openAnswer)
			if golden := strings.Join(answers(objectives), "; ") + closeAnswer; found && answer != golden {
				t.Errorf("%s: answer %q, want %q", file, answer, golden)
			}
		}
	}
}

// checkFacts checks that memories hold nothing but facts found on the way.
func (d demonstration) checkFacts(t *testing.T, steps []step) {
	t.Helper()
	for _, m := range d.Messages[2:] {
		_, memory, _ := strings.Cut(m.Prefix+m.Content, "<mem>")
		memory, _, _ = strings.Cut(memory, "</mem>")
		for fact := range strings.SplitSeq(strings.TrimSpace(memory), "; ") {
			if m.Role == "assistant" && fact != "" && !slices.ContainsFunc(steps, func(s step) bool { return s.fact() == fact }) {
				t.Errorf("the memory %q holds a fact that is not of %+v", memory, steps)
			}
		}
	}
}

// told counts the passages that results tell, and those of them that an encyclopedia tells too.
func told(t *testing.T, list []demonstration, also func(title, contents string) bool) (all, same int) {
	t.Helper()
	for _, d := range list {
		for _, m := range d.Messages[2:] {
			if m.Role != "user" {
				continue
			}
			parts := resultForm.FindStringSubmatch(m.Content)
			all++
			if also(strings.Trim(parts[1], `"`), parts[2]) {
				same++
			}
		}
	}
	return all, same
}

func TestDemonstrationsComeFromOtherWorlds(t *testing.T) {
	dir := standardFolder(t)
	run := readCorpus(t, dir)
	trained := readLines[demonstration](t, filepath.Join(dir, DemonstrationsFile))
	held := readLines[demonstration](t, filepath.Join(dir, EvalDemonstrationsFile))
	names, passages := map[string]bool{}, map[string]bool{}
	inRun := func(title, text string) bool {
		names[title], passages[text] = true, true
		x := encyclopedia{}
		if err := x.learn(`"` + title + "\"\n" + text); err != nil {
			t.Fatal(err)
		}
		for relation, value := range x[title] {
			if run[title][relation] != value {
				return false
			}
		}
		return true
	}
	all, same := told(t, trained, inRun)
	if same > all/100 {
		t.Errorf("%d of %d results tell what is true of the run's world", same, all)
	}
	if len(names) != len(run) {
		t.Errorf("demonstrations look up %d of %d entities", len(names), len(run))
	}
	known := func(_, text string) bool { return passages[text] }
	if all, same := told(t, held, known); all == 0 || same > all/10 {
		t.Errorf("%d of %d results of the evaluation loss are known from training", same, all)
	}
}
