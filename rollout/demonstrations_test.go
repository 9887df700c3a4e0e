package rollout

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// plainTurns are turns that end by themselves, with an action or with ChatML's end-of-turn token.
func plainTurns(k SeedKey) string {
	rng := rand.New(rand.NewPCG(k.Seed(), 3))
	pick := func(texts ...string) string { return texts[rng.IntN(len(texts))] }
	return pick("<mem>hello</mem>", "<mem>東</mem>", "", "<mem><search>x</search></mem>\n") +
		pick("<think>ok</think>", "<think><answer>x</answer></think>", "") +
		pick("<search>he</search>", "<search>q q</search>", "<search></search>", "<access>u</access>", "<answer>hello</answer>",
			"hm"+tokenizertest.EndOfTurn)
}

// asDemonstration is a trajectory as a demonstration: its texts, in the roles they have in a conversation.
func asDemonstration(system, question string, o Options, got *Trajectory) chat.Demonstration {
	d := chat.Demonstration{System: system}
	message := question
	for _, turn := range got.Turns {
		d.Turns = append(d.Turns, chat.DemonstratedTurn{Message: message, Prefix: o.Prefill, Text: turn.Text[len(o.Prefill):], Trained: true})
		if message = turn.Result; turn.Action == "" {
			message = o.Texts.Correct
		}
	}
	return d
}

// A trajectory that is written down as a demonstration gives exactly its ids and its response mask.
func TestTrajectoriesAsDemonstrations(t *testing.T) {
	tags := []string{"<mem>", "</mem>", "<think>", "</think>", "<search>", "</search>", "<access>", "</access>", "<answer>", "</answer>", "<information>", "</information>"}
	for name, specials := range map[string][]string{"tags of several tokens": nil, "tags of one token": tags} {
		tok, template, pieces := realTokenizer(t, specials...)
		formats := map[string]func(system string) (chat.Format, error){
			"chat": func(system string) (chat.Format, error) { return chat.NewChatFormat(template, tok, system) },
			"raw":  func(system string) (chat.Format, error) { return chat.NewRawFormat(tok, system), nil },
		}
		for kind, format := range formats {
			compared := 0
			for seed := range 8 {
				compared += compareDemonstrations(t, tok, pieces, format, seed)
			}
			if compared < 60 {
				t.Errorf("%s, %s: only %d turns were compared", name, kind, compared)
			}
		}
	}
}

func compareDemonstrations(t *testing.T, tok *tokenizer.Tokenizer, pieces *toyVocabulary, format func(string) (chat.Format, error), seed int) (turns int) {
	t.Helper()
	const system = "be brief"
	o := toyOptions(4)
	var err error
	if o.Format, err = format(system); err != nil {
		t.Fatal(err)
	}
	o.Seed, o.Vocabulary, o.EOS = uint64(seed), tok, []int32{tokenizertest.FirstAddedID + 1}
	o.CorrectNoAction, o.Prefill = true, []string{"", "<mem>é</mem>"}[seed%2]
	o.Texts.Correct = "write <search> query </search> or <answer> a </answer>"
	drawn := questions(2)
	drawn[1].Question.Text = "what is <|im_end|> & </answer> 東京"
	p := newFakePolicy(t, o, drawn, plainTurns)
	p.pieces, p.encode = pieces, tok.EncodeTrusted
	groups, _ := run(t, p, o, drawn, searchTools(echo))
	teacher := chat.NewTeacher(tok, o.EOS, format)
	for _, g := range groups {
		for _, got := range g.Trajectories {
			turns += len(got.Turns)
			lesson, err := teacher.Lesson(asDemonstration(system, g.Question.Text, o, got))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(lesson.IDs, got.FullIDs()) {
				t.Errorf("as a demonstration\n%q\nthe trajectory is\n%q", tok.Decode(lesson.IDs), tok.Decode(got.FullIDs()))
			}
			if !slices.Equal(lesson.Positions, got.ModelPositions()) {
				t.Errorf("learned are %v, sampled were %v of %q", lesson.Positions, got.ModelPositions(), tok.Decode(got.FullIDs()))
			}
		}
	}
	return turns
}
