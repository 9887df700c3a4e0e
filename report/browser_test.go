//go:build browser

package report

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/rollout"
)

// madeUp writes a run and its report, and opens it.
func madeUp(t *testing.T, s shape) (b *tab, dir string) {
	t.Helper()
	dir = makeRun(t, s)
	path, err := Write(dir)
	must(t, err)
	return openTab(t, path), dir
}

// records are the trajectories of a step of one question.
func records(t *testing.T, dir string, step, q int) (found []*rollout.Record) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "trajectories", fmt.Sprintf("step_%06d.jsonl", step)))
	must(t, err)
	for line := range strings.Lines(string(data)) {
		var r rollout.Record
		must(t, json.Unmarshal([]byte(line), &r))
		if r.QuestionID == fmt.Sprintf("question-%d", q) {
			found = append(found, &r)
		}
	}
	return found
}

// A person picks a step, a question and a trajectory, and reads what the file of trajectories has.
func TestBrowserShowsTheTrajectoryThatIsPicked(t *testing.T) {
	b, dir := madeUp(t, shape{steps: 4, questions: 3, group: 16, turns: 3, text: ordinary})
	if got := b.text("#step-summary"); !strings.HasPrefix(got, "48 trajectories · mean score ") {
		t.Errorf("the newest step says %q", got)
	}
	b.click("#step-before", 0) // 4 → 3
	b.click("#step-before", 0) // 3 → 2
	b.wait("() => document.querySelector('#step').selectedOptions[0].text === 'step 2' && location.hash.includes('step_000002')")
	b.click(".question", 1)
	b.wait("() => location.hash === '#trajectories/step_000002/1/0'")
	b.click(".members .member", 6)
	b.wait("() => location.hash === '#trajectories/step_000002/1/6'")
	group := records(t, dir, 2, 1)
	b.checkGroup(group)
	b.checkTrajectory(group[6])
	b.click(".turn-over button", 1)
	b.wait("() => location.hash === '#trajectories/step_000002/1/7'")
	b.checkTrajectory(group[7])
	// Another step keeps the question; an address brings all of it back.
	b.click("#step-after", 0)
	b.wait("() => location.hash === '#trajectories/step_000003/1/0'")
	b.checkTrajectory(records(t, dir, 3, 1)[0])
	b.open("#trajectories/step_000001/2/15")
	b.checkTrajectory(records(t, dir, 1, 2)[15])
	b.open("#trajectories/%/x/-1") // no place at all
	b.checkTrajectory(records(t, dir, 4, 0)[0])
	b.open("#trajectories/step_000001/2/99")
	b.checkTrajectory(records(t, dir, 1, 2)[0])
	b.click("#group .link", 2) // "also in": steps 2, 3, 4
	b.wait("() => location.hash === '#trajectories/step_000004/2/0'")
	b.checkTrajectory(records(t, dir, 4, 2)[0])
}

// checkGroup holds the rows of a question against its trajectories.
func (b *tab) checkGroup(group []*rollout.Record) {
	b.Helper()
	rows := ask[[]string](b, "() => [...document.querySelectorAll('.members .member')].map(row => row.innerText)")
	if len(rows) != len(group) {
		b.Fatalf("%d rows of %d trajectories", len(rows), len(group))
	}
	for k, r := range group {
		outcome := map[rollout.Number]string{1: "+1", -1: "−1"}[r.Rewards["outcome_advantage"]]
		for _, want := range []string{fmt.Sprint(k + 1), fmt.Sprint(float64(*r.Score)), outcome, string(r.Stop), fmt.Sprint(len(r.ResponseIDs)), "+0.1", "+0.2", *r.Answer} {
			if !strings.Contains(rows[k], want) {
				b.Errorf("row %d is %q, without %q", k+1, rows[k], want)
			}
		}
	}
}

// checkTrajectory holds what is shown against a record: the text of every turn, the tints of its
// parts, the figures of its memories, what the tool said.
func (b *tab) checkTrajectory(r *rollout.Record) {
	b.Helper()
	type part struct{ Kind, Text, Tints string }
	turns := ask[[][]part](b, `() => [...document.querySelectorAll('.turn')].map(turn => [...turn.querySelectorAll('.part')].map(part => ({
		Kind: part.className.replace('part ', ''), Text: part.querySelector('.text').textContent,
		Tints: [...new Set([...part.querySelectorAll('.token')].map(token => token.className.replace(/ ?\b(token|line)\b ?/g, '').replace(/\d/, '')))].join(),
	})))`)
	if len(turns) != len(r.Turns) {
		b.Fatalf("%d turns are shown of %d", len(turns), len(r.Turns))
	}
	sign := func(k int) string {
		if r.Advantages[k] > 0 {
			return "p"
		}
		return "m"
	}
	for k, turn := range r.Turns {
		text := ""
		for _, p := range turns[k] {
			want := sign(turn.Tokens[1] - 1)
			switch p.Kind {
			case memory:
				want = sign(turn.Memory[0])
			case result:
				want = ""
				if p.Text != turn.Result {
					b.Errorf("the result reads %q, want %q", p.Text, turn.Result)
				}
			case template:
				want = ""
			}
			if want != "" {
				text += p.Text
			}
			if p.Tints != want {
				b.Errorf("turn %d: %s has the tints %q, want %q", k+1, p.Kind, p.Tints, want)
			}
		}
		if text != turn.Text {
			b.Errorf("turn %d reads %q, want %q", k+1, text, turn.Text)
		}
	}
	if got := b.text(".turn:nth-of-type(3) .memory-figures"); strings.Join(strings.Fields(got), " ") != "P full 0.250 P mem 0.450 difference +0.2 memory advantage "+map[bool]string{true: "+1", false: "−1"}[*r.Score == 1] {
		b.Errorf("the last memory says %q", got)
	}
	if got := b.text(".answers"); !strings.Contains(got, *r.Answer) || !strings.Contains(got, r.GoldenAnswers[0][0]) {
		b.Errorf("answers %q", got)
	}
}

// Pointing at a token tells its figures.
func TestBrowserTellsTheFiguresOfAToken(t *testing.T) {
	b, dir := madeUp(t, shape{steps: 1, questions: 1, group: 2, turns: 2, text: ordinary})
	b.click(".part.memory .token", 0)
	r := records(t, dir, 1, 0)[0]
	advantage := strings.Replace(fmt.Sprintf("%+.1f", r.Advantages[0]), "-", "−", 1)
	if got := b.text("#token-info"); !strings.HasPrefix(got, "“<mem>” · advantage "+advantage+" · log p −") {
		t.Errorf("the token says %q, its advantage is %s", got, advantage)
	}
}

func TestBrowserFinds(t *testing.T) {
	b, dir := madeUp(t, shape{steps: 3, questions: 2, group: 8, turns: 2, text: ordinary})
	right := map[int]int{}
	for step := 1; step <= 3; step++ {
		for q := range 2 {
			for _, r := range records(t, dir, step, q) {
				right[step] += int(*r.Score)
			}
		}
	}
	choose := "(id, value) => { const e = document.getElementById(id); e.value = value; e.dispatchEvent(new Event('change')); return true; }"
	found := func(want int) {
		t.Helper()
		b.wait("want => document.querySelector('#found b')?.textContent === String(want)", want)
		if hits := b.count(".hit"); hits != want {
			t.Errorf("%d hits are listed of %d", hits, want)
		}
	}
	ask[bool](b, choose, "find-score", "right")
	found(right[3])
	ask[bool](b, choose, "find-where", "all")
	found(right[1] + right[2] + right[3])
	ask[bool](b, choose, "find-stop", "max_turns")
	found(0)
	ask[bool](b, choose, "find-stop", "")
	ask[bool](b, choose, "find-score", "")
	found(48)
	b.click("#find-text", 0)
	word := strings.Fields(*records(t, dir, 2, 1)[5].Answer)
	ask[bool](b, "text => { document.getElementById('find-text').value = text; return true; }", strings.ToUpper(strings.Join(word, " ")))
	b.click("#find button[type=submit]", 0)
	b.wait("() => document.querySelectorAll('.hit').length > 0 && document.querySelectorAll('.hit').length < 48")
	b.click(".hit", 0)
	b.wait("text => document.querySelector('.answers').innerText.includes(text)", strings.Join(word, " "))
	b.click("#find-clear", 0)
	b.wait("() => document.querySelector('#found').hidden")
}

func TestBrowserCurves(t *testing.T) {
	b, _ := madeUp(t, shape{steps: 9, questions: 1, group: 1, turns: 1, text: ordinary})
	titles := ask[[]string](b, "() => [...document.querySelectorAll('.chart strong')].map(title => title.textContent)")
	for _, title := range []string{
		"Score in training", "Exact match in evaluation", "Memory reward", "Probability of the answer", "Tokens of a memory", "Deviation before normalising", "KL term",
		"Clipped tokens", "Entropy of a token", "Tokens of a response", "Turns", "Tokens a second by stage", "Seconds of a step by stage",
	} {
		if !slices.Contains(titles, title) {
			t.Errorf("there is no chart %q", title)
		}
	}
	paths := func(title string) []string {
		return ask[[]string](b, "title => [...[...document.querySelectorAll('.chart')].find(c => c.querySelector('strong').textContent === title).querySelectorAll('path')].map(p => p.getAttribute('d'))", title)
	}
	// Steps 3, 6 and 9 have no memory reward: three lines, of two points each.
	if got := paths("Memory reward"); len(got) != 1 || strings.Count(got[0], "M") != 3 || strings.Count(got[0], "L") != 3 {
		t.Errorf("the memory reward is %q", got)
	}
	// Evaluated every other step: one line.
	if got := paths("Exact match in evaluation"); len(got) != 2 || strings.Count(got[0], "M") != 1 || strings.Count(got[0], "L") != 3 {
		t.Errorf("evaluation is %q", got)
	}
	if strings.Contains(strings.Join(paths("Score in training"), ""), "NaN") {
		t.Error("a curve has no place")
	}
	// Pointing at the middle of one chart shows step 5 in all.
	ask[bool](b, `() => {
		const svg = document.querySelector('.chart svg'), box = svg.getBoundingClientRect();
		svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width * (52 + 170) / 400, clientY: box.top + 20 }));
		return true;
	}`)
	for _, at := range ask[[]string](b, "() => [...document.querySelectorAll('.chart .at')].map(at => at.textContent)") {
		if at != "step 5" {
			t.Errorf("a chart is at %q", at)
		}
	}
	if got := b.text(".chart .keys"); !strings.Contains(got, "score 0.800") {
		t.Errorf("the values are %q", got)
	}
}

// Nothing overlaps or sticks out, and every text has contrast, wide and narrow, light and dark: by
// the system, and by the button. Every tint is tried.
func TestBrowserCanBeRead(t *testing.T) {
	b, _ := madeUp(t, shape{steps: 12, questions: 8, group: 16, turns: 3, text: ordinary})
	b.checkLooks("ordinary")
}

func (b *tab) checkLooks(name string) {
	b.Helper()
	checks, err := os.ReadFile("testdata/looks.js")
	must(b.T, err)
	for _, width := range []int64{1280, 390} {
		for _, dark := range []bool{false, true} {
			b.look(width, dark)
			b.open("")
			b.picture(fmt.Sprintf("%s %d %v", name, width, dark))
			ask[bool](b, `() => {
				const home = document.querySelector('.turn .text');
				for (const sign of 'pm') for (let level = 1; level <= 6; level++) {
					const token = home.appendChild(document.createElement('span'));
					token.className = 'token ' + sign + level;
					token.textContent = 'tint ';
				}
				for (const details of document.querySelectorAll('details')) details.open = true;
				return true;
			}`)
			for _, check := range []string{"contrasts(4.5)", "collisions()"} {
				if bad := ask[[]string](b, "() => {"+string(checks)+"\nreturn "+check+";}"); len(bad) > 0 {
					b.Errorf("%s, %d pixels wide, dark %v: %d faults:\n%s", name, width, dark, len(bad), strings.Join(bad[:min(len(bad), 10)], "\n"))
				}
			}
		}
	}
}

func TestBrowserTheme(t *testing.T) {
	b, _ := madeUp(t, shape{steps: 1, questions: 1, group: 1, turns: 1, text: ordinary})
	colour := func() string { return ask[string](b, "() => getComputedStyle(document.body).backgroundColor") }
	light := colour()
	b.click("#theme", 0) // light
	if colour() != light {
		t.Error("light is not light")
	}
	b.click("#theme", 0) // dark
	dark := colour()
	if dark == light {
		t.Error("dark is light")
	}
	b.look(1280, true)
	if colour() != dark {
		t.Error("dark by the button is another dark")
	}
	b.click("#theme", 0) // as the system
	if colour() != dark {
		t.Error("the system's dark is not followed")
	}
}

// Hostile texts are shown as what they are, do nothing and spoil nothing.
func TestBrowserHostileText(t *testing.T) {
	b, dir := madeUp(t, shape{steps: 2, questions: 4, group: 4, turns: 3, text: hostile})
	unseen := regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x{202a}-\x{202e}\x{2028}\x{2029}\x{feff}]`)
	for q := range 4 {
		for member, r := range records(t, dir, 2, q) {
			b.open(fmt.Sprintf("#trajectories/step_000002/%d/%d", q, member))
			shown := ask[string](b, "() => document.querySelector('#trajectory').textContent")
			if unseen.MatchString(shown) {
				t.Errorf("a character that is not seen is in %q", unseen.FindString(shown))
			}
			for _, text := range nasty {
				if !unseen.MatchString(text) && strings.Contains(r.Turns[0].Text, text) && !strings.Contains(shown, text) {
					t.Errorf("%q is not shown", text)
				}
			}
		}
	}
	if broken := ask[string](b, "() => String(window.broken) + document.querySelectorAll('#browser img, #browser b b, #browser script').length"); broken != "undefined0" {
		t.Errorf("a text did something: %s", broken)
	}
	b.checkLooks("hostile")
}

// Five thousand trajectories: the first view, a step, a trajectory and a search come soon.
func TestBrowserFiveThousandTrajectories(t *testing.T) {
	short := func(random *rand.Rand) string { return fmt.Sprintf("copper %d", random.IntN(1000)) }
	for name, s := range map[string]shape{
		"in many steps": {steps: 40, questions: 8, group: 16, turns: 4, text: short},
		"in one step":   {steps: 1, questions: 5000, group: 1, turns: 4, text: short},
	} {
		t.Run(name, func(t *testing.T) {
			dir := makeRun(t, s)
			begin := time.Now()
			path, err := Write(dir)
			must(t, err)
			info, err := os.Stat(path)
			must(t, err)
			t.Logf("written in %v, %d KiB", time.Since(begin), info.Size()>>10)
			begin = time.Now()
			b := openTab(t, path)
			t.Logf("opened in %v", time.Since(begin))
			begin = time.Now()
			step := max(1, s.steps-1)
			if s.steps > 1 {
				b.click("#step-before", 0)
				b.wait("place => location.hash === place", fmt.Sprintf("#trajectories/step_%06d/0/0", step))
			}
			b.click(".question", 5)
			b.wait("place => location.hash === place", fmt.Sprintf("#trajectories/step_%06d/5/0", step))
			b.checkTrajectory(records(t, dir, step, 5)[0])
			ask[bool](b, "() => { document.getElementById('find-where').value = 'all'; document.getElementById('find-text').value = 'copper'; document.getElementById('find').requestSubmit(); return true; }")
			b.wait("want => document.querySelector('#found b')?.textContent === want.toLocaleString('en-US')", s.steps*s.questions*s.group)
			t.Logf("a step, a trajectory and a search in %v", time.Since(begin))
			if elements := b.count("*"); elements > 30000 {
				t.Errorf("the page has %d elements", elements)
			}
			if taken := time.Since(begin); taken > 30*time.Second {
				t.Errorf("it took %v", taken)
			}
		})
	}
}

// Trajectories of an evaluation have no advantages: their tokens have no tint, and are not hatched.
func TestBrowserShowsAnEvaluation(t *testing.T) {
	dir := makeRun(t, shape{steps: 1, questions: 3, group: 2, turns: 2, text: ordinary})
	path := filepath.Join(dir, "trajectories", "step_000001.jsonl")
	data, err := os.ReadFile(path)
	must(t, err)
	var lines []byte
	for line := range strings.Lines(string(data)) {
		var r rollout.Record
		must(t, json.Unmarshal([]byte(line), &r))
		r.Advantages = nil
		r.Turns[1].Context, r.Turns[1].ContextIDs = "what was seen", []int32{1, 2, 3}
		row, err := json.Marshal(r)
		must(t, err)
		lines = append(append(lines, row...), '\n')
	}
	must(t, os.WriteFile(filepath.Join(dir, "trajectories", "step_000000_limited.jsonl"), lines, 0o644))
	must(t, os.Remove(path))
	must(t, os.Remove(filepath.Join(dir, "metrics.jsonl")))
	must(t, (&eval.Results{Settings: map[string]any{"eval.samples": 2}, Contexts: []*eval.Result{{
		Context: rollout.Limited, Overall: eval.Figures{N: 3, EM: 0.25, PassAtK: []rollout.Number{0.25, 0.5}},
		Groups: []eval.Group{{By: eval.ByHops, Key: "2", Figures: eval.Figures{N: 3, EM: rollout.Number(math.NaN())}}},
	}}}).Write(filepath.Join(dir, "results.json")))
	report, err := Write(dir)
	must(t, err)
	b := openTab(t, report)
	if got := strings.Join(strings.Fields(b.text("#results tbody")), " "); !strings.HasPrefix(got, "limited all questions 3 0 0 0.250 ") || !strings.HasSuffix(got, " 0.250 0.500 limited hops 2 3 0 0 – 0 0.000 0.000 0 0 0 0 0.000 – –") {
		t.Errorf("the results are %q", got)
	}
	if tokens, masked, tinted := b.count(".token"), b.count(".token.masked"), b.count(".turn .p1, .turn .m1, .turn .m6"); tokens == 0 || masked+tinted > 0 {
		t.Errorf("%d tokens, %d of them masked, %d tinted", tokens, masked, tinted)
	}
	b.click(".part.memory .token", 0)
	if got := b.text("#token-info"); strings.Contains(got, "advantage") || !strings.HasPrefix(got, "“<mem>” · log p") {
		t.Errorf("a token says %q", got)
	}
	b.look(390, false)
	if height := ask[float64](b, "() => document.querySelector('#results tr').getBoundingClientRect().height"); height > 50 {
		t.Errorf("a row of the table is %v pixels high in a narrow window", height)
	}
	b.click(".context summary", 0)
	if got := b.text(".context"); got != "What this turn saw (3 tokens)\nwhat was seen" {
		t.Errorf("the context reads %q", got)
	}
	b.checkLooks("evaluation")
}

// Folders that lack something open without a complaint.
func TestBrowserOpensWhatThereIs(t *testing.T) {
	for _, missing := range []string{"trajectories", "metrics.jsonl", "config.toml", "log.jsonl", "../model"} {
		dir := makeRun(t, shape{steps: 2, questions: 2, group: 2, turns: 3, text: ordinary})
		must(t, os.RemoveAll(filepath.Join(dir, missing)))
		path, err := Write(dir)
		must(t, err)
		b := openTab(t, path)
		if got := b.text("#notes"); got == "" && missing != "log.jsonl" {
			t.Errorf("without %s there is no note", missing)
		}
		if missing == "../model" {
			b.checkTrajectory(records(t, dir, 2, 0)[0]) // parts have their tints all the same
		}
	}
}
