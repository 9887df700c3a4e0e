package tokenizer

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/model/tokenizer/internal/bytealphabet"
)

func TestMerges(t *testing.T) {
	ignore := func(file object) object {
		model := maps.Clone(file["model"].(object))
		model["ignore_merges"] = true
		file["model"] = model
		return file
	}
	file := smallFile(t)
	for name, c := range map[string]struct {
		file       object
		word, want string
	}{
		"the lowest rank first":              {withMerges(file, "", "b c", "a b"), "abc", "a bc"},
		"not the leftmost":                   {withMerges(file, "", "a b", "b c"), "abc", "ab c"},
		"of equal ranks the leftmost":        {withMerges(file, "", "a a"), "aaa", "aa a"},
		"merges of merges":                   {withMerges(file, "", "a a", "aa a"), "aaaaa", "aa aaa"},
		"two ways to one token":              {withMerges(file, "", "b c", "ab c", "a bc", "a b"), "abc", "abc"},
		"a repeated merge has its last rank": {withMerges(file, "", "a b", "b c", "a b"), "abc", "a bc"},
		"bytes the vocabulary lacks go":      {withMerges(file, "\xe6z", "a b"), "az東b", "a \x9d \xb1 b"},
		"and what is left joins":             {withMerges(file, "z", "a b"), "azb", "ab"},
		"a word of none of them":             {withMerges(file, "z"), "zz", ""},
		"merges decide about a whole word":   {withMerges(file, "", "b c", "a b", "ab c"), "abc", "a bc"},
		"unless they are ignored":            {ignore(withMerges(file, "", "b c", "a b", "ab c")), "abc", "abc"},
		"which goes for whole words only":    {ignore(withMerges(file, "", "b c", "a b", "ab c")), "abcd", "a bc d"},
	} {
		tok := build(t, c.file)
		for range 2 { // the second time out of the cache
			if got := strings.Join(pieces(tok, tok.EncodePlain(c.word)), " "); got != c.want {
				t.Errorf("%s: %q becomes %q, want %q", name, c.word, got, c.want)
			}
		}
	}
}

func TestMergesInBothForms(t *testing.T) {
	strung := withMerges(smallFile(t), "", "␣ t", "␣t h", "h e", "␣th e")
	paired := withMerges(smallFile(t), "", "␣ t", "␣t h", "h e", "␣th e")
	model := paired["model"].(object)
	var pairs []any
	for _, line := range model["merges"].([]any) {
		pairs = append(pairs, strings.Split(line.(string), " "))
	}
	model["merges"] = pairs
	want := []string{" the", " ", " th"}
	for _, file := range []object{strung, paired} {
		tok := build(t, file)
		if got := pieces(tok, tok.EncodePlain(" the  th")); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// mergeByDefinition merges the pair of lowest rank, of equal ranks the leftmost, until none is left.
func mergeByDefinition(m *merger, symbols []int32) []int32 {
	symbols = slices.Clone(symbols)
	for {
		best, at := pairMerge{rank: noMerge}, -1
		for i := 0; i+1 < len(symbols); i++ {
			if p := m.pairs.get(symbols[i], symbols[i+1]); p.rank < best.rank {
				best, at = p, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols[at] = best.id
		symbols = slices.Delete(symbols, at+1, at+2)
	}
}

func TestShortAndLongWordsMergeByDefinition(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		tokens := map[string]int32{"a": 0, "b": 1, "c": 2}
		var merges mergeList
		for range 25 {
			names := slices.Sorted(maps.Keys(tokens))
			left, right := names[random.IntN(len(names))], names[random.IntN(len(names))]
			if _, ok := tokens[left+right]; !ok {
				tokens[left+right] = int32(len(tokens))
			}
			merges = append(merges, []string{left, right})
		}
		m, err := newMerger(tokens, tokens, merges)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			word := make([]byte, 1+random.IntN(2*heapFrom))
			for i := range word {
				word[i] = "abc"[random.IntN(3)]
			}
			symbols := m.symbols(nil, string(word))
			want := mergeByDefinition(m, symbols)
			if got := m.mergeLong(slices.Clone(symbols)); !slices.Equal(got, want) {
				t.Fatalf("long: %s becomes %v, want %v with %v", word, got, want, merges)
			}
			if len(word) < heapFrom {
				if got := m.mergeShort(slices.Clone(symbols)); !slices.Equal(got, want) {
					t.Fatalf("short: %s becomes %v, want %v with %v", word, got, want, merges)
				}
			}
		}
	}
}

// A word of 512 kB takes a moment; were merging quadratic, it would take minutes.
func TestLongWordsAreNotQuadratic(t *testing.T) {
	tok := build(t, withMerges(smallFile(t), "", "a a", "aa aa", "aaaa a"))
	const length = 1 << 19
	done := make(chan []int32)
	go func() { done <- tok.EncodePlain(strings.Repeat("a", length)) }()
	select {
	case ids := <-done:
		if len(ids) != length/4 {
			t.Errorf("%d tokens, want %d", len(ids), length/4)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("one word of 512 kB took over two minutes")
	}
}

func TestPairTable(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		table := newPairTable(n * n)
		for a := range int32(n) {
			for b := range int32(n) {
				table.set(a, b, pairMerge{uint32(a), b})
			}
		}
		for a := range int32(n) {
			for b := range int32(n) {
				if got := table.get(a, b); got != (pairMerge{uint32(a), b}) {
					t.Fatalf("of %d²: (%d, %d) has %v", n, a, b, got)
				}
			}
		}
		if got := table.get(int32(n), 0); got.rank != noMerge {
			t.Errorf("of %d²: a pair that was never set has %v", n, got)
		}
	}
}

func TestWordCacheIsBounded(t *testing.T) {
	c := newWordCache()
	c.put("kept", []int32{7})
	for i := range int32(5 * cachedWords) {
		c.put(bytealphabet.Spell(string([]byte{byte(i), byte(i >> 8), byte(i >> 16)})), []int32{i})
		if ids, ok := c.get("kept"); !ok || len(ids) != 1 {
			t.Fatalf("after %d other words, one in use has %v, %v", i, ids, ok)
		}
	}
	if n := len(c.young) + len(c.old); n > 2*cachedWords {
		t.Errorf("the cache holds %d words, but may hold %d", n, 2*cachedWords)
	}
}
