package dataset

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// setOf is a set of a single source with n questions, each with a text and an answer of its own.
func setOf(n int) *Set {
	questions := make([]Question, n)
	for k := range questions {
		questions[k] = Question{ID: fmt.Sprint("q", k), Text: fmt.Sprintf("text %d?", k), Objectives: one(fmt.Sprint("answer ", k), "other"), Source: "s", Hops: 1 + k%3}
	}
	return &Set{Questions: questions, Parts: []Part{{Files: []string{"q.jsonl"}, Weight: 1, Questions: n}}}
}

// However questions are shared out: no question twice, n as asked, texts and golden lists in order.
func TestCompositions(t *testing.T) {
	generator := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		n := 1 + generator.IntN(60)
		c := Composition{Seed: generator.Uint64(), Each: generator.IntN(2) == 0}
		for _, objectives := range generator.Perm(MaxObjectives)[:1+generator.IntN(4)] {
			c.Objectives = append(c.Objectives, objectives+1)
		}
		single, set := setOf(n), setOf(n)
		if err := set.Compose(c); err != nil {
			if n >= slices.Min(c.Objectives) {
				t.Fatal(err)
			}
			continue
		}
		if again := setOf(n); again.Compose(c) != nil || !reflect.DeepEqual(again, set) {
			t.Fatal("compositions do not repeat")
		}
		byNumber := map[int]int{}
		asked := map[string]int{} // by number of objectives where each has a set of its own
		for _, q := range set.Questions {
			size := len(q.Objectives)
			byNumber[size]++
			checkComposition(t, single, q)
			for _, id := range strings.Split(q.ID, "+") {
				key := id
				if c.Each {
					key = fmt.Sprint(id, " of ", size)
				}
				if asked[key]++; asked[key] > 1 {
					t.Fatalf("%s twice with %+v", key, c)
				}
			}
		}
		checkCounts(t, n, c, set, byNumber)
	}
}

func checkComposition(t *testing.T, single *Set, q Question) {
	t.Helper()
	ids := strings.Split(q.ID, "+")
	if len(ids) != len(q.Objectives) {
		t.Fatalf("%+v", q)
	}
	var texts []string
	hops := 0
	for k, id := range ids {
		place := slices.IndexFunc(single.Questions, func(s Question) bool { return s.ID == id })
		of := single.Questions[place]
		texts, hops = append(texts, of.Text), max(hops, of.Hops)
		if !reflect.DeepEqual(q.Objectives[k], of.Objectives[0]) {
			t.Fatalf("objective %d of %+v is not that of %+v", k, q, of)
		}
	}
	want := texts[0]
	if len(ids) > 1 {
		want = "Answer the following questions: " + strings.Join(texts, "; ")
	}
	if q.Text != want || q.Hops != hops || q.Source != "s" {
		t.Fatalf("%+v, want the text %q", q, want)
	}
}

func checkCounts(t *testing.T, n int, c Composition, set *Set, byNumber map[int]int) {
	t.Helper()
	part, used := set.Parts[0], 0
	for _, composed := range part.Composed {
		var size int
		if _, err := fmt.Sscanf(composed.What, "%d", &size); err != nil || byNumber[size] != composed.Rows {
			t.Fatalf("%d of %d are counted as %v", byNumber[size], size, composed)
		}
		used += size * composed.Rows
	}
	for _, size := range c.Objectives {
		if c.Each && byNumber[size] != n/size {
			t.Fatalf("%d compositions of %d out of %d", byNumber[size], size, n)
		}
	}
	if !c.Each && n-used >= slices.Min(c.Objectives) {
		t.Fatalf("%d of %d questions are left over with %v", n-used, n, c.Objectives)
	}
	left := 0
	for _, rows := range part.LeftOut {
		left += rows.Rows
	}
	if !c.Each && left != n-used || part.Questions != len(set.Questions) {
		t.Fatalf("%+v", part)
	}
}

// A set that is shared out gives each number as many compositions, while there are questions.
func TestNumbersTakeTurns(t *testing.T) {
	set := setOf(30)
	if err := set.Compose(Composition{Objectives: []int{2, 4, 8}}); err != nil {
		t.Fatal(err)
	}
	want := []Count{{"2 objectives", 3}, {"4 objectives", 2}, {"8 objectives", 2}} // 2 4 8, 2 4 8, 2
	if !reflect.DeepEqual(set.Parts[0].Composed, want) || len(set.Parts[0].LeftOut) > 0 {
		t.Errorf("%+v", set.Parts[0])
	}
}

func TestWhatIsNotComposed(t *testing.T) {
	set := setOf(8)
	set.Parts = append(set.Parts, Part{Files: []string{"r.jsonl"}, Weight: 1, Questions: 2})
	q := set.Questions
	q[0].Objectives = [][]string{{"a"}, {"b"}}
	q[1].Objectives = one("a; b", "c;d")
	q[2].Objectives = one("a; b", "c")
	q[3].Text = q[2].Text
	q[4].Source, q[4].Hops = "other", 0
	q[6].Part, q[7].Part = 1, 1
	hash := set.Hash
	if err := set.Compose(Composition{Objectives: []int{1, 2}, Each: true, Template: `{{range $k, $q := .Questions}}{{inc $k}}. {{trimSuffix (trimPrefix $q "text ") "?"}} {{end}}`}); err != nil {
		t.Fatal(err)
	}
	part := set.Parts[0]
	if want := []Count{{"with several objectives already", 1}, {noSeparable, 1}, {"with the text of another one", 1}, {"too few for another of 2 objectives", 1}}; !reflect.DeepEqual(part.LeftOut, want) {
		t.Errorf("left out %v", part.LeftOut)
	}
	if set.Hash == hash {
		t.Error("the hash is that of the questions before")
	}
	for _, q := range set.Questions {
		ids := strings.Split(q.ID, "+")
		switch {
		case len(ids) == 1 && q.ID == "q2" && !reflect.DeepEqual(q.Objectives, one("a; b", "c")):
			t.Errorf("alone an answer may hold a semicolon: %+v", q)
		case len(ids) == 2 && slices.Contains(ids, "q2") && !reflect.DeepEqual(q.Objectives[slices.Index(ids, "q2")], []string{"c"}):
			t.Errorf("with others it may not: %+v", q)
		case len(ids) == 2 && slices.Contains(ids, "q4") && (q.Source != "mixed" || q.Hops != 0):
			t.Errorf("%+v", q)
		case len(ids) == 2 && q.Text != fmt.Sprintf("1. %s 2. %s ", ids[0][1:], ids[1][1:]):
			t.Errorf("%+v", q)
		case (q.Part == 1) != (strings.Contains(q.ID, "6") || strings.Contains(q.ID, "7")):
			t.Errorf("sources meet in %+v", q)
		}
	}
	if got := set.Parts[1].Composed; !reflect.DeepEqual(got, []Count{{"1 objective", 2}, {"2 objectives", 1}}) {
		t.Errorf("composed %v", got)
	}
}

func TestComposeRefuses(t *testing.T) {
	plus := setOf(4)
	plus.Questions[0].ID, plus.Questions[1].ID, plus.Questions[2].ID, plus.Questions[3].ID = "a", "b+c", "a+b", "c"
	several := setOf(2)
	several.Questions[0].Objectives, several.Questions[1].Objectives = [][]string{{"a"}, {"b"}}, [][]string{{"a"}, {"b"}}
	for name, c := range map[string]struct {
		set  *Set
		c    Composition
		want string
	}{
		"eleven":            {setOf(4), Composition{Objectives: []int{11}}, "11 objectives, allowed are 1 to 10"},
		"none":              {setOf(4), Composition{}, "no number of objectives"},
		"a broken template": {setOf(4), Composition{Objectives: []int{2}, Template: "{{"}, "the template is broken"},
		"an unknown field":  {setOf(4), Composition{Objectives: []int{2}, Template: "{{.Question}}"}, "the template cannot be filled in"},
		"an empty template": {setOf(4), Composition{Objectives: []int{2}, Template: " {{/* nothing */}}"}, "leaves out question 1 of 2: it makes"},
		"a question less":   {setOf(4), Composition{Objectives: []int{1, 3}, Template: "{{index .Questions 0}} {{index .Questions 1}}"}, `leaves out question 3 of 3: it makes "[question 1] [question 2]"`},
		"too few":           {setOf(4), Composition{Objectives: []int{5}}, "no question can be composed with others: 4 too few for another of 5 objectives"},
		"nothing single":    {several, Composition{Objectives: []int{2}}, "question file q.jsonl: no question can be composed with others: 2 with several objectives already"},
	} {
		if err := c.set.Compose(c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
	refused := 0
	for seed := range uint64(20) {
		set := &Set{Questions: slices.Clone(plus.Questions), Parts: slices.Clone(plus.Parts)}
		if err := set.Compose(Composition{Objectives: []int{2}, Seed: seed}); err != nil && strings.Contains(err.Error(), `two compositions have the id "a+b+c"`) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("equal ids of two compositions were never refused")
	}
}

// Whatever a template says, filling it in comes to an end and makes no more than a text.
func TestTemplatesAreBounded(t *testing.T) {
	const long, often = "it makes a text of more than 1 MiB", "its loops go round more than 10000 times"
	for template, want := range map[string]string{
		`{{range 1000000000000}}{{end}}`:                                                     often,
		`{{range 1000000000000}}{{range 0}}{{else}}a{{end}}{{end}}`:                          often,
		`{{if true}}{{with 1}}{{range 1000000000000}}{{end}}{{end}}{{end}}`:                  often,
		`{{range 0}}{{else}}{{range 1000000000000}}{{end}}{{end}}`:                           often,
		`{{range 10000}}{{range 10000}}{{end}}{{end}}`:                                       often,
		`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`:                              often,
		`{{range 9000}}{{range $.Questions}}{{.}}{{end}}{{end}}`:                             often,
		`{{range 9000}}{{printf "%200d" .}}{{end}}`:                                          long,
		`{{$x := "ab"}}{{range 1000}}{{$x = print $x $x}}{{end}}`:                            long,
		`{{$x := "ab"}}{{range 1000}}{{$x = println $x $x}}{{end}}`:                          long,
		`{{$x := "ab"}}{{range 1000}}{{$x = printf "%s%[1]s" $x}}{{end}}`:                    long,
		`{{$x := "ab"}}{{range 1000}}{{$x = join $.Questions $x}}{{end}}`:                    "leaves out question 1 of 2",
		`{{$x := "\\"}}{{range 1000}}{{$x = js $x}}{{end}}`:                                  long,
		`{{$x := "<"}}{{range 1000000}}{{$x = html $x}}{{end}}`:                              often,
		`{{$x := "% "}}{{range 1000000}}{{$x = urlquery $x $x}}{{end}}`:                      long,
		`{{join .Questions (printf "%600000d" 1)}}{{join .Questions (printf "%600000d" 1)}}`: long,
	} {
		err := setOf(4).Compose(Composition{Objectives: []int{2}, Template: template})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", template, err, want)
		}
	}
}
