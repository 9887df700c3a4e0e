package rollout

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// leastBudget is the number of tokens of whole pages that hold a question's prompt and one trajectory of any length.
func leastBudget(t *testing.T, o Options, drawn []Drawn, pageTokens int) int {
	t.Helper()
	pages := 0
	for _, d := range drawn {
		prompt, err := o.Format.Prompt(d.Question.Text)
		if err != nil {
			t.Fatal(err)
		}
		longest := len(prompt) + o.MaxResponseTokens
		if o.Context == Limited {
			longest += 16
		}
		longest = min(longest, o.ContextLength-len("Ada"))
		own := (longest+pageTokens-1)/pageTokens - (len(prompt)-1)/pageTokens
		pages = max(pages, own+(len(prompt)-1+pageTokens-1)/pageTokens)
	}
	return pages * pageTokens
}

// budgeted is a random run.
func budgeted(rng *rand.Rand, round int) (o Options, drawn []Drawn, pageTokens int) {
	o = toyOptions(1 + rng.IntN(6))
	o.Seed = uint64(round)
	o.Context = []Context{Full, Limited}[round%2]
	o.MaxTurns, o.MaxTurnTokens = 1+rng.IntN(6), 20+rng.IntN(60)
	o.MaxResponseTokens, o.ContextLength = 60+rng.IntN(300), 150+rng.IntN(300)
	o.ToolResultTokens = 2 + rng.IntN(30)
	o.CorrectNoAction = true
	v, _ := o.Vocabulary.(*toyVocabulary)
	o.Format = toyFormat{v, strings.Repeat("s", rng.IntN(60))}
	return o, questions(1 + rng.IntN(4)), []int{1, 4, 16}[rng.IntN(3)]
}

// Whatever the budget, from the least one up, every token is drawn with the same seed behind the same
// tokens, nothing is computed twice but what is counted as such, and no forward pass finds the
// cache full.
func TestNoBudgetChangesWhatIsSampled(t *testing.T) {
	putAside, measures := 0, 0
	for round := range 40 {
		rng := rand.New(rand.NewPCG(uint64(round), 5))
		o, drawn, pageTokens := budgeted(rng, round)
		free := newFakePolicy(t, o, drawn, someTurns)
		groups, stats := run(t, free, o, drawn, searchTools(echo))
		want, once := texts(groups), stats.ForwardTokens
		if stats.PutAside != 0 || stats.ReencodedTokens != 0 {
			t.Errorf("without a budget %d are put aside, %d tokens encoded again", stats.PutAside, stats.ReencodedTokens)
		}
		least := leastBudget(t, o, drawn, pageTokens)
		told := LeastCacheTokens(len(groups[0].Trajectories[0].PromptIDs), o.Limits)
		if told < least || told > least+100 {
			t.Errorf("the least budget is %d, told is %d", least, told)
		}
		for _, tokens := range []int{least, least + pageTokens, told, 2 * least, 4 * least} {
			o.CacheTokens, o.BatchTokens, o.MaxRows = tokens, 1+rng.IntN(60), []int{0, 1, 4}[rng.IntN(3)]
			o.Schedule = []Schedule{Fixed, Eager}[rng.IntN(2)]
			name := fmt.Sprintf("round %d, %s, %s, %d tokens of at least %d in pages of %d", round, o.Context, o.Schedule, tokens, least, pageTokens)
			w := watch(t, &o)
			p := newFakePolicy(t, o, drawn, someTurns)
			p.pageTokens = pageTokens
			groups, stats := run(t, p, o, drawn, searchTools(leisurely))
			if !slices.Equal(texts(groups), want) || !maps.Equal(p.contexts, free.contexts) {
				t.Errorf("%s: other trajectories", name)
			}
			if o.MaxRows > 0 && p.busiest > o.MaxRows {
				t.Errorf("%s: %d members in a pass, at most %d are allowed", name, p.busiest, o.MaxRows)
			}
			if p.refused > 0 || p.peakUse > p.limit || p.pages != 0 {
				t.Errorf("%s: %d steps found the cache full, %d pages at most, %d at the end", name, p.refused, p.peakUse, p.pages)
			}
			if stats.ForwardTokens-stats.ReencodedTokens != once {
				t.Errorf("%s: %d tokens forwarded, %d of them again (%d put aside), want %d once", name, stats.ForwardTokens, stats.ReencodedTokens, stats.PutAside, once)
			}
			if len(w.seen) != len(w.asked) {
				t.Errorf("%s: %d of %d were measured", name, len(w.seen), len(w.asked))
			}
			putAside += stats.PutAside
			measures += len(w.seen)
		}
	}
	if putAside < 500 || measures < 500 {
		t.Errorf("%d put aside, %d measured", putAside, measures)
	}
}

// The whole order of things is a function of seeds and token counts under Fixed.
func TestTheFixedScheduleRepeatsWithinABudget(t *testing.T) {
	for _, context := range []Context{Full, Limited} {
		fixedBudgetsRepeat(t, context, 0)
		fixedBudgetsRepeat(t, context, 3)
	}
}

func fixedBudgetsRepeat(t *testing.T, context Context, maxRows int) {
	t.Helper()
	drawn := questions(3)
	var first string
	for round := range 4 {
		o := toyOptions(4)
		o.Context, o.MaxRows, o.BatchTokens, o.MaxResponseTokens = context, maxRows, 20, 200
		o.CacheTokens = leastBudget(t, o, drawn, 4) + 120
		watch(t, &o)
		tools := searchTools(leisurely)
		tools.Concurrency = 1 + round
		p := newFakePolicy(t, o, drawn, someTurns)
		groups, stats := run(t, p, o, drawn, tools)
		text := fmt.Sprint(texts(groups), p.batchText(), p.scored, stats.PutAside, stats.ReencodedTokens)
		if round == 0 {
			first = text
		}
		if text != first || stats.PutAside == 0 {
			t.Errorf("%s: the run does not repeat, or puts nothing aside (%d)", context, stats.PutAside)
		}
	}
}

// The oldest trajectory never gives up its row, so it runs as if it were alone.
func TestTheOldestTrajectoryIsNeverPutAside(t *testing.T) {
	o := toyOptions(6)
	o.MaxResponseTokens = 200
	drawn := questions(2)
	o.CacheTokens = leastBudget(t, o, drawn, 4)
	var ended []string
	o.OnEnd = func(g *Group, t *Trajectory) { ended = append(ended, fmt.Sprint(g.Question.ID, " ", t.Member)) }
	p := newFakePolicy(t, o, drawn, func(k SeedKey) string { return strings.Repeat("x", 60) + twoTurns(k) })
	groups, stats := run(t, p, o, drawn, searchTools(echo))
	if valid(groups) != 12 || stats.PutAside == 0 || ended[0] != "q0 0" {
		t.Errorf("%d did not fail, %d put aside, ended in the order %v", valid(groups), stats.PutAside, ended)
	}
	if most := groups[0].Trajectories[0]; stats.ReencodedTokens > 12*len(most.FullIDs()) {
		t.Errorf("%d tokens are encoded again for trajectories of %d", stats.ReencodedTokens, len(most.FullIDs()))
	}
}

func TestABudgetBelowOneTrajectoryIsRefused(t *testing.T) {
	o := toyOptions(2)
	o.MaxResponseTokens = 100
	drawn := questions(2)
	least := leastBudget(t, o, drawn, 4)
	for _, tokens := range []int{1, least - 4} {
		o.CacheTokens = tokens
		p := newFakePolicy(t, o, drawn, twoTurns)
		_, _, err := Run(t.Context(), p, drawn, o, searchTools(echo))
		if fault.Code(err) != 2 || !strings.Contains(err.Error(), fmt.Sprintf("needs at least %d", least)) || !strings.Contains(err.Error(), `question "q0"`) || !p.closed {
			t.Errorf("%d tokens: %v", tokens, err)
		}
	}
}

// Runs in which the question that goes on in any case has to get its prompt back while others, put
// aside or not begun, have theirs and wait for the same places.
func TestTheForemostQuestionAlwaysGoesOn(t *testing.T) {
	for _, seed := range []uint64{516, 748, 960, 1000, 1052} {
		rng := rand.New(rand.NewPCG(seed, 11))
		o, _, pageTokens := budgeted(rng, int(seed))
		o.GroupSize, o.MaxRows, o.BatchTokens, o.MaxTurns = 2+rng.IntN(4), 1+rng.IntN(3), 1+rng.IntN(60), 3+rng.IntN(4)
		drawn := questions(3 + rng.IntN(4))
		o.CacheTokens = leastBudget(t, o, drawn, pageTokens) + rng.IntN(60)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		p := newFakePolicy(t, o, drawn, someTurns)
		p.pageTokens = pageTokens
		groups, stats, err := Run(ctx, p, drawn, o, searchTools(echo))
		cancel()
		if err != nil || valid(groups) != len(drawn)*o.GroupSize || stats.PutAside == 0 {
			t.Errorf("seed %d: %v, %d put aside", seed, err, stats.PutAside)
		}
	}
}
