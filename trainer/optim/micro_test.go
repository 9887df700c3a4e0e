package optim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// tight learns and scores at most room tokens at a time. The gradient of an id is the weight of its tokens.
type tight struct {
	room     int
	passes   []int // tokens of each call
	gradient map[int32]float64
	taken    []map[int32]float64
	drops    int
}

func (l *tight) call(tokens int) error {
	l.passes = append(l.passes, tokens)
	if tokens > l.room {
		return fmt.Errorf("%w: %d tokens", model.ErrOutOfMemory, tokens)
	}
	return nil
}

func (l *tight) ForwardBackward(rows []model.TrainRow, _ model.LossOptions) (model.LossStats, error) {
	var stats model.LossStats
	tokens := 0
	for _, row := range rows {
		tokens += len(row.IDs)
		for k, position := range row.Positions {
			l.gradient[row.IDs[position]] += float64(row.Weights[k]) // what fails leaves half of it
			stats.NegativeLogLikelihood += float64(row.Weights[k])
		}
	}
	return stats, l.call(tokens)
}

func (l *tight) Update(float64, model.OptimizerOptions) (model.UpdateStats, error) {
	l.taken = append(l.taken, maps.Clone(l.gradient))
	clear(l.gradient)
	return model.UpdateStats{GradNorm: 1}, nil
}

func (l *tight) DropGradient() error {
	l.drops++
	clear(l.gradient)
	return nil
}

func (l *tight) Score(rows []model.ScoreRow, _ float64) ([]model.RowScores, error) {
	scores := make([]model.RowScores, len(rows))
	tokens := 0
	for k, row := range rows {
		tokens += len(row.IDs)
		scores[k].LogProbs = []float32{float32(row.IDs[0])}
	}
	return scores, l.call(tokens)
}

// rowsOf has a row of each length, whose tokens weigh powers of two: sums of them are exact.
func rowsOf(lengths ...int) []model.TrainRow {
	rows := make([]model.TrainRow, len(lengths))
	for k, n := range lengths {
		rows[k].IDs = make([]int32, n)
		for p := range n {
			rows[k].IDs[p] = int32((k + p) % 5)
			if p > 0 {
				rows[k].Positions, rows[k].Weights = append(rows[k].Positions, int32(p)), append(rows[k].Weights, 1/float32(int(1)<<(p%7)))
			}
		}
	}
	return rows
}

// Whatever the device has room for: either the step is that of the whole mini-batch, or there is none.
func TestMicroBatchesAreHalvedOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	halved, failed := 0, 0
	for range 500 {
		lengths := make([]int, 1+random.IntN(8))
		for k := range lengths {
			lengths[k] = 2 + random.IntN(9)
		}
		rows := rowsOf(lengths...)
		wanted, found := &tight{room: 1000, gradient: map[int32]float64{}}, &tight{room: 4 + random.IntN(40), gradient: map[int32]float64{}}
		all, m, through := MicroBatches{Tokens: 1000}, MicroBatches{Tokens: 1 + random.IntN(60)}, 0
		before := m.Tokens
		stats, _, err := all.Step(t.Context(), wanted, rows, 1, Options{}, func(int) {})
		if err != nil || all.News() != "" {
			t.Fatal(err)
		}
		got, _, err := m.Step(t.Context(), found, rows, 1, Options{}, func(n int) { through += n })
		tries := 1
		if m.Tokens != before {
			halved, tries = halved+1, 2
			if text := m.News(); !strings.Contains(text, fmt.Sprint("optimizer.micro_batch_tokens = ", m.Tokens)) || m.News() != "" {
				t.Errorf("told %q", text)
			}
		}
		if err != nil {
			failed++
			if !errors.Is(err, model.ErrOutOfMemory) || len(found.taken) > 0 || found.drops != tries {
				t.Fatalf("%v after %d steps, %d gradients dropped in %d tries", err, len(found.taken), found.drops, tries)
			}
			continue
		}
		if len(found.taken) != 1 || !maps.Equal(found.taken[0], wanted.taken[0]) || got != stats || found.drops != tries-1 {
			t.Fatalf("rows of %v with room for %d: gradient %v, want %v; %+v, want %+v", lengths, found.room, found.taken, wanted.taken[0], got, stats)
		}
		if through != len(rows) {
			t.Errorf("told of %d rows of %d", through, len(rows))
		}
	}
	if halved < 50 || failed < 50 || failed > 450 {
		t.Errorf("of 500 mini-batches %d were halved and %d failed", halved, failed)
	}
}

func TestWhatIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		lengths      []int
		tokens, room int
		passes       []int
		left         int // tokens from then on
		failure      string
	}{
		"all fits":             {[]int{4, 4, 4, 4}, 8, 8, []int{8, 8}, 8, ""},
		"half of it fits":      {[]int{4, 4, 4, 4}, 8, 4, []int{8, 4, 4, 4, 4}, 4, ""},
		"the second one":       {[]int{2, 2, 4, 4}, 8, 4, []int{8, 4, 4, 4}, 4, ""},
		"less than allowed":    {[]int{4, 4}, 100, 4, []int{8, 4, 4}, 4, ""},
		"half is too much":     {[]int{4, 4, 4, 4}, 16, 4, []int{16, 8}, 8, "micro-batches of 16 tokens, and at a second try of 8"},
		"a row is too much":    {[]int{2, 2, 9}, 4, 8, []int{4, 9, 2, 2, 9}, 2, "at a second try of 2"},
		"rows cannot be cut":   {[]int{9, 9}, 1, 8, []int{9}, 1, "out of device memory"},
		"long rows keep to it": {[]int{6, 2, 2}, 4, 6, []int{6, 4}, 4, ""},
	} {
		l, m := &tight{room: test.room, gradient: map[int32]float64{}}, MicroBatches{Tokens: test.tokens}
		_, _, err := m.Step(t.Context(), l, rowsOf(test.lengths...), 1, Options{}, func(int) {})
		if !slices.Equal(l.passes, test.passes) || m.Tokens != test.left {
			t.Errorf("%s: passes of %v tokens, want %v; %d tokens from then on, want %d", name, l.passes, test.passes, m.Tokens, test.left)
		}
		if (err == nil) != (test.failure == "") || err != nil && !strings.Contains(err.Error(), test.failure) {
			t.Errorf("%s: %v, want %q", name, err, test.failure)
		}
	}
}

func TestOtherErrorsAreNotTriedAgain(t *testing.T) {
	l, m := &tight{room: 1, gradient: map[int32]float64{}}, MicroBatches{Tokens: 100}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Step(ctx, l, rowsOf(4, 4), 1, Options{}, func(int) {}); !errors.Is(err, context.Canceled) || len(l.passes) > 0 || m.Tokens != 100 {
		t.Errorf("%v after passes of %v tokens", err, l.passes)
	}
}

func TestScoresWithoutRoomAreTakenInHalves(t *testing.T) {
	rows := make([]model.ScoreRow, 4)
	for k := range rows {
		rows[k].IDs = []int32{int32(k), 0, 0}
	}
	for room, want := range map[int][]int{12: {12}, 6: {12, 6, 6}, 5: {12, 6}} {
		l := &tight{room: room}
		scores, err := Score(l, rows, 1)
		if !slices.Equal(l.passes, want) || (err == nil) != (room >= 6) {
			t.Fatalf("room for %d: passes of %v tokens, want %v; %v", room, l.passes, want, err)
		}
		for k := range scores {
			if scores[k].LogProbs[0] != float32(k) {
				t.Errorf("room for %d: row %d has the scores of row %v", room, k, scores[k].LogProbs[0])
			}
		}
		if err == nil && len(scores) != len(rows) {
			t.Errorf("%d scores", len(scores))
		}
	}
	l := &tight{room: 2}
	if _, err := Score(l, rows[:1], 1); !errors.Is(err, model.ErrOutOfMemory) || len(l.passes) != 1 {
		t.Errorf("one row was tried %d times: %v", len(l.passes), err)
	}
}
