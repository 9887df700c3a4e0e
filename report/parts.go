package report

import (
	"slices"
	"strings"
)

// The kinds of text in a trajectory, by which the page tells them apart.
const (
	memory    = "memory"
	thought   = "thought"
	query     = "query"
	address   = "address"
	answer    = "answer"
	otherText = "other"  // of the model, outside the tags
	template  = "glue"   // of the chat template, around a tool result
	result    = "result" // of a tool
)

// element is a tag's name and the kind of what stands in it.
type element struct{ name, kind string }

// elements are tags and, where the turn called a custom tool, that tool's.
func elements(action string) []element {
	known := func(e element) bool { return e.name == action }
	if action == "" || slices.ContainsFunc(tags, known) {
		return tags
	}
	return append(slices.Clone(tags), element{action, query})
}

// tags are the elements of a turn. Which of them count in training is a matter of package chat;
// here they only give what is read its shape, so that broken turns have one too.
var tags = []element{
	{"mem", memory}, {"think", thought}, {"search", query}, {"access", address}, {"answer", answer},
}

// span is a stretch of a turn's text in bytes.
type span struct {
	kind       string
	start, end int
}

// cut divides what the model wrote in a turn at its elements, which reach from an opening tag to
// the next closing tag of the same name, or to the end. The spans cover the text without a gap. action is
// that of the turn.
func cut(text, action string) []span {
	tags := elements(action)
	var spans []span
	add := func(kind string, start, end int) {
		if start < end {
			spans = append(spans, span{kind, start, end})
		}
	}
	for at := 0; at < len(text); {
		kind, start, end := nextElement(text, at, tags)
		add(otherText, at, start)
		add(kind, start, end)
		at = end
	}
	return spans
}

// nextElement finds the first element from at on; without one it is empty, at the end of the text.
func nextElement(text string, at int, tags []element) (kind string, start, end int) {
	for start = at; start < len(text); start++ {
		next := strings.IndexByte(text[start:], '<')
		if next < 0 {
			break
		}
		start += next
		for _, tag := range tags {
			if !strings.HasPrefix(text[start:], "<"+tag.name+">") {
				continue
			}
			closing := "</" + tag.name + ">"
			if length := strings.Index(text[start:], closing); length >= 0 {
				return tag.kind, start, start + length + len(closing)
			}
			return tag.kind, start, len(text)
		}
	}
	return otherText, len(text), len(text)
}
