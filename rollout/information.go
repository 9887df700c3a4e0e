package rollout

import (
	"fmt"
	"strings"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/retrieval"
)

// information is a tool result that keeps its token limit.
type information struct {
	parts []string
	inner string // the parts, one below the other
	cut   bool
}

func (i information) text() string { return chat.OpenInformation + i.inner + chat.CloseInformation }

// segments trust the tags, never what came from outside.
func (i information) segments() []tokenizer.Segment { return chat.Information(i.inner) }

// inform puts parts one below the other. Over ToolResultTokens, tags included, whole parts are cut
// from the end; if not even the first fits, it is cut inside. The tags stay in any case.
func (r *rules) inform(parts []string) information { return r.informWithin(parts, r.ToolResultTokens) }

// informWithin is inform with a limit of its own.
func (r *rules) informWithin(parts []string, limit int) information {
	for n := len(parts); n > 0; n-- {
		info := information{parts: parts[:n], inner: strings.Join(parts[:n], "\n"), cut: n < len(parts)}
		if r.fits(info, limit) {
			return info
		}
	}
	if len(parts) == 0 {
		return information{}
	}
	first := r.shorten(parts[0], limit)
	return information{parts: []string{first}, inner: first, cut: true}
}

// fits reports whether the result keeps a limit. A text longer than that many of the longest
// tokens is not encoded to find out.
func (r *rules) fits(info information, limit int) bool {
	return len(info.inner) <= limit*r.maxTokenBytes && r.tokens(info) <= limit
}

// tokens is the length of the result, tags included.
func (r *rules) tokens(info information) int { return len(r.Vocabulary.Encode(info.segments()...)) }

// shorten returns the longest beginning of text, in whole tokens of its own encoding and whole
// characters, that fits a limit; "" when nothing does.
func (r *rules) shorten(text string, limit int) string {
	limit = max(limit, 0)
	ids := r.Vocabulary.EncodePlain(text[:min(len(text), limit*r.maxTokenBytes)])
	ids = ids[:min(len(ids), limit)]
	var bytes []byte
	ends := make([]int, len(ids))
	for k, id := range ids {
		token, _ := r.Vocabulary.TokenBytes(id)
		bytes = append(bytes, token...)
		ends[k] = len(bytes)
	}
	for k := len(ids) - 1; k >= 0; k-- {
		info := information{inner: strings.ToValidUTF8(string(bytes[:ends[k]]), "")}
		if r.fits(info, limit) {
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
