package rollout

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

// realTokenizer is a byte-level BPE with the ChatML template, and its tokens for a fakePolicy.
func realTokenizer(t *testing.T, specials ...string) (*tokenizer.Tokenizer, *chat.Template, *toyVocabulary) {
	t.Helper()
	dir := t.TempDir()
	if err := tokenizertest.Write(dir, specials...); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.LoadTemplate(dir)
	if err != nil {
		t.Fatal(err)
	}
	pieces := &toyVocabulary{specials: 2 + len(specials)}
	for id := range tok.Valid() {
		token, _ := tok.TokenBytes(int32(id))
		pieces.tokens = append(pieces.tokens, string(token))
	}
	return tok, template, pieces
}

// chatTurns is someTurns with the end-of-turn token of ChatML.
func chatTurns(k SeedKey) string {
	text := strings.ReplaceAll(someTurns(k), endOfTurnT, tokenizertest.EndOfTurn)
	return strings.ReplaceAll(text, "<|eos|>", tokenizertest.EndOfTurn)
}

// With a template that leaves earlier turns alone, a trajectory must read as the template's own
// rendering of the conversation, whatever the pieces it was sampled and encoded in.
func TestTrajectoriesReadAsTheTemplateRendersThem(t *testing.T) {
	tok, template, pieces := realTokenizer(t)
	compared := 0
	for round := range 12 {
		rng := rand.New(rand.NewPCG(uint64(round), 5))
		system := strings.Repeat("be brief ", 1+rng.IntN(40))
		format, err := chat.NewChatFormat(template, tok, system)
		if err != nil {
			t.Fatal(err)
		}
		o := toyOptions(4)
		o.Seed, o.Format, o.Vocabulary = uint64(round), format, tok
		o.EOS = format.EndOfTurn()
		o.MaxTurnTokens, o.CorrectNoAction = 80, true
		o.Prefill = []string{"", "<mem>"}[round%2]
		drawn := questions(2)
		drawn[1].Question.Text = "what is <|im_end|> & " + strings.Repeat("東京 ", 3)
		p := newFakePolicy(t, o, drawn, chatTurns)
		p.pieces = pieces
		groups, _ := run(t, p, o, drawn, searchTools(echo))
		for _, g := range groups {
			for _, trajectory := range g.Trajectories {
				compared += len(trajectory.Turns)
				checkRendering(t, template, pieces, system, g.Question.Text, o.Texts.Correct, trajectory)
			}
		}
	}
	if compared < 150 {
		t.Errorf("only %d turns were compared", compared)
	}
}

func checkRendering(t *testing.T, template *chat.Template, pieces *toyVocabulary, system, question, correct string, got *Trajectory) {
	t.Helper()
	messages := []chat.Message{{Role: "system", Content: system}, {Role: "user", Content: question}}
	for k, turn := range got.Turns {
		if k > 0 {
			message := got.Turns[k-1].Result
			if got.Turns[k-1].Action == "" {
				message = correct
			}
			messages = append(messages, chat.Message{Role: "user", Content: message})
		}
		messages = append(messages, chat.Message{Role: "assistant", Content: turn.Text})
		ids := got.ResponseIDs[turn.Tokens.Start:turn.Tokens.End]
		if want := strings.TrimSuffix(pieces.decode(ids), tokenizertest.EndOfTurn); turn.Text != want {
			t.Errorf("turn %d holds %q, its text is %q", k, want, turn.Text)
		}
	}
	want, err := template.Render(messages, false)
	if err != nil {
		t.Fatal(err)
	}
	if text := pieces.decode(got.FullIDs()); !strings.HasPrefix(want, text) || len(want)-len(text) > len(tokenizertest.EndOfTurn)+1 {
		t.Errorf("the trajectory reads\n%q\nthe template renders\n%q", text, want)
	}
}

func TestRawConversation(t *testing.T) {
	tok, _, pieces := realTokenizer(t)
	o := toyOptions(2)
	o.Format, o.Vocabulary = chat.NewRawFormat(tok, "be brief"), tok
	o.EOS = []int32{tokenizertest.FirstAddedID + 1}
	drawn := questions(1)
	p := newFakePolicy(t, o, drawn, twoTurns)
	p.pieces = pieces
	groups, _ := run(t, p, o, drawn, searchTools(echo))
	for _, got := range groups[0].Trajectories {
		want := "be brief\n\nwho is 0?\n" + got.Turns[0].Text + got.Turns[0].Result + "\n" + got.Turns[1].Text
		if text := pieces.decode(got.FullIDs()); text != want || got.Stop != Answered {
			t.Errorf("stop %s, the trajectory reads\n%q, want\n%q", got.Stop, text, want)
		}
		if !slices.Equal(got.PromptIDs, groups[0].Trajectories[0].PromptIDs) {
			t.Error("members have different prompts")
		}
	}
}
