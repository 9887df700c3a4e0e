package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/rollout"
)

// The tokens that hold a turn together, and their texts. Every other token reads as filler.
const (
	openMemory int32 = iota
	closeMemory
	wholeMemory
	search
	answer
	firstFiller
)

var scriptedTexts = [firstFiller]string{"<mem>", "</mem>", "<mem></mem>", "<search>q</search>", "<answer>a</answer>"}

// script stands in for text: it is vocabulary, conversation and search of rollouts in which every
// prompt, turn, result and answer has the length that a shape says. The model samples every token as it
// always does; at the places where a turn's memory and action begin and end, a token of the script takes
// the place of the sampled one, so that turns neither stop early nor go on. Other tokens are free of
// tags. It implements rollout.Vocabulary, chat.Format and retrieval.Searcher.
type script struct {
	shape   Shape
	valid   []bool    // tokens that may be sampled: the filler
	prompts [][]int32 // of each question
	answers [][]int32
	result  []int32 // behind every turn but the last
}

// newScript draws the tokens of a script for a vocabulary of so many ids.
func newScript(shape Shape, vocabulary int, seed uint64) (*script, error) {
	if vocabulary <= int(firstFiller) {
		return nil, fmt.Errorf("the model has %d token ids, the benchmark needs more than %d", vocabulary, firstFiller)
	}
	s := &script{shape: shape, valid: slices.Repeat([]bool{true}, vocabulary)}
	clear(s.valid[:firstFiller])
	random := s.random(seed, 0)
	for range shape.Questions {
		s.prompts = append(s.prompts, s.draw(random, shape.PromptTokens))
		s.answers = append(s.answers, s.draw(random, shape.AnswerTokens))
	}
	s.result = s.draw(random, shape.ToolTokens)
	return s, nil
}

func (s *script) random(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// draw makes up n tokens of filler.
func (s *script) draw(random *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for k := range ids {
		ids[k] = firstFiller + random.Int32N(int32(len(s.valid))-firstFiller)
	}
	return ids
}

// scripted are the tokens of a turn that are not the model's choice, by their position in the turn.
func (s *script) scripted(turn int) map[int]int32 {
	tokens := map[int]int32{s.shape.TurnTokens - 1: search}
	if turn == s.shape.Turns-1 {
		tokens[s.shape.TurnTokens-1] = answer
	}
	switch memory := s.shape.MemoryTokens; {
	case memory == 1:
		tokens[0] = wholeMemory
	case memory > 1:
		tokens[0], tokens[memory-1] = openMemory, closeMemory
	}
	return tokens
}

// seeds maps the seed of each draw that the script decides to its token. Seeds name a draw whatever
// batches and rows it goes through.
func (s *script) seeds(run uint64, step int) map[uint64]int32 {
	decided := map[uint64]int32{}
	for _, drawn := range s.questions() {
		for member := range s.shape.GroupSize {
			for turn := range s.shape.Turns {
				for position, id := range s.scripted(turn) {
					key := rollout.SeedKey{
						Run: run, Step: step, Question: drawn.Question.ID, Draw: drawn.Draw, Member: member, Turn: turn, Position: position,
					}
					decided[key.Seed()] = id
				}
			}
		}
	}
	return decided
}

// questions are those of the step. Question k has the text "k" and the golden answer "k".
func (s *script) questions() []rollout.Drawn {
	var drawn []rollout.Drawn
	for k := range s.shape.Questions {
		name := strconv.Itoa(k)
		drawn = append(drawn, rollout.Drawn{Draw: k, Question: dataset.Question{ID: name, Text: name, Objectives: [][]string{{name}}}})
	}
	return drawn
}

// trajectories are what a rollout of the script gives, with made-up tokens in place of sampled ones,
// question by question.
func (s *script) trajectories(seed uint64) []*rollout.Trajectory {
	random := s.random(seed, 1)
	var all []*rollout.Trajectory
	for k := range s.shape.Trajectories() {
		t := &rollout.Trajectory{Member: k % s.shape.GroupSize, PromptIDs: s.prompts[k/s.shape.GroupSize], Stop: rollout.Answered}
		for turn := range s.shape.Turns {
			s.write(t, turn, random)
		}
		all = append(all, t)
	}
	return all
}

// write appends a turn, and the result behind it.
func (s *script) write(t *rollout.Trajectory, turn int, random *rand.Rand) {
	start := s.shape.turnStart(turn)
	ids := s.draw(random, s.shape.TurnTokens)
	for position, id := range s.scripted(turn) {
		ids[position] = id
	}
	t.Turns = append(t.Turns, rollout.Turn{
		Tokens: rollout.Span{Start: start, End: start + len(ids)}, HasMemory: s.shape.MemoryTokens > 0,
		Memory: rollout.Span{Start: start, End: start + s.shape.MemoryTokens}, MemoryIDs: ids[:s.shape.MemoryTokens:s.shape.MemoryTokens],
	})
	t.ResponseIDs = append(t.ResponseIDs, ids...)
	t.ResponseMask = append(t.ResponseMask, slices.Repeat([]bool{true}, len(ids))...)
	if turn < s.shape.Turns-1 {
		t.ResponseIDs = append(t.ResponseIDs, s.result...)
		t.ResponseMask = append(t.ResponseMask, make([]bool, len(s.result))...)
	}
	t.LogProbs = make([]float32, len(t.ResponseIDs))
}

// options are the rollouts of a run, with the script in place of its texts and limits.
func (s *script) options(o rollout.Options) rollout.Options {
	o.Rules = rollout.Rules{
		Limits: rollout.Limits{
			MaxTurns: s.shape.Turns, MaxTurnTokens: s.shape.TurnTokens, MaxResponseTokens: s.shape.ResponseTokens(),
			ToolResultTokens: max(s.shape.ToolTokens, 1), ContextLength: s.shape.TrajectoryTokens() + s.shape.AnswerTokens,
		},
		Format: s, Vocabulary: s,
	}
	o.GroupSize, o.Step, o.Context = s.shape.GroupSize, scriptStep, rollout.Full
	o.TrajectoryDeadline, o.StepDeadline = 0, 0 // a slow machine is what is to be measured
	return o
}

// scriptStep is the step whose draws the script decides.
const scriptStep = 1

// tools are a search that answers at once.
func (s *script) tools() rollout.Tools {
	return rollout.Tools{Search: s, TopK: 1, Concurrency: s.shape.Trajectories()}
}

// Prompt implements chat.Format.
func (s *script) Prompt(question string) ([]int32, error) {
	k, err := strconv.Atoi(question)
	return s.prompts[k], err
}

// Observation implements chat.Format: every result is the same tokens.
func (s *script) Observation([]tokenizer.Segment, bool) []int32 { return s.result }

// EndOfTurn implements chat.Format.
func (s *script) EndOfTurn() []int32 { return nil }

// Encode implements rollout.Vocabulary. Asked for are the answer prefix, which is empty, and the length
// of a result, which fits in any case.
func (s *script) Encode(segments ...tokenizer.Segment) []int32 {
	for _, segment := range segments {
		if segment.Text != "" {
			return []int32{firstFiller}
		}
	}
	return nil
}

// EncodePlain implements rollout.Vocabulary; the only text is a golden answer.
func (s *script) EncodePlain(text string) []int32 {
	k, err := strconv.Atoi(text)
	if err != nil {
		return s.Encode(tokenizer.Segment{Text: text})
	}
	return s.answers[k]
}

// TokenBytes implements rollout.Vocabulary.
func (s *script) TokenBytes(id int32) ([]byte, bool) {
	if id < firstFiller {
		return []byte(scriptedTexts[id]), true
	}
	return []byte(" x"), int(id) < len(s.valid)
}

// Valid implements rollout.Vocabulary.
func (s *script) Valid() []bool { return s.valid }

// Search implements retrieval.Searcher.
func (s *script) Search(context.Context, string, int) ([]retrieval.Passage, error) {
	return []retrieval.Passage{{Contents: "x"}}, nil
}

var (
	_ rollout.Vocabulary = (*script)(nil)
	_ chat.Format        = (*script)(nil)
	_ retrieval.Searcher = (*script)(nil)
)
