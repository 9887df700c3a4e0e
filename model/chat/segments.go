package chat

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// Segments renders messages as Render does and tells apart what may hold control tokens: the
// template's own text and system messages are trusted, the contents of all other messages are
// not. White space at the ends of a content counts as the template's, as do the <think> and
// </think> of an assistant message, which templates rewrite. It is an error if the template
// changes a content in a way that hides where it went.
func (t *Template) Segments(messages []Message, addGenerationPrompt bool) ([]tokenizer.Segment, error) {
	whole, err := t.Render(messages, addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	marks := newMarks(whole, messages)
	marked := make([]Message, len(messages))
	for k, message := range messages {
		marked[k] = Message{Role: message.Role, Content: marks.mark(message)}
	}
	text, err := t.Render(marked, addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	segments := marks.split(text)
	if joined(segments) != whole {
		return nil, fmt.Errorf("chat template %s changes the contents of %s so that they cannot be told from its own text", t.name, roles(messages))
	}
	return segments, nil
}

// joined is the text of segments.
func joined(segments []tokenizer.Segment) string {
	var text strings.Builder
	for _, segment := range segments {
		text.WriteString(segment.Text)
	}
	return text.String()
}

// marks stand for stretches of message contents while the template renders: texts that occur
// nowhere else, of characters that no template looks for.
type marks struct {
	prefix    string
	stretches []string
}

const (
	markOpen  = "\ue000"
	markClose = "\ue001"
)

// newMarks chooses a prefix that occurs neither in the rendered text nor in a content.
func newMarks(whole string, messages []Message) *marks {
	m := &marks{}
	for salt := 0; ; salt++ {
		m.prefix = markOpen + strconv.Itoa(salt) + "."
		taken := strings.Contains(whole, m.prefix)
		for _, message := range messages {
			taken = taken || strings.Contains(message.Content, m.prefix)
		}
		if !taken {
			return m
		}
	}
}

var thinkTag = regexp.MustCompile(`</?think>`)

// mark returns a message's content with a mark for each untrusted stretch.
func (m *marks) mark(message Message) string {
	content := message.Content
	switch message.Role {
	case "system":
		return content
	case "assistant":
		var out strings.Builder
		from := 0
		for _, at := range thinkTag.FindAllStringIndex(content, -1) {
			out.WriteString(m.stretch(content[from:at[0]]))
			out.WriteString(content[at[0]:at[1]])
			from = at[1]
		}
		return out.String() + m.stretch(content[from:])
	}
	return m.stretch(content)
}

// stretch puts a mark in place of text, leaving the white space around it to be trimmed or kept.
func (m *marks) stretch(text string) string {
	core := strings.TrimFunc(text, isSpace)
	if core == "" {
		return text
	}
	start := strings.Index(text, core)
	m.stretches = append(m.stretches, core)
	return text[:start] + m.prefix + strconv.Itoa(len(m.stretches)-1) + markClose + text[start+len(core):]
}

// isSpace is Python's str.isspace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// split puts the stretches back into the rendered text.
func (m *marks) split(text string) []tokenizer.Segment {
	var segments []tokenizer.Segment
	add := func(text string, trusted bool) {
		if text != "" {
			segments = append(segments, tokenizer.Segment{Text: text, Trusted: trusted})
		}
	}
	for {
		before, rest, found := strings.Cut(text, m.prefix)
		add(before, true)
		if !found {
			return segments
		}
		number, rest, _ := strings.Cut(rest, markClose)
		if k, err := strconv.Atoi(number); err == nil && k >= 0 && k < len(m.stretches) {
			add(m.stretches[k], false)
		}
		text = rest
	}
}
