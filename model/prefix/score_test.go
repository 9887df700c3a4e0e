package prefix

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// random makes rows that branch off each other, with some of their tokens scored.
func random(source *rand.Rand) []Row {
	grown, own := grow(source)
	var rows []Row
	for k, ids := range grown {
		if len(ids) < 2 {
			continue
		}
		first := min(own[k]+1, len(ids)-1)
		row := Row{ScoreRow: model.ScoreRow{IDs: ids, Positions: []int32{int32(first)}}, Temperature: []float64{0.5, 1}[source.IntN(2)]}
		for at := first + 1; at < len(ids); at++ {
			if source.IntN(2) > 0 {
				row.Positions = append(row.Positions, int32(at))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// group is a question: its trajectories, and for each of the last turns of each a context behind
// which an answer is scored, and one of the memory alone.
func group(source *rand.Rand, members, turns, length int) []Row {
	tokens := func(n int) []int32 {
		ids := make([]int32, n)
		for k := range ids {
			ids[k] = int32(source.IntN(1000))
		}
		return ids
	}
	prompt, answer := tokens(length), tokens(4)
	var rows []Row
	for range members {
		whole := slices.Clone(prompt)
		trajectory := Row{Temperature: 0.8}
		for turn := range turns {
			if turn > 0 {
				for _, context := range [][]int32{whole, slices.Concat(prompt, tokens(3))} {
					at := int32(len(context)) + 1
					rows = append(rows, Row{model.ScoreRow{IDs: slices.Concat(context, answer), Positions: []int32{at, at + 1, at + 2}}, 1})
				}
			}
			for range length {
				trajectory.Positions = append(trajectory.Positions, int32(len(whole)))
				whole = append(whole, tokens(1)...)
			}
			whole = append(whole, tokens(length)...)
		}
		trajectory.IDs = whole
		rows = append(rows, trajectory)
	}
	return rows
}

// mustScore scores rows and checks the result and that nothing stays open.
func mustScore(t *testing.T, session *fakeSession, rows []Row, budget int) {
	t.Helper()
	finished := 0
	got, err := Score(context.Background(), session, rows, budget, func(n int) { finished += n })
	if err != nil {
		t.Fatal(err)
	}
	if want := alone(rows); len(rows) > 0 && !reflect.DeepEqual(got, want) {
		t.Fatalf("budget %d: %v, want %v", budget, got, want)
	}
	if len(session.rows) != 0 || finished != len(rows) {
		t.Fatalf("%d rows are open, %d of %d were finished", len(session.rows), finished, len(rows))
	}
}

// longestPath is the most tokens that stand before one row, itself included. Each of two cuts of a
// node may repeat a token.
func longestPath(rows []Row) int {
	ids, own := sequences(rows)
	nodes := Build(ids, own)
	longest, depth := 0, make([]int, len(nodes))
	for k, n := range nodes {
		depth[k] = 1
		if n.Parent >= 0 {
			depth[k] += depth[n.Parent]
		}
		longest = max(longest, len(ids[n.Row])+2*depth[k])
	}
	return longest
}

func TestScoresOfRowsAlone(t *testing.T) {
	for seed := range uint64(3000) {
		source := rand.New(rand.NewPCG(2, seed))
		rows := random(source)
		budget := 1 + source.IntN(40)
		session := newFakeSession(t)
		mustScore(t, session, rows, budget)
		if session.largest > max(2, budget) {
			t.Fatalf("seed %d: a call of %d tokens, the budget is %d", seed, session.largest, budget)
		}
		if most := budget + longestPath(rows); session.mostKept > most {
			t.Fatalf("seed %d: %d tokens were kept, with a budget of %d they may be %d", seed, session.mostKept, budget, most)
		}
		shared, naive := Tokens(rows)
		whole := newFakeSession(t)
		mustScore(t, whole, rows, 1<<20)
		if whole.computed < shared || whole.computed > shared+2*len(rows) || shared > naive {
			t.Fatalf("seed %d: %d tokens were computed, the tree has %d, the rows have %d", seed, whole.computed, shared, naive)
		}
	}
}

// Without room for the budget Score goes on with less.
func TestOutOfMemoryHalvesTheWork(t *testing.T) {
	for seed := range uint64(1000) {
		source := rand.New(rand.NewPCG(3, seed))
		rows := random(source)
		session := newFakeSession(t)
		session.room = 2 + source.IntN(6)
		mustScore(t, session, rows, 64)
		if session.largest > session.room {
			t.Fatalf("seed %d: a call of %d tokens, room for %d", seed, session.largest, session.room)
		}
	}
	session := newFakeSession(t)
	session.room = 1
	_, err := Score(context.Background(), session, group(rand.New(rand.NewPCG(3, 0)), 3, 3, 8), 64, nil)
	if !errors.Is(err, model.ErrOutOfMemory) || session.tightest > 2 || len(session.rows) > 0 {
		t.Errorf("%v, given up at %d tokens, %d rows are open", err, session.tightest, len(session.rows))
	}
}

// Where there is no room for as many rows, what is open is finished first.
func TestFewRows(t *testing.T) {
	rows := group(rand.New(rand.NewPCG(4, 0)), 5, 4, 8)
	for limit := 2; limit < 8; limit++ {
		session := newFakeSession(t)
		session.rowLimit = limit
		mustScore(t, session, rows, 4096)
	}
	session := newFakeSession(t)
	session.rowLimit = 1
	if _, err := Score(context.Background(), session, rows, 4096, nil); !errors.Is(err, model.ErrOutOfMemory) || len(session.rows) > 0 {
		t.Errorf("%v, %d rows are open", err, len(session.rows))
	}
}

// Prompts, trajectories, branches: three calls, of however many questions; each token once.
func TestQuestionsShareCalls(t *testing.T) {
	source := rand.New(rand.NewPCG(5, 0))
	rows := slices.Concat(group(source, 4, 3, 10), group(source, 4, 3, 10), group(source, 4, 3, 10))
	session := newFakeSession(t)
	mustScore(t, session, rows, 1<<20)
	if want := []int{3, 3 * 4, 3 * (4 + 8 + 8)}; !slices.Equal(session.perCall, want) {
		t.Errorf("calls of %v pieces, want %v", session.perCall, want)
	}
	// A prompt; members with the prompt's last token, five stretches (the result of the last turn is
	// not asked for) and one token twice; answers behind contexts and behind memories.
	if want := 3 * (9 + 4*(1+50+1) + 8*4 + 8*(3+4)); session.computed != want {
		t.Errorf("%d tokens were computed, want %d", session.computed, want)
	}
}

// The example of the method: 16 trajectories of 5 turns.
func TestTokensOfTheExample(t *testing.T) {
	next := int32(0)
	fresh := func(n int) []int32 {
		ids := make([]int32, n)
		for k := range ids {
			next++
			ids[k] = next
		}
		return ids
	}
	prompt, answer := fresh(600), fresh(8)
	behind := func(ids []int32, n int) []int32 { // positions of the last n
		positions := make([]int32, n)
		for k := range positions {
			positions[k] = int32(len(ids) - n + k)
		}
		return positions
	}
	var rows []Row
	for range 16 {
		whole := slices.Clone(prompt)
		for turn := range 5 {
			if turn > 0 {
				whole = append(whole, fresh(500)...)
				for _, context := range [][]int32{whole, slices.Concat(prompt, fresh(60))} {
					ids := slices.Concat(context, answer)
					rows = append(rows, Row{model.ScoreRow{IDs: ids, Positions: behind(ids, 8)}, 1})
				}
			}
			whole = append(whole, fresh(200)...)
		}
		rows = append(rows, Row{model.ScoreRow{IDs: whole, Positions: behind(whole, 3000)}, 1})
	}
	shared, naive := Tokens(rows)
	// The last token of each full context is also computed by the branch behind it, that of the prompt by each trajectory.
	if want := 600 + 16*(3000+4*8+4*68) + 15 + 16*4; shared != want || naive != 16*(3600+4*668+1308+2008+2708+3408) {
		t.Errorf("%d tokens shared, %d whole; the tree has %d", shared, naive, want)
	}
}

// A group that is larger than the budget is cut along the tree: hardly a token is computed twice.
func TestALargeGroupIsCut(t *testing.T) {
	rows := group(rand.New(rand.NewPCG(6, 0)), 16, 6, 20)
	shared, _ := Tokens(rows)
	budget := shared / 8
	session := newFakeSession(t)
	mustScore(t, session, rows, budget)
	if session.mostKept > budget || session.computed > shared+3*16 {
		t.Errorf("%d tokens were kept, %d computed; the budget is %d, the tree has %d", session.mostKept, session.computed, budget, shared)
	}
}

// Whatever breaks, and wherever, no row stays open.
func TestBrokenOff(t *testing.T) {
	rows := group(rand.New(rand.NewPCG(7, 0)), 3, 3, 6)
	whole := newFakeSession(t)
	mustScore(t, whole, rows, 30)
	broken := errors.New("broken")
	for action := 1; action <= whole.actions; action++ {
		session := newFakeSession(t)
		session.refuse = func(n int) error {
			if n == action {
				return broken
			}
			return nil
		}
		if scores, err := Score(context.Background(), session, rows, 30, nil); !errors.Is(err, broken) || scores != nil || len(session.rows) != 0 {
			t.Fatalf("action %d: %v, %d rows are open", action, err, len(session.rows))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	session := newFakeSession(t)
	session.refuse = func(n int) error {
		if n == 4 {
			cancel()
		}
		return nil
	}
	if _, err := Score(ctx, session, rows, 30, nil); !errors.Is(err, context.Canceled) || len(session.rows) != 0 || session.actions > 10 {
		t.Errorf("%v after %d actions, %d rows are open", err, session.actions, len(session.rows))
	}
}

func TestRowsThatCannotBeScored(t *testing.T) {
	good := Row{model.ScoreRow{IDs: []int32{1, 2}, Positions: []int32{1}}, 1}
	for _, positions := range [][]int32{nil, {0}, {2}, {2, 1}} {
		bad := Row{model.ScoreRow{IDs: []int32{1, 2}, Positions: positions}, 1}
		if _, err := Score(context.Background(), newFakeSession(t), []Row{good, bad}, 8, nil); err == nil || !strings.Contains(err.Error(), "row 1 has 2 tokens") {
			t.Errorf("positions %v: %v", positions, err)
		}
	}
}
