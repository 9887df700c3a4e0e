package world

import (
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// checkQuestion solves a question by the corpus and compares it with what its line says. It returns
// the entities on the way: those looked up and those found.
func checkQuestion(t *testing.T, x encyclopedia, a asked) (entities []string) {
	t.Helper()
	objectives, err := x.solve(a.Question)
	if err != nil {
		t.Error(err)
		return nil
	}
	if want := answers(objectives); !slices.Equal(a.golden(t), want) {
		t.Errorf("%s: %q, golden answers are %s, the corpus says %q", a.ID, a.Question, a.GoldenAnswers, want)
	}
	hops := make(shape, len(objectives))
	seenRelations := map[string]bool{}
	for k, steps := range objectives {
		hops[k] = len(steps)
		entities = append(entities, steps[0].subject)
		for _, step := range steps {
			if seenRelations[step.relation] {
				t.Errorf("%s: %q asks for a %s twice", a.ID, a.Question, step.relation)
			}
			seenRelations[step.relation] = true
			entities = append(entities, step.value)
		}
	}
	if slices.Sort(entities); len(slices.Compact(slices.Clone(entities))) != len(entities) {
		t.Errorf("%s: %q has to do with an entity twice: %q", a.ID, a.Question, entities)
	}
	if a.DataSource != hops.String() || a.Hops != slices.Max(hops) {
		t.Errorf("%s: %q is of shape %q with %d hops, want %q and %d", a.ID, a.Question, a.DataSource, a.Hops, hops, slices.Max(hops))
	}
	return entities
}

// checkQuestions checks a question file and returns the entities that its questions have to do with.
func checkQuestions(t *testing.T, dir, file string, x encyclopedia, mix map[string]float64, count int) map[string]bool {
	t.Helper()
	all, texts, ids, shapes := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]int{}
	questions := readLines[asked](t, filepath.Join(dir, file))
	for _, a := range questions {
		for _, entity := range checkQuestion(t, x, a) {
			all[entity] = true
		}
		texts[a.Question], ids[a.ID] = true, true
		shapes[a.DataSource]++
	}
	if len(questions) != count || len(texts) != count || len(ids) != count {
		t.Errorf("%s: %d questions with %d ids, %d of them different, want %d", file, len(questions), len(ids), len(texts), count)
	}
	total := 0.0
	for _, weight := range mix {
		total += weight
	}
	for name, weight := range mix {
		if exact := float64(count) * weight / total; math.Abs(float64(shapes[name])-exact) >= 1 {
			t.Errorf("%s: %d questions of shape %q, want %.2f but for rounding", file, shapes[name], name, exact)
		}
	}
	return all
}

// reached adds all that passages lead to from some entities.
func (x encyclopedia) reached(from map[string]bool) map[string]bool {
	reached := maps.Clone(from)
	next := slices.Collect(maps.Keys(from))
	for len(next) > 0 {
		at := next[len(next)-1]
		next = next[:len(next)-1]
		for _, value := range x[at] {
			if !reached[value] {
				reached[value] = true
				next = append(next, value)
			}
		}
	}
	return reached
}

// checkSplit checks both question files of a folder, and that nothing of evaluation can be met in
// training.
func checkSplit(t *testing.T, dir string, o Options) (train, eval map[string]bool) {
	t.Helper()
	x := readCorpus(t, dir)
	train = checkQuestions(t, dir, TrainFile, x, o.Questions.Mix, o.Questions.Train)
	eval = checkQuestions(t, dir, EvalFile, x, o.Questions.Mix, o.Questions.Eval)
	met := x.reached(train)
	for entity := range x.reached(eval) {
		if met[entity] {
			t.Errorf("%s can be met in training and in evaluation", entity)
		}
	}
	return train, eval
}

func TestQuestionsOfTheStandardWorld(t *testing.T) {
	dir, o := standardFolder(t), standard()
	train, eval := checkSplit(t, dir, o)
	if x := readCorpus(t, dir); len(x) != 208 || len(train)+len(eval) != len(x) {
		t.Errorf("%d passages, questions have to do with %d and %d entities; want 208, and every entity asked about", len(x), len(train), len(eval))
	}
	// A third of each kind: names of a kind have endings of their own.
	for k, want := range [kinds]int{24, 16, 8, 11, 11} {
		found := 0
		for entity := range eval {
			if slices.ContainsFunc(endings[k], func(ending string) bool { return strings.HasSuffix(entity, ending) }) {
				found++
			}
		}
		if found != want {
			t.Errorf("%d entities of kind %s are held out, want %d", found, kindNames[k], want)
		}
	}
}

func TestLongQuestions(t *testing.T) {
	o := small()
	o.People, o.Towns, o.Countries, o.Companies, o.Books = 36, 30, 24, 24, 24
	o.Questions.MaxTurns = 11
	o.Questions.Mix = map[string]float64{"4": 1, "2+2+1": 1, "1+2+1+2": 2, "1+1+1+1+1+1+1+1+1+1": 0.5, "5+1": 0}
	dir := made(t, o)
	delete(o.Questions.Mix, "5+1")
	checkSplit(t, dir, o)
	for k, d := range readLines[demonstration](t, filepath.Join(dir, DemonstrationsFile)) {
		d.check(t, k, o)
	}
}

// TestAnyWorldKeepsTheSplit makes worlds of random seeds, sizes and shapes.
func TestAnyWorldKeepsTheSplit(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	shapes := []string{"1", "2", "3", "1+1", "2+1", "1+2", "1+1+1"}
	made := 0
	for range 40 {
		o := small()
		o.Seed = random.Uint64()
		for _, size := range []*int{&o.People, &o.Towns, &o.Countries, &o.Companies, &o.Books} {
			*size = 6 + random.IntN(30)
		}
		o.HeldOut = 0.2 + 0.6*random.Float64()
		o.Questions.Train, o.Questions.Eval = 1+random.IntN(25), 1+random.IntN(10)
		o.Questions.Mix = map[string]float64{}
		for _, k := range random.Perm(len(shapes))[:1+random.IntN(4)] {
			o.Questions.Mix[shapes[k]] = 0.1 + random.Float64()
		}
		o.Demonstrations.Worlds = 1 + random.IntN(3)
		dir := filepath.Join(t.TempDir(), "data")
		err := Write(dir, o, silent)
		if err != nil {
			if fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), "questions.") {
				t.Errorf("%+v: %v", o, err)
			}
			continue
		}
		made++
		checkSplit(t, dir, o)
		for k, d := range readLines[demonstration](t, filepath.Join(dir, DemonstrationsFile)) {
			d.check(t, k, o)
		}
		if t.Failed() {
			t.Fatalf("in the world of %+v", o)
		}
	}
	if made < 30 {
		t.Errorf("only %d of 40 worlds could be made", made)
	}
}
