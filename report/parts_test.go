package report

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
	"github.com/mempo-train/mempo-train/rollout"
)

func TestCut(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		"<mem>a</mem><think>b</think><search>c</search>":      {"memory <mem>a</mem>", "thought <think>b</think>", "query <search>c</search>"},
		"<mem></mem>\n<answer>c</answer><|im_end|>":           {"memory <mem></mem>", "other \n", "answer <answer>c</answer>", "other <|im_end|>"},
		"<think> <search>x</search> </think>":                 {"thought <think> <search>x</search> </think>"},
		"<mem>never closed <access>u</access>":                {"memory <mem>never closed <access>u</access>"},
		"<access>u</access>":                                  {"address <access>u</access>"},
		"<calculate>1</calculate><clock>":                     {"query <calculate>1</calculate>", "other <clock>"},
		"a < b <me <mem":                                      {"other a < b <me <mem"},
		"</mem><mem>x</mem>":                                  {"other </mem>", "memory <mem>x</mem>"},
		strings.Repeat("<", 1000) + "<think>\xff\xfe</think>": {"other " + strings.Repeat("<", 1000), "thought <think>\xff\xfe</think>"},
	} {
		var got []string
		for _, s := range cut(text, "calculate") {
			got = append(got, s.kind+" "+text[s.start:s.end])
		}
		if !slices.Equal(got, want) {
			t.Errorf("cut(%q) = %q, want %q", text, got, want)
		}
	}
}

func testTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	dir := t.TempDir()
	must(t, tokenizertest.Write(dir, actionTags...))
	tok, err := tokenizer.Load(dir)
	must(t, err)
	return tok
}

// expand undoes runs.
func expand(r runs) (values []float64) {
	for _, run := range r {
		values = append(values, slices.Repeat([]float64{float64(run.value)}, run.times)...)
	}
	return values
}

// Every token of every turn is in a part, with its advantage; characters of several tokens are one
// piece; the memory is the span of the record.
func TestPartsAreTheTokensOfTheTurn(t *testing.T) {
	tok := testTokenizer(t)
	s := shape{turns: 4, text: ordinary}
	for member := range 20 {
		r := makeRecord(s, tok, 1, 0, member)
		page := newTrajectory(r, tok)
		for k, turn := range page.Turns {
			written, texts, at := r.Turns[k], "", r.Turns[k].Tokens[0]
			for _, p := range turn.Parts {
				if p.Kind == template || p.Kind == result {
					continue
				}
				advantages := expand(p.Advantages)
				if len(advantages) != len(p.Texts) || len(p.LogProbs) != len(p.Texts) {
					t.Fatalf("%d texts, %d advantages, %d log-probabilities", len(p.Texts), len(advantages), len(p.LogProbs))
				}
				if inMemory := at >= written.Memory[0] && at < written.Memory[1]; inMemory != (p.Kind == memory) {
					t.Fatalf("turn %d: token %d is in a part %q, its memory is %v", k, at, p.Kind, written.Memory)
				}
				for n, text := range p.Texts {
					if advantages[n] != float64(r.Advantages[at]) {
						t.Fatalf("token %d %q has the advantage %v, want %v", at, text, advantages[n], r.Advantages[at])
					}
					if strings.ContainsRune(text, '\uFFFD') {
						t.Fatalf("a character is broken in %q", p.Texts)
					}
					at += max(1, len(pieceIDs(tok, r.ResponseIDs[at:], text)))
					texts += text
				}
			}
			if texts != written.Text || at != written.Tokens[1] {
				t.Fatalf("turn %d is %q up to token %d, want %q up to %d", k, texts, at, written.Text, written.Tokens[1])
			}
		}
		if want := r.Turns[0].Result; !slices.ContainsFunc(page.Turns[0].Parts, func(p part) bool { return p.Kind == result && p.Texts[0] == want }) {
			t.Fatalf("no part is the result %q: %v", want, page.Turns[0].Parts)
		}
	}
}

// pieceIDs are the first ids that together make a text.
func pieceIDs(tok *tokenizer.Tokenizer, ids []int32, text string) []int32 {
	for n := range ids {
		if tok.Decode(ids[:n+1]) == text {
			return ids[:n+1]
		}
	}
	return nil
}

// What the model did not write, as the opening text of a turn, has no advantage and no
// log-probability.
func TestTokensThatAreNotTrained(t *testing.T) {
	tok := testTokenizer(t)
	r := makeRecord(shape{turns: 1, text: ordinary}, tok, 1, 0, 0)
	r.ResponseMask[0] = 0
	first := newTrajectory(r, tok).Turns[0].Parts[0]
	if advantages := expand(first.Advantages); !math.IsNaN(advantages[0]) || math.IsNaN(advantages[1]) || !math.IsNaN(float64(first.LogProbs[0])) {
		t.Errorf("advantages %v, log-probabilities %v", advantages, first.LogProbs)
	}
	for k := range r.ResponseMask { // a trajectory that failed
		r.ResponseMask[k] = 0
	}
	r.Score, r.Advantages = nil, nil
	page := newTrajectory(r, tok)
	if page.Sampled != 0 || page.Score != nil || len(page.Strip) != 1 || !math.IsNaN(float64(page.Strip[0].value)) {
		t.Errorf("%+v", page)
	}
}

// Without a tokenizer each part has the mean advantage of the memory's tokens, or of the others.
func TestPartsWithoutTokenizer(t *testing.T) {
	r := makeRecord(shape{turns: 2, text: ordinary}, testTokenizer(t), 1, 0, 0)
	turn := newTrajectory(r, nil).Turns[0]
	var kinds []string
	for _, p := range turn.Parts {
		kinds = append(kinds, p.Kind)
		if p.Kind == result {
			continue
		}
		want := float64(r.Advantages[r.Turns[0].Tokens[1]-1])
		if p.Kind == memory {
			want = float64(r.Advantages[r.Turns[0].Memory[0]])
		}
		if got := expand(p.Advantages); len(got) != 1 || math.Abs(got[0]-want) > 1e-6 {
			t.Errorf("%s has the advantages %v, want %v", p.Kind, got, want)
		}
	}
	if want := []string{memory, thought, query, result}; !slices.Equal(kinds, want) {
		t.Errorf("parts %v, want %v", kinds, want)
	}
}

// Records that no run writes: spans that lie outside, lists that are not aligned.
func TestRecordsThatDoNotFit(t *testing.T) {
	tok := testTokenizer(t)
	for name, spoil := range map[string]func(r *rollout.Record){
		"no tokens":             func(r *rollout.Record) { r.ResponseIDs = nil },
		"no mask":               func(r *rollout.Record) { r.ResponseMask = nil },
		"short advantages":      func(r *rollout.Record) { r.Advantages = r.Advantages[:1] },
		"short log-probs":       func(r *rollout.Record) { r.LogProbs = nil },
		"a turn outside":        func(r *rollout.Record) { r.Turns[1].Tokens = [2]int{-5, 1 << 40} },
		"a turn backwards":      func(r *rollout.Record) { r.Turns[0].Tokens = [2]int{9, 2} },
		"a memory outside":      func(r *rollout.Record) { r.Turns[0].Memory = &[2]int{-1, 1 << 40} },
		"ids without a token":   func(r *rollout.Record) { r.ResponseIDs[3], r.ResponseIDs[4] = -1, 1<<31-1 },
		"no turn":               func(r *rollout.Record) { r.Turns = nil },
		"a part of a character": func(r *rollout.Record) { r.ResponseIDs[r.Turns[0].Tokens[1]-1] = 0xe6 },
		"nothing at all":        func(r *rollout.Record) { *r = rollout.Record{} },
	} {
		r := makeRecord(shape{turns: 2, text: ordinary}, tok, 1, 0, 0)
		spoil(r)
		for _, maybe := range []*tokenizer.Tokenizer{tok, nil} {
			b := &block{}
			b.add(r, maybe)
			if _, err := b.compress(trajectoryFile{}); err != nil || len(b.Trajectories) != 1 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestRuns(t *testing.T) {
	var r runs
	nan := math.NaN()
	for _, value := range []float64{nan, nan, 1.6201817, 1.6201817, 0, -1e-9, nan} {
		r.add(value)
	}
	data, err := r.MarshalJSON()
	if want := "[null,2,1.62,2,0,1,-1e-09,1,null,1]"; err != nil || string(data) != want {
		t.Errorf("got %s, %v; want %s", data, err, want)
	}
}

func TestScale(t *testing.T) {
	nan := short(math.NaN())
	for _, test := range []struct {
		strip runs
		want  short
	}{
		{nil, 1},
		{runs{{nan, 9}, {0, 5}}, 1},
		{runs{{nan, 100}, {0, 100}, {-0.5, 95}, {4, 5}}, 0.5},
		{runs{{-0.5, 94}, {4, 6}}, 4},
		{runs{{0.001, 1}}, 0.001},
	} {
		if got := (&block{Trajectories: []*trajectory{{Strip: test.strip}}}).scale(); got != test.want {
			t.Errorf("scale of %v is %v, want %v", test.strip, got, test.want)
		}
	}
}

// A trajectory goes to the others of its question; the same question drawn twice is two.
func TestQuestionsOfABlock(t *testing.T) {
	b := &block{}
	for _, drawn := range []struct {
		id   string
		draw int
	}{{"a", 0}, {"b", 1}, {"a", 0}, {"a", 2}} {
		b.add(&rollout.Record{QuestionID: drawn.id, Draw: drawn.draw}, nil)
	}
	var of []int
	for _, trajectory := range b.Trajectories {
		of = append(of, trajectory.Question)
	}
	if len(b.Questions) != 3 || !reflect.DeepEqual(of, []int{0, 1, 0, 2}) {
		t.Errorf("%d questions, trajectories of %v", len(b.Questions), of)
	}
}

// The tokenizer is that of the model folder, or of the newest checkpoint; one that decodes the
// prompt otherwise is not the run's.
func TestTokenizerOfARun(t *testing.T) {
	s := shape{steps: 1, questions: 1, group: 1, turns: 1, text: ordinary}
	checkpointed := func(t *testing.T, dir string) {
		folder := filepath.Join(dir, "checkpoints", "step_000001")
		must(t, os.MkdirAll(folder, 0o755))
		must(t, tokenizertest.Write(folder, actionTags...))
		must(t, os.WriteFile(filepath.Join(folder, "complete"), nil, 0o644))
	}
	another := func(t *testing.T, dir string) { // "<|im_start|>" has another id
		must(t, os.Remove(filepath.Join(dir, "..", "model", "tokenizer.json")))
		must(t, tokenizertest.Write(filepath.Join(dir, "..", "model")))
		data, err := os.ReadFile(filepath.Join(dir, "..", "model", "tokenizer.json"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "..", "model", "tokenizer.json"), []byte(strings.ReplaceAll(string(data), "im_start", "im_begin")), 0o644))
	}
	gone := func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "..", "model"))) }
	for name, test := range map[string]struct {
		change []func(t *testing.T, dir string)
		found  bool
		note   string
	}{
		"of the model":                  {nil, true, ""},
		"gone":                          {[]func(*testing.T, string){gone}, false, "tokenizer.json"},
		"gone, of the checkpoint":       {[]func(*testing.T, string){gone, checkpointed}, true, ""},
		"of another model":              {[]func(*testing.T, string){another}, false, "has another tokenizer than the run had"},
		"of another, of the checkpoint": {[]func(*testing.T, string){another, checkpointed}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := makeRun(t, s)
			for _, change := range test.change {
				change(t, dir)
			}
			f, err := openFolder(dir)
			must(t, err)
			blocks, err := f.compressTrajectories(trajectoryBytes)
			must(t, err)
			several := len(unpacked(t, blocks[0]).Trajectories[0].Turns[0].Parts[0].Texts) > 1
			notes := strings.Join(f.notes, "\n")
			if several != test.found || !strings.Contains(notes, test.note) || (test.note == "") != (notes == "") {
				t.Errorf("tokens told apart: %v; notes %q", several, notes)
			}
		})
	}
}
