package rollout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
)

// toyVocabulary has the 256 bytes, then pieces, then special tokens. It encodes by the longest
// token that fits, so what a model writes in other pieces would come out differently.
type toyVocabulary struct {
	tokens   []string
	specials int // the last of tokens
}

const (
	startOfTurn = "<|start|>"
	endOfTurnT  = "<|end|>"
)

func newToyVocabulary() *toyVocabulary {
	v := &toyVocabulary{}
	for b := range 256 {
		v.tokens = append(v.tokens, string([]byte{byte(b)}))
	}
	v.tokens = append(v.tokens, "<mem>", "</mem", "><", ">\n", "</", "<think>", "</think>", "<se", "arch>", "he", "llo", "hello",
		"</search>", "<answer>", "</answer>\n", "nk>ok", "\x9d\xb1", "<information>\n", "\n</information>", "a</mem><")
	v.tokens = append(v.tokens, startOfTurn, endOfTurnT, "<|eos|>")
	v.specials = 3
	return v
}

func (v *toyVocabulary) id(token string) int32 {
	k := slices.Index(v.tokens, token)
	if k < 0 {
		panic("no token " + token)
	}
	return int32(k)
}

// ids encodes the given pieces one by one, each of which must be a token.
func (v *toyVocabulary) ids(pieces ...string) []int32 {
	var ids []int32
	for _, piece := range pieces {
		ids = append(ids, v.id(piece))
	}
	return ids
}

func (v *toyVocabulary) Encode(segments ...tokenizer.Segment) []int32 {
	var ids []int32
	for _, s := range segments {
		pieces := []string{s.Text}
		if s.Trusted {
			pieces = v.bySpecials(s.Text)
		}
		for _, piece := range pieces {
			if k := slices.Index(v.tokens, piece); s.Trusted && k >= v.firstSpecial() {
				ids = append(ids, int32(k))
				continue
			}
			for piece != "" {
				fitting := v.fitting(piece)
				longest := slices.MaxFunc(fitting, func(a, b int32) int { return len(v.tokens[a]) - len(v.tokens[b]) })
				ids = append(ids, longest)
				piece = piece[len(v.tokens[longest]):]
			}
		}
	}
	return ids
}

func (v *toyVocabulary) firstSpecial() int { return len(v.tokens) - v.specials }

// bySpecials cuts text in front of and behind each special token in it.
func (v *toyVocabulary) bySpecials(text string) []string {
	for _, special := range v.tokens[v.firstSpecial():] {
		if before, after, found := strings.Cut(text, special); found {
			return slices.Concat(v.bySpecials(before), []string{special}, v.bySpecials(after))
		}
	}
	return []string{text}
}

// fitting lists the ordinary tokens that text begins with.
func (v *toyVocabulary) fitting(text string) []int32 {
	var ids []int32
	for id, token := range v.tokens[:v.firstSpecial()] {
		if token != "" && strings.HasPrefix(text, token) {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

func (v *toyVocabulary) EncodePlain(text string) []int32 {
	return v.Encode(tokenizer.Segment{Text: text})
}

func (v *toyVocabulary) TokenBytes(id int32) ([]byte, bool) {
	if id < 0 || int(id) >= len(v.tokens) {
		return nil, false
	}
	return []byte(v.tokens[id]), true
}

func (v *toyVocabulary) Valid() []bool {
	return slices.Repeat([]bool{true}, len(v.tokens))
}

func (v *toyVocabulary) decode(ids []int32) string {
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(v.tokens[id])
	}
	return text.String()
}

// split cuts text into tokens at random; specials in it are one token each.
func (v *toyVocabulary) split(text string, rng *rand.Rand) []int32 {
	var ids []int32
	for _, piece := range v.bySpecials(text) {
		if k := slices.Index(v.tokens, piece); k >= v.firstSpecial() {
			ids = append(ids, int32(k))
			continue
		}
		for piece != "" {
			fitting := v.fitting(piece)
			id := fitting[rng.IntN(len(fitting))]
			ids = append(ids, id)
			piece = piece[len(v.tokens[id]):]
		}
	}
	return ids
}

// toyFormat is ChatML over a toyVocabulary.
type toyFormat struct {
	vocabulary *toyVocabulary
	system     string
}

func (f toyFormat) Prompt(question string) ([]int32, error) {
	if question == "" {
		return nil, errors.New("the question is empty")
	}
	return f.vocabulary.Encode(
		tokenizer.Segment{Text: startOfTurn + f.system + endOfTurnT + startOfTurn, Trusted: true},
		tokenizer.Segment{Text: question},
		tokenizer.Segment{Text: endOfTurnT + startOfTurn, Trusted: true},
	), nil
}

func (f toyFormat) Observation(result []tokenizer.Segment, closed bool) []int32 {
	glue := "\n" + startOfTurn
	if !closed {
		glue = endOfTurnT + glue
	}
	segments := append([]tokenizer.Segment{{Text: glue, Trusted: true}}, result...)
	return f.vocabulary.Encode(append(segments, tokenizer.Segment{Text: endOfTurnT + startOfTurn, Trusted: true})...)
}

func (f toyFormat) EndOfTurn() []int32 { return f.vocabulary.ids(endOfTurnT) }

// toyRules are rules without a limit in sight.
func toyRules() Rules {
	v := newToyVocabulary()
	return Rules{
		Limits:     Limits{MaxTurns: 8, MaxTurnTokens: 1000, MaxResponseTokens: 10000, ToolResultTokens: 1000, ContextLength: 20000},
		Format:     toyFormat{v, "sys"},
		Vocabulary: v,
		EOS:        v.ids(endOfTurnT, "<|eos|>"),
		Texts: Texts{
			Correct: "act!", Unavailable: "no {tool} here", Refused: "{url}: {reason}", Empty: "empty {tool}",
			NoResults: "nothing", ToolFailed: "{tool} broke",
		},
	}
}

// searchFunc and accessFunc are tools made of a function.
type (
	searchFunc func(ctx context.Context, query string) ([]retrieval.Passage, error)
	accessFunc func(ctx context.Context, url string) (string, error)
)

func (f searchFunc) Search(ctx context.Context, query string, _ int) ([]retrieval.Passage, error) {
	return f(ctx, query)
}

func (f accessFunc) Access(ctx context.Context, url string) (string, error) { return f(ctx, url) }

// echo finds one passage, which names the query.
func echo(_ context.Context, query string) ([]retrieval.Passage, error) {
	return []retrieval.Passage{{ID: "1", Contents: "\"T\"\nabout " + query}}, nil
}

func questions(n int) []Drawn {
	drawn := make([]Drawn, n)
	for k := range drawn {
		drawn[k] = Drawn{dataset.Question{ID: fmt.Sprint("q", k), Text: fmt.Sprint("who is ", k, "?"), Objectives: [][]string{{"Ada"}}}, k}
	}
	return drawn
}

// toyOptions run n members with up to 8 questions.
func toyOptions(members int) Options {
	return Options{
		Rules: toyRules(), GroupSize: members, Sampling: model.Sampling{Temperature: 1}, Seed: 7, Step: 3,
		Schedule: Fixed, BatchTokens: 64,
	}
}

func searchTools(search searchFunc) Tools {
	return Tools{Search: search, TopK: 3, Concurrency: 8}
}
