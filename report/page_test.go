package report

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mempo-train/mempo-train/rollout"
)

// seenBlock is a block as the page's script reads it.
type seenBlock struct {
	Questions []struct {
		ID, Text, Prompt string
		Golden           [][]string
	}
	Trajectories []struct {
		Question int
		Answer   *string
		Turns    []struct {
			Parts []struct {
				Kind       string
				Texts      []string
				Advantages []*float64
			}
		}
	}
}

func unpacked(t testing.TB, c *compressed) (b seenBlock) {
	t.Helper()
	reader, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(c.data)))
	must(t, err)
	data, err := io.ReadAll(reader)
	must(t, err)
	must(t, json.Unmarshal(data, &b))
	return b
}

// written makes a report and reads it.
func written(t testing.TB, dir string) string {
	t.Helper()
	path, err := Write(dir)
	must(t, err)
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

// seenOverview is what a page says of itself.
type seenOverview struct {
	Name      string
	Notes     []string
	Config    string
	Settings  []setting
	Headlines []struct {
		Name        string
		First, Last float64
		From, To    int64
	}
	Steps  []int64
	Charts []struct {
		Section, Title string
		Curves         []struct {
			Name   string
			At     []int
			Values []*float64
		}
	}
	Events  []event
	Results any
	Blocks  []struct {
		Name  string
		Step  int64
		Count int
		Score *float64
		Scale float64
	}
}

var overviewElement = regexp.MustCompile(`(?s)<script type="application/json" id="overview">(.*?)</script>`)

func overviewOf(t testing.TB, page string) (o seenOverview) {
	t.Helper()
	match := overviewElement.FindStringSubmatch(page)
	if match == nil {
		t.Fatal("the page has no overview")
	}
	must(t, json.Unmarshal([]byte(match[1]), &o))
	return o
}

// The page asks for nothing: its policy allows its own script and style by their hashes and no
// address at all, and it names none.
func TestThePageNeedsNothing(t *testing.T) {
	page := written(t, makeRun(t, shape{steps: 1, questions: 1, group: 2, turns: 2, text: ordinary}))
	policy := regexp.MustCompile(`<meta http-equiv="Content-Security-Policy" content="([^"]*)">`).FindStringSubmatch(page)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(page)
	script := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindStringSubmatch(page)
	if policy == nil || style == nil || script == nil {
		t.Fatal("policy, style or script is missing")
	}
	want := "default-src 'none'; img-src data:; style-src " + hash(style[1]) + "; script-src " + hash(script[1]) + "; base-uri 'none'; form-action 'none'"
	if policy[1] != want {
		t.Errorf("policy %s\nwant   %s", policy[1], want)
	}
	if strings.Index(page, policy[0]) > strings.Index(page, "<style>") {
		t.Error("the policy does not come first")
	}
	for _, address := range regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s"'<]*|\b(src|href)=["']?[^"' >]*|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(`).FindAllString(page, -1) {
		switch address {
		case "http://www.w3.org/2000/svg", "//www.w3.org/2000/svg", `href="data:,`, `href="#curves`, `href="#trajectories`:
		default:
			t.Errorf("the page has %q", address)
		}
	}
	for _, name := range scripts {
		text, err := pageFile(name)
		must(t, err)
		if lines := strings.Count(text, "\n"); lines > 400 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}

// nasty are texts that would break out of a page, or turn it round, if they could.
var nasty = []string{
	"</script><script>window.broken = 1</script>", "<!--<script>", "-->", "]]>", "<img src=x onerror='window.broken = 2'>", "&lt;b&gt;&amp;", "<b>bold</b>",
	"\u2028\u2029", "\u202egnol\u202c", "\u0000\u0001\u001b[31m", "שלום עולם", "\xff\xfe\xc3", "${window.broken = 3}", "'\"`\\", "javascript:window.broken=4",
	"<mem>", "</mem>", "<|im_end|>", "</style>", "__proto__", "e\u0301\u0301\u0301", "👩‍👩‍👧", "\ufeff", "\r\n\t", "%s%d", "{{.}}",
}

// hostile is a text of nasty pieces, at times a very long word.
func hostile(random *rand.Rand) string {
	var text strings.Builder
	for range 1 + random.IntN(5) {
		text.WriteString(nasty[random.IntN(len(nasty))])
		if random.IntN(8) == 0 {
			text.WriteString(strings.Repeat("x", 3000))
		}
	}
	return text.String()
}

// However hostile a run's texts are, what the page has of them is JSON without a '<', and base64; they
// come back as they went in.
func TestHostileTextStaysText(t *testing.T) {
	dir := makeRun(t, shape{steps: 2, questions: 3, group: 4, turns: 2, text: hostile})
	renamed := filepath.Join(filepath.Dir(dir), "<script>window.broken = 5</script>&\xff")
	renamed = strings.ReplaceAll(renamed, "</script>", "<\u2215script>") // a name has no slash
	must(t, os.Rename(dir, renamed))
	config, err := os.ReadFile(filepath.Join(renamed, "config.toml"))
	must(t, err)
	for _, text := range nasty {
		config = append(config, "# "+strings.NewReplacer("\n", "", "\r", "").Replace(text)+"\n"...)
	}
	must(t, os.WriteFile(filepath.Join(renamed, "config.toml"), config, 0o644))
	event, err := json.Marshal(map[string]any{"level": "warn", "msg": strings.Join(nasty, " ")})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(renamed, "log.jsonl"), append(event, '\n'), 0o644))
	page := written(t, renamed)
	if !utf8.ValidString(page) {
		t.Error("the page is not UTF-8")
	}
	style, _ := pageFile("page.css")
	body, _ := pageFile("body.html")
	script, _ := wholeScript()
	rest := page
	for _, own := range []string{style, body, script} {
		rest = strings.Replace(rest, own, "", 1)
	}
	rest = regexp.MustCompile(`<script type="text/plain" id="block-\d+">[A-Za-z0-9+/=]*</script>\n`).ReplaceAllString(rest, "")
	rest = regexp.MustCompile(`<script type="application/json" id="overview">[^<>&\x{2028}\x{2029}]*</script>\n`).ReplaceAllString(rest, "")
	title := regexp.MustCompile(`<title>([^<>]*)</title>`).FindStringSubmatch(rest)
	if title == nil || !strings.Contains(html.UnescapeString(title[1]), "<script>window.broken = 5") {
		t.Errorf("title %q", title)
	}
	rest = regexp.MustCompile(`<title>[^<>]*</title>`).ReplaceAllString(rest, "")
	for _, text := range nasty {
		if len(text) > 6 && text != "</style>" && strings.Contains(rest, text) {
			t.Errorf("%q stands in the page as it is", text)
		}
	}
	if strings.Count(rest, "</style>") != 1 {
		t.Error("a text ends the style")
	}
	if count := strings.Count(rest, "<script"); count != 1 {
		t.Errorf("%d scripts in what is left of the page:\n%s", count, rest)
	}
	if o := overviewOf(t, page); !strings.Contains(o.Events[0].Message, nasty[0]) || !strings.Contains(o.Config, nasty[0]) {
		t.Errorf("texts did not come back: %+v", o.Events)
	}
}

// What a record holds is what the script reads, but for bytes that are no UTF-8.
func TestBlocksKeepTheirTexts(t *testing.T) {
	dir := makeRun(t, shape{steps: 1, questions: 2, group: 2, turns: 2, text: hostile})
	f, err := openFolder(dir)
	must(t, err)
	blocks, err := f.compressTrajectories(trajectoryBytes)
	must(t, err)
	got := unpacked(t, blocks[0])
	data, err := os.ReadFile(filepath.Join(dir, "trajectories", "step_000001.jsonl"))
	must(t, err)
	for k, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var r rollout.Record
		must(t, json.Unmarshal([]byte(line), &r))
		trajectory := got.Trajectories[k]
		if question := got.Questions[trajectory.Question]; question.Text != r.Question && r.Member == 0 || question.Golden[0][0] != r.GoldenAnswers[0][0] || question.Prompt != r.Prompt {
			t.Errorf("question %+v, want %q", question, r.Question)
		}
		if *trajectory.Answer != *r.Answer {
			t.Errorf("answer %q, want %q", *trajectory.Answer, *r.Answer)
		}
		for n, turn := range trajectory.Turns {
			var text strings.Builder
			for _, p := range turn.Parts {
				if p.Kind != template && p.Kind != result {
					text.WriteString(strings.Join(p.Texts, ""))
				}
			}
			if text.String() != r.Turns[n].Text {
				t.Errorf("turn %d reads %q, want %q", n, text.String(), r.Turns[n].Text)
			}
		}
	}
}
