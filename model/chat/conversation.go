package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// Format turns the parts of a conversation into token ids, piece by piece. What the model wrote
// stays as it was sampled: its ids go between the pieces, and nothing is rendered or encoded
// twice. A Format is safe for concurrent use.
type Format interface {
	// Prompt is the system prompt, the question and the generation prompt; it ends where the
	// model starts to write.
	Prompt(question string) ([]int32, error)
	// Observation is what stands between two turns of the model: the end of its turn, a message
	// with the result, and the generation prompt. closed says that the turn's last id is one of
	// EndOfTurn; else an end-of-turn token comes first.
	Observation(result []tokenizer.Segment, closed bool) []int32
	// EndOfTurn lists the ids that close a turn of the model; none in a format without.
	EndOfTurn() []int32
}

// chatFormat writes conversations as the model's chat template does.
type chatFormat struct {
	template *Template
	tok      *tokenizer.Tokenizer
	system   string
	glue
}

// glue is the template's own text around the result of a tool.
type glue struct {
	end    string // end-of-turn token, "" when the template has none right behind the model's text
	endID  int32
	before string // from behind end to the result
	after  string // from behind the result to where the model writes
}

// NewChatFormat derives the pieces from renderings of the template, and checks on five fixed
// chats that they add up to the template's own whole rendering; a template for which they do not
// is refused. A system prompt of "" writes no system message. Thoughts of earlier turns stay in
// the conversation, whatever the template would do to them.
func NewChatFormat(t *Template, tok *tokenizer.Tokenizer, systemPrompt string) (Format, error) {
	f := &chatFormat{template: t, tok: tok, system: systemPrompt}
	var err error
	if f.glue, err = deriveGlue(t, tok); err != nil {
		return nil, refused(t, err)
	}
	for _, chat := range fixedChats {
		if err := f.check(chat); err != nil {
			return nil, refused(t, err)
		}
	}
	return f, nil
}

func refused(t *Template, err error) error {
	return fmt.Errorf("chat template %s does not work piece by piece (rollout.format = \"raw\" does with every model): %w", t.name, err)
}

// deriveGlue cuts the glue out of a rendering with contents that occur nowhere else.
func deriveGlue(t *Template, tok *tokenizer.Tokenizer) (glue, error) {
	const turn, result = "turn-4bf1c0", "result-9ad27e"
	text, err := t.Render([]Message{{"user", "question-61d8f3"}, {"assistant", turn}, {"user", result}}, true)
	if err != nil {
		return glue{}, err
	}
	_, rest, foundTurn := strings.Cut(text, turn)
	between, after, foundResult := strings.Cut(rest, result)
	if !foundTurn || !foundResult || strings.Contains(after, turn) || strings.Contains(after, result) {
		return glue{}, fmt.Errorf("it does not show each message once, in order: %q", text)
	}
	g := glue{before: between, after: after}
	if ids := tok.EncodeTrusted(between); len(ids) > 0 && tok.IsSpecial(ids[0]) {
		token, _ := tok.TokenBytes(ids[0])
		if before, ok := strings.CutPrefix(between, string(token)); ok && len(token) > 0 {
			g = glue{end: string(token), endID: ids[0], before: before, after: after}
		}
	}
	return g, nil
}

// Prompt implements Format.
func (f *chatFormat) Prompt(question string) ([]int32, error) {
	segments, err := f.template.Segments(opening(f.system, question), true)
	if err != nil {
		return nil, err
	}
	return f.tok.Encode(segments...), nil
}

// opening is the messages a conversation starts with.
func opening(system, question string) []Message {
	if system == "" {
		return []Message{{"user", question}}
	}
	return []Message{{"system", system}, {"user", question}}
}

// Observation implements Format.
func (f *chatFormat) Observation(result []tokenizer.Segment, closed bool) []int32 {
	ids := f.tok.Encode(f.observation(result)...)
	if closed && f.end != "" {
		// The token takes part in the encoding even where the model has written it: it may
		// swallow the white space behind it.
		return ids[1:]
	}
	return ids
}

func (f *chatFormat) observation(result []tokenizer.Segment) []tokenizer.Segment {
	return slices.Concat(
		[]tokenizer.Segment{{Text: f.end + f.before, Trusted: true}},
		result,
		[]tokenizer.Segment{{Text: f.after, Trusted: true}},
	)
}

// EndOfTurn implements Format.
func (f *chatFormat) EndOfTurn() []int32 {
	if f.end == "" {
		return nil
	}
	return []int32{f.endID}
}

// fixedChat is a conversation the pieces are checked on.
type fixedChat struct {
	name   string
	system string
	rounds []round
}

// round is a turn of the model and the result it got. Fixed turns hold no <think>: templates drop
// earlier thoughts, the pieces keep them. As text, a cut turn that was closed for the model reads
// like one that it closed itself.
type round struct {
	turn, result string
}

var fixedChats = []fixedChat{
	{name: "a chat without a system message"},
	{name: "a chat with a system message", system: "Answer briefly."},
	{name: "a chat with one result", system: "Answer briefly.", rounds: []round{
		{turn: "<mem></mem><search>river</search>", result: "<information>\nIt flows.\n</information>"},
	}},
	{name: "a chat with two results in a row", rounds: []round{
		{turn: "<mem></mem><search>river</search>", result: "<information>\nIt flows.\n</information>"},
		{turn: "<mem>It flows.</mem><search>sea</search>", result: "<information>\nIt is salt.\n</information>"},
	}},
	{name: "a chat with a cut turn", rounds: []round{
		{turn: "<mem>It flo", result: "Go on."},
	}},
}

// check compares the text of the pieces of a chat with the template's rendering of it.
func (f *chatFormat) check(chat fixedChat) error {
	messages := opening(chat.system, "Where does it go?")
	segments, err := f.template.Segments(messages, true)
	if err != nil {
		return err
	}
	var pieces strings.Builder
	pieces.WriteString(joined(segments))
	for _, round := range chat.rounds {
		messages = append(messages, Message{"assistant", round.turn}, Message{"user", round.result})
		pieces.WriteString(round.turn + joined(f.observation([]tokenizer.Segment{{Text: round.result}})))
	}
	whole, err := f.template.Render(messages, true)
	if err != nil {
		return err
	}
	if pieces.String() != whole {
		return fmt.Errorf("it renders %s as %q, its pieces make %q", chat.name, whole, pieces.String())
	}
	return nil
}

// rawFormat writes a conversation as running text.
type rawFormat struct {
	tok    *tokenizer.Tokenizer
	system string
}

// NewRawFormat is the format without messages, for models without a usable chat template: the
// system prompt, an empty line, the question and a line break; then the model's text, and behind
// each of its turns the result as it is and a line break. It has no end-of-turn token.
func NewRawFormat(tok *tokenizer.Tokenizer, systemPrompt string) Format {
	return &rawFormat{tok: tok, system: systemPrompt}
}

// Prompt implements Format; it never fails.
func (f *rawFormat) Prompt(question string) ([]int32, error) {
	var system string
	if f.system != "" {
		system = f.system + "\n\n"
	}
	return f.tok.Encode(
		tokenizer.Segment{Text: system, Trusted: true},
		tokenizer.Segment{Text: question},
		tokenizer.Segment{Text: "\n", Trusted: true},
	), nil
}

// Observation implements Format.
func (f *rawFormat) Observation(result []tokenizer.Segment, _ bool) []int32 {
	return f.tok.Encode(append(slices.Clone(result), tokenizer.Segment{Text: "\n", Trusted: true})...)
}

// EndOfTurn implements Format.
func (f *rawFormat) EndOfTurn() []int32 { return nil }
