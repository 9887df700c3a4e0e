package dataset

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// source makes n questions whose ids begin with a name.
func source(name string, n int) []Question {
	questions := numbered(n)
	for k := range questions {
		questions[k].ID = name + questions[k].ID
	}
	return questions
}

func mix(t *testing.T, seed uint64, shuffle bool, shares ...Share) *Sampler {
	t.Helper()
	s, err := NewMix(shares, seed, shuffle)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A weight is a share of the draws, at every moment: never a whole draw ahead; of two sources never a
// whole draw behind.
func TestAWeightIsAShareOfTheDraws(t *testing.T) {
	generator := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		shares := make([]Share, 1+generator.IntN(5))
		total := 0.0
		for k := range shares {
			shares[k] = Share{source(string(rune('a'+k)), 1+generator.IntN(20)), 0.05 + 10*generator.Float64()}
			total += shares[k].Weight
		}
		s := mix(t, 1, true, shares...)
		counts := make([]float64, len(shares))
		for n := 1; n <= 400; n++ {
			counts[s.Next(1)[0].ID[0]-'a']++
			for k, share := range shares {
				ahead := counts[k] - share.Weight/total*float64(n)
				if ahead > 1+1e-9 || len(shares) == 2 && ahead < -1-1e-9 || ahead < -float64(len(shares)) {
					t.Fatalf("after %d draws source %d of %d is %v ahead", n, k, len(shares), ahead)
				}
			}
		}
	}
}

// Within a source, epochs are those of its own order: each question once, and the first source's order
// is that of a set of its own.
func TestSourcesOfAMixHaveTheirOwnEpochs(t *testing.T) {
	a, b := source("a", 7), source("b", 3)
	s := mix(t, 42, true, Share{a, 2}, Share{b, 1})
	byName := map[byte][]string{}
	for _, q := range s.Next(63) {
		byName[q.ID[0]] = append(byName[q.ID[0]], q.ID)
	}
	alone, err := NewSampler(a, 42, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := ids(alone.Next(42)); !reflect.DeepEqual(byName['a'], want) {
		t.Errorf("got %q, want %q", byName['a'], want)
	}
	for epoch := range 7 {
		seen := map[string]bool{}
		for _, id := range byName['b'][3*epoch : 3*epoch+3] {
			seen[id] = true
		}
		if len(seen) != 3 {
			t.Errorf("epoch %d of b: %v", epoch, seen)
		}
	}
	inOrder := ids(mix(t, 42, false, Share{a, 2}, Share{b, 1}).Next(6))
	if got := strings.Join(inOrder, " "); got != "a0 b0 a1 a2 b1 a3" {
		t.Errorf("without shuffling %s", got)
	}
}

func TestAMixContinuesExactly(t *testing.T) {
	sources := func() *Sampler {
		return mix(t, 7, true, Share{source("a", 5), 0.3}, Share{source("b", 11), 0.5}, Share{source("c", 2), 0.2})
	}
	for drawn := range 40 {
		whole := sources()
		whole.Next(drawn)
		saved, err := json.Marshal(whole.State())
		if err != nil {
			t.Fatal(err)
		}
		var state OrderState
		if err := json.Unmarshal(saved, &state); err != nil {
			t.Fatal(err)
		}
		resumed := sources()
		if err := resumed.Restore(state); err != nil {
			t.Fatal(err)
		}
		if a, b := ids(whole.Next(50)), ids(resumed.Next(50)); !reflect.DeepEqual(a, b) {
			t.Errorf("after %d: %q, resumed %q", drawn, a, b)
		}
	}
	for _, saved := range []string{
		`{"drawn":3,"size":18}`, `{"drawn":3,"size":18,"parts":[{"drawn":3,"size":5}]}`,
		`{"drawn":3,"size":18,"parts":[{"drawn":1,"size":5},{"drawn":1,"size":11},{"drawn":1,"size":3}]}`,
		`{"drawn":4,"size":18,"parts":[{"drawn":1,"size":5},{"drawn":1,"size":11},{"drawn":1,"size":2}]}`,
	} {
		var state OrderState
		if err := json.Unmarshal([]byte(saved), &state); err != nil {
			t.Fatal(err)
		}
		if sources().Restore(state) == nil {
			t.Errorf("the position %s was taken", saved)
		}
	}
	for _, bad := range [][]Share{{}, {{numbered(1), 1}, {nil, 1}}, {{numbered(1), 0}}, {{numbered(1), math.NaN()}}} {
		if s, err := NewMix(bad, 1, true); err == nil {
			t.Errorf("a mix of %v was made: %v", bad, s)
		}
	}
}

func TestLoadSources(t *testing.T) {
	rows := func(n int, row string) string {
		var text strings.Builder
		for k := range n {
			fmt.Fprintf(&text, row+"\n", k)
		}
		return text.String()
	}
	a := write(t, "a.jsonl", rows(20, `{"id":"test_%d","question":"q","golden_answers":"a"}`))
	b := write(t, "b.jsonl", rows(9, `{"id":"test_%d","question":"long question","golden_answers":"a"}`)+`{"id":"x","question":"ß?","golden_answers":"a"}`)
	load := func(sources ...Source) *Set {
		t.Helper()
		set, err := LoadSources(sources)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := load(
		Source{Files: []string{a}, Name: "nq", Sample: 5, Seed: 3},
		Source{Files: []string{b}, Name: "popqa", Weight: 2, MaxQuestionChars: 2},
	)
	if got := strings.Join(ids(set.Questions), " "); got != "nq/test_4 nq/test_9 nq/test_11 nq/test_15 nq/test_17 popqa/x" && len(set.Questions) != 6 {
		t.Error(got)
	}
	for k, q := range set.Questions {
		if want := k / 5; q.Part != want || q.Source != []string{"nq", "popqa"}[want] {
			t.Errorf("%+v", q)
		}
	}
	want := []Part{
		{Name: "nq", Files: []string{a}, Weight: 1, Rows: 20, Questions: 5, Shapes: []Count{{shapePlain, 20}}, LeftOut: []Count{{"not in the sample", 15}}},
		{Name: "popqa", Files: []string{b}, Weight: 2, Rows: 10, Questions: 1, Shapes: []Count{{shapePlain, 1}}, LeftOut: []Count{{"longer than 2 characters", 9}}},
	}
	if !reflect.DeepEqual(set.Parts, want) {
		t.Errorf("got  %+v\nwant %+v", set.Parts, want)
	}
	base := Source{Files: []string{a}, Sample: 5, Seed: 3}
	again, other := load(base), base
	if !reflect.DeepEqual(again.Questions, load(base).Questions) {
		t.Error("a sample does not repeat")
	}
	other.Seed = 4
	if reflect.DeepEqual(again.Questions, load(other).Questions) {
		t.Error("another seed gives the same sample")
	}
	if _, err := Load([]string{a, b, a}, Options{}); err == nil || !strings.Contains(err.Error(), "is named twice") {
		t.Errorf("a file twice: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link.jsonl")
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{link, filepath.Dir(a) + "/./" + filepath.Base(a)} {
		if _, err := Load([]string{a, other}, Options{}); err == nil || !strings.Contains(err.Error(), other+" is named twice") {
			t.Errorf("a file under another name: %v", err)
		}
	}
	if _, err := LoadSources([]Source{{Files: []string{a}}, {Files: []string{b}}}); err == nil || !strings.Contains(err.Error(), "name in data.mix") {
		t.Errorf("equal ids of nameless sources: %v", err)
	}
}

func TestIDsBehindTheirSourcesStayDifferent(t *testing.T) {
	path := write(t, "q.jsonl", strings.Join([]string{
		`{"id":"b/c","data_source":"a","question":"q","golden_answers":["x"]}`,
		`{"id":"c","data_source":"a/b","question":"q","golden_answers":["x"]}`,
		`{"id":"c","data_source":"a","question":"q","golden_answers":["x"]}`,
	}, "\n"))
	if _, err := Load([]string{path}, Options{}); err == nil || !strings.Contains(err.Error(), `two questions are "a/b/c"`) {
		t.Errorf("%v", err)
	}
}

// A pipe is refused: opening it would wait for a writer.
func TestLoadRefusesWhatIsNoFile(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.jsonl")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, t.TempDir(), os.DevNull} {
		if _, err := Load([]string{path}, Options{}); err == nil || !strings.Contains(err.Error(), path+": is no regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Broken text in a question is as JSON reads it, in any format, and beside a question does no harm.
func TestBrokenTextOfQuestions(t *testing.T) {
	path := write(t, "q.jsonl", `{"question":"q \ufffd","golden_answers":["a"]}`+"\n"+`{"question":"r","golden_answers":["a"],"context":"`+"\xff"+`"}`+"\n")
	if set, err := Load([]string{path}, Options{}); err != nil || len(set.Questions) != 2 {
		t.Errorf("%v", err)
	}
	set, err := Load([]string{write(t, "q.csv", "question,golden_answers\ncaf\xe9\xff,a\n")}, Options{})
	if err != nil || set.Questions[0].Text != "caf\ufffd\ufffd" {
		t.Errorf("%v, %v", set, err)
	}
}

// A sample takes each question with the same chance: over 2000 seeds each of 6 comes about 1000 times
// among 3 (standard deviation 22).
func TestASampleIsUniform(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(2000) {
		drawn, err := sample(numbered(6), 3, seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids(drawn) {
			counts[id]++
		}
	}
	for id, n := range counts {
		if n < 890 || n > 1110 {
			t.Errorf("question %s came %d times", id, n)
		}
	}
	if all, err := sample(numbered(6), 9, 1); err != nil || len(all) != 6 {
		t.Errorf("of 6, 9 are %d, %v", len(all), err)
	}
}

// Another weight is another set: what is drawn is another.
func TestTheHashOfAMix(t *testing.T) {
	a, b := write(t, "a.jsonl", `{"id":"1","question":"q","golden_answers":"a"}`), write(t, "b.jsonl", `{"id":"2","question":"q","golden_answers":"a"}`)
	hashOf := func(sources ...Source) string {
		set, err := LoadSources(sources)
		if err != nil {
			t.Fatal(err)
		}
		return set.Hash
	}
	both := hashOf(Source{Files: []string{a}}, Source{Files: []string{b}})
	if both != hashOf(Source{Files: []string{a}, Weight: 1}, Source{Files: []string{b}}) {
		t.Error("a weight that is said changes the hash")
	}
	if both == hashOf(Source{Files: []string{a}, Weight: 2}, Source{Files: []string{b}}) {
		t.Error("a weight does not change the hash")
	}
	if both == hashOf(Source{Files: []string{a, b}}) {
		t.Error("two sources have the hash of one")
	}
	if hashOf(Source{Files: []string{a, b}, Weight: 3}) != hashOf(Source{Files: []string{a, b}}) {
		t.Error("the weight of a source of its own changes the hash")
	}
}
