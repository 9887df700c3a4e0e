package chat

import (
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// The tags that a tool result stands between.
const (
	OpenInformation  = "<information>\n"
	CloseInformation = "\n</information>"
)

// Information is the pieces of a tool result: its tags are trusted, what came from outside never is.
func Information(inner string) []tokenizer.Segment {
	return []tokenizer.Segment{
		{Text: OpenInformation, Trusted: true},
		{Text: inner},
		{Text: CloseInformation, Trusted: true},
	}
}

// informationIn is what stands between the tags of a tool result; ok is false for another text.
func informationIn(text string) (inner string, ok bool) {
	rest, opened := strings.CutPrefix(text, OpenInformation)
	inner, closed := strings.CutSuffix(rest, CloseInformation)
	return inner, opened && closed
}
