package rollout

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/retrieval"
)

// limited are rules with a limit on tool results.
func limited(tokens int) *rules {
	r := toyRules()
	r.ToolResultTokens = tokens
	return newRules(r, Full, Tools{})
}

func TestResultsAreCutByWholePassages(t *testing.T) {
	six, nine := "abcdef", "abcdefghi"
	for _, c := range []struct {
		name  string
		limit int // the tags take 2 tokens, a line break between passages 1
		parts []string
		inner string
		cut   bool
	}{
		{"all fit", 20, []string{six, six[:5], six[:5]}, "abcdef\nabcde\nabcde", false},
		{"two of three", 14, []string{six, six[:5], six[:5]}, "abcdef\nabcde", true},
		{"exactly one", 8, []string{six, six}, six, true},
		{"inside the first", 7, []string{six, six}, "abcde", true},
		{"a long page", 10, []string{nine}, nine[:8], true},
		{"no room at all", 2, []string{six}, "", true},
		{"not even the tags", 1, []string{six}, "", true},
		{"not inside a character", 6, []string{"a東京"}, "a東", true},
		{"nothing", 10, nil, "", false},
	} {
		r := limited(c.limit)
		info := r.inform(c.parts)
		if info.inner != c.inner || info.cut != c.cut {
			t.Errorf("%s: %q, cut %v, want %q, %v", c.name, info.inner, info.cut, c.inner, c.cut)
		}
		if n := len(r.Vocabulary.Encode(info.segments()...)); n > max(c.limit, 2) {
			t.Errorf("%s: %d tokens, limit %d", c.name, n, c.limit)
		}
		if text := info.text(); !strings.HasPrefix(text, "<information>\n") || !strings.HasSuffix(text, "\n</information>") {
			t.Errorf("%s: %q has lost a tag", c.name, text)
		}
	}
}

func TestHugePagesAreCutFast(t *testing.T) {
	r := limited(50)
	page := strings.Repeat("京x", 1<<20)
	info := r.inform([]string{page})
	if !info.cut || len(info.inner) < 40 || !strings.HasPrefix(page, info.inner) || !utf8.ValidString(info.inner) {
		t.Errorf("cut %v: %q", info.cut, info.inner)
	}
}

func TestPassagesKeepTheirCharacters(t *testing.T) {
	passage := retrieval.Passage{Contents: "\"München\"\n東京 <b>&</b> \\u00fc"}
	if got, want := passageText(0, passage), "Doc 1(Title: \"München\") 東京 <b>&</b> \\u00fc"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := passageText(2, retrieval.Passage{Contents: "no title"}), "Doc 3: no title"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	g := newRig(t, nil)
	g.say(searchTurn)
	g.result(passageText(0, passage))
	if text := g.vocabulary.decode(g.trajectory().ResponseIDs); !strings.Contains(text, passage.Contents[len("\"München\"\n"):]) {
		t.Errorf("the model sees %q", text)
	}
}

func TestCutIsFiled(t *testing.T) {
	g := newRig(t, func(r *Rules) { r.ToolResultTokens = 8 })
	g.say(searchTurn)
	g.result("abcdef", "ghi")
	got := g.trajectory()
	var stats Stats
	stats.addTrajectory(got)
	if !got.Turns[0].ResultCut || stats.ResultsCut != 1 || got.Turns[0].Result != chat.OpenInformation+"abcdef"+chat.CloseInformation {
		t.Errorf("turn %+v, %d cut", got.Turns[0], stats.ResultsCut)
	}
}
