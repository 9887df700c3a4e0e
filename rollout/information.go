package rollout

import (
	"fmt"
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
)

// The tags a tool result comes in.
const (
	openInformation  = "<information>\n"
	closeInformation = "\n</information>"
)

// information is a tool result that keeps its token limit.
type information struct {
	inner string
	cut   bool
}

func (i information) text() string { return openInformation + i.inner + closeInformation }

// segments trust the tags, never what came from outside.
func (i information) segments() []tokenizer.Segment {
	return []tokenizer.Segment{
		{Text: openInformation, Trusted: true},
		{Text: i.inner},
		{Text: closeInformation, Trusted: true},
	}
}

// inform puts parts one below the other. Over ToolResultTokens, tags included, whole parts are cut
// from the end; if not even the first fits, it is cut inside. The tags stay in any case.
func (r *rules) inform(parts []string) information {
	for n := len(parts); n > 0; n-- {
		info := information{inner: strings.Join(parts[:n], "\n"), cut: n < len(parts)}
		if r.fits(info) {
			return info
		}
	}
	if len(parts) == 0 {
		return information{}
	}
	return information{inner: r.shorten(parts[0]), cut: true}
}

// fits reports whether the result keeps the limit. A text longer than that many of the longest
// tokens is not encoded to find out.
func (r *rules) fits(info information) bool {
	return len(info.inner) <= r.ToolResultTokens*r.maxTokenBytes &&
		len(r.Vocabulary.Encode(info.segments()...)) <= r.ToolResultTokens
}

// shorten returns the longest beginning of text, in whole tokens of its own encoding and whole
// characters, that fits; "" when nothing does.
func (r *rules) shorten(text string) string {
	ids := r.Vocabulary.EncodePlain(text[:min(len(text), r.ToolResultTokens*r.maxTokenBytes)])
	ids = ids[:min(len(ids), r.ToolResultTokens)]
	var bytes []byte
	ends := make([]int, len(ids))
	for k, id := range ids {
		token, _ := r.Vocabulary.TokenBytes(id)
		bytes = append(bytes, token...)
		ends[k] = len(bytes)
	}
	for k := len(ids) - 1; k >= 0; k-- {
		info := information{inner: strings.ToValidUTF8(string(bytes[:ends[k]]), "")}
		if r.fits(info) {
			return info.inner
		}
	}
	return ""
}

// passageText shows the passage found in place rank, counted from 0.
func passageText(rank int, passage retrieval.Passage) string {
	title, text, found := strings.Cut(passage.Contents, "\n")
	if !found {
		return fmt.Sprintf("Doc %d: %s", rank+1, passage.Contents)
	}
	return fmt.Sprintf("Doc %d(Title: %s) %s", rank+1, title, text)
}
