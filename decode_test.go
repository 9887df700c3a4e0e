package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// scripted is a session whose rows write what a script says for their first prompt token.
type scripted struct {
	scripts map[int32][]int32
	rows    map[int]*scriptedRow
	next    int
	most    int     // rows at the same time
	batches [][]int // tokens of each input of each step
	seeds   map[uint64]bool
	fail    error
}

type scriptedRow struct {
	fed    []int32
	prompt int // tokens before the first sampled one; 0 while there is none
}

func (s *scripted) Open() (int, error) {
	s.next++
	if s.rows == nil {
		s.rows, s.seeds = map[int]*scriptedRow{}, map[uint64]bool{}
	}
	s.rows[s.next] = &scriptedRow{}
	s.most = max(s.most, len(s.rows))
	return s.next, nil
}

func (s *scripted) Fork(int, int) (int, error) { return 0, errors.New("not used") }

func (s *scripted) Step(inputs []model.RowInput) ([]model.Sampled, error) {
	if s.fail != nil {
		return nil, s.fail
	}
	var batch []int
	sampled := make([]model.Sampled, len(inputs))
	for k, in := range inputs {
		row := s.rows[in.Row]
		row.fed = append(row.fed, in.IDs...)
		batch = append(batch, len(in.IDs))
		sampled[k].ID = -1
		if !in.Sample {
			continue
		}
		if s.seeds[in.Seed] {
			return nil, fmt.Errorf("seed %d twice", in.Seed)
		}
		s.seeds[in.Seed] = true
		if row.prompt == 0 {
			row.prompt = len(row.fed)
		}
		sampled[k] = model.Sampled{ID: s.scripts[row.fed[0]][len(row.fed)-row.prompt], LogProb: -1}
	}
	s.batches = append(s.batches, batch)
	return sampled, nil
}

func (s *scripted) Score([]model.Piece) ([]model.RowScores, error) {
	return nil, errors.New("not used")
}

func (s *scripted) Usage() model.CacheUsage { return model.CacheUsage{} }

func (s *scripted) Release(row int) error {
	if s.rows[row] == nil {
		return fmt.Errorf("no row %d", row)
	}
	delete(s.rows, row)
	return nil
}

func (s *scripted) Close() error { return nil }

// decodeAll continues prompts and returns "ids text stop" of each.
func decodeAll(t *testing.T, session *scripted, o decodeOptions, prompts ...[]int32) []string {
	t.Helper()
	if o.Rows == 0 {
		o.Rows = 8
	}
	if o.BatchTokens == 0 {
		o.BatchTokens = 100
	}
	if o.Context == 0 {
		o.Context = 100
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 10
	}
	var results []string
	d := &decoder{decodeOptions: o, session: session}
	err := d.run(func() ([]int32, error) {
		if len(prompts) == 0 {
			return nil, io.EOF
		}
		prompt := prompts[0]
		prompts = prompts[1:]
		return prompt, nil
	}, func(s *sequence) error {
		a, text := s.answer(), "<null>"
		if a.Text != nil {
			text = *a.Text
		}
		if len(a.IDs) != len(a.LogProbs) {
			t.Errorf("%d ids with %d logprobs", len(a.IDs), len(a.LogProbs))
		}
		results = append(results, fmt.Sprintf("%v %q %s", a.IDs, text, a.Stop))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(session.rows) != 0 {
		t.Errorf("%d rows were not released", len(session.rows))
	}
	return results
}

func testTokenizer(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	dir := t.TempDir()
	if err := tokenizertest.Write(dir); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestContinuationsEndWhereTheyShould(t *testing.T) {
	tok := testTokenizer(t)
	merged := tok.EncodePlain("><")
	if len(merged) != 1 {
		t.Fatalf("%v", merged)
	}
	eos, _ := tok.ID(tokenizertest.EndOfTurn)
	tests := []struct {
		name    string
		script  []int32
		options decodeOptions
		want    string
	}{
		{"length", []int32{'a', 'b', 'c', 'd'}, decodeOptions{MaxTokens: 3}, `[97 98 99] "abc" length`},
		{"end of sequence", []int32{'a', eos, 'c'}, decodeOptions{EOS: []int32{1, eos}}, fmt.Sprintf(`[97 %d] "a" eos`, eos)},
		{"end of sequence at once", []int32{eos}, decodeOptions{EOS: []int32{eos}}, fmt.Sprintf(`[%d] "" eos`, eos)},
		{"context", []int32{'a', 'b', 'c'}, decodeOptions{Context: 4}, `[97 98] "ab" context_full`},
		{"length before context", []int32{'a', 'b'}, decodeOptions{Context: 4, MaxTokens: 2}, `[97 98] "ab" length`},
		{"stop string", []int32{'a', 'b', 'c', 'd'}, decodeOptions{Stops: []string{"bc"}}, `[97 98 99] "abc" stop`},
		{"stop string within a token", []int32{'a', merged[0], 'd'}, decodeOptions{Stops: []string{"a>"}}, fmt.Sprintf(`[97 %d] "a>" stop`, merged[0])},
		{"stop string that ends first", []int32{'a', 'b', 'c'}, decodeOptions{Stops: []string{"abc", "b"}}, `[97 98] "ab" stop`},
		{"stop string over many tokens", []int32{'a', 'a', 'a', 'b', '>'}, decodeOptions{Stops: []string{"aab"}}, `[97 97 97 98] "aaab" stop`},
		{"stop string before the length", []int32{'a', 'b'}, decodeOptions{Stops: []string{"b"}, MaxTokens: 2}, `[97 98] "ab" stop`},
		{"character in two tokens", []int32{0xE6, 273, ' ', 'x'}, decodeOptions{MaxTokens: 4}, `[230 273 32 120] "東 x" length`},
		{"stop string behind a broken character", []int32{0xE6, ' ', 'x', 'y'}, decodeOptions{Stops: []string{" x"}}, "[230 32 120] \"\ufffd x\" stop"},
		{"stop string of a character in two tokens", []int32{'a', 0xE6, 273, 'y'}, decodeOptions{Stops: []string{"東"}}, `[97 230 273] "a東" stop`},
		{"broken off within a character", []int32{'a', 0xE6}, decodeOptions{MaxTokens: 2}, "[97 230] \"a\ufffd\" length"},
	}
	if raw, ok := tok.TokenBytes(273); !ok || string(raw) != "\x9d\xb1" {
		t.Fatalf("token 273 is %q", raw)
	}
	for _, test := range tests {
		test.options.Tokenizer = tok
		got := decodeAll(t, &scripted{scripts: map[int32][]int32{5: test.script}}, test.options, []int32{5, 6})
		if len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %q, want %s", test.name, got, test.want)
		}
	}
}

func TestPromptsJoinAsRowsGetFree(t *testing.T) {
	session := &scripted{scripts: map[int32][]int32{1: {10, 11, 12, 13}, 2: {20}, 3: {30, 31}, 4: {40}}}
	o := decodeOptions{Rows: 2, EOS: []int32{13, 20, 31, 40}, BatchTokens: 4}
	got := decodeAll(t, session, o, []int32{1, 0, 0}, []int32{2, 0, 0}, []int32{3}, make([]int32, 100), []int32{4})
	want := []string{
		`[10 11 12 13] "<null>" eos`, `[20] "<null>" eos`, `[30 31] "<null>" eos`,
		`[] "<null>" context_full`, `[40] "<null>" eos`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if session.most != 2 {
		t.Errorf("%d rows at the same time, want 2", session.most)
	}
	// The second prompt gets what the first leaves of four tokens, and the rest beside the first
	// sequence's next token; then the third joins.
	if batches := fmt.Sprint(session.batches); batches != "[[3 1] [1 2] [1 1] [1 1] [1]]" {
		t.Errorf("forward passes of %s tokens", batches)
	}
}

func TestErrorsOfADecoder(t *testing.T) {
	broken := errors.New("broken")
	prompts := [][]int32{{1}, {2}}
	d := &decoder{
		decodeOptions: decodeOptions{MaxTokens: 1, Context: 9, Rows: 4, BatchTokens: 9},
		session:       &scripted{scripts: map[int32][]int32{1: {10}, 2: {20}}},
	}
	var taken []int32
	err := d.run(func() ([]int32, error) {
		if len(prompts) == 0 {
			return nil, broken
		}
		prompt := prompts[0]
		prompts = prompts[1:]
		return prompt, nil
	}, func(s *sequence) error { taken = append(taken, s.IDs...); return nil })
	if !errors.Is(err, broken) || !slices.Equal(taken, []int32{10, 20}) {
		t.Errorf("broken input: %v after %v, want the prompts before it answered", err, taken)
	}
	d = &decoder{decodeOptions: d.decodeOptions, session: &scripted{fail: model.ErrOutOfMemory}}
	err = d.run(func() ([]int32, error) { return []int32{1}, nil }, func(*sequence) error { return nil })
	if !errors.Is(err, model.ErrOutOfMemory) {
		t.Errorf("out of memory: %v", err)
	}
}
