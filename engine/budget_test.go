//go:build shared

package engine

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/prefix"
)

// A group of 16 trajectories of 6 turns of 4,000 tokens, with its branches, is scored in a cache that holds a quarter of it.
func TestALargeGroupIsScoredWithinAQuarterOfItsMemory(t *testing.T) {
	const members, turns, turnTokens = 16, 6, 4000
	m := load(t, "qwen2-tiny", Options{})
	r := rand.New(rand.NewPCG(15, 16))
	vocab := m.Architecture.VocabSize
	prompt, answer := randomIDs(r, 300, vocab), randomIDs(r, 8, vocab)
	var rows []prefix.Row
	score := func(context []int32) {
		row := prefix.Row{ScoreRow: model.ScoreRow{IDs: append(append([]int32(nil), context...), answer...)}, Temperature: 1}
		for k := range answer {
			row.Positions = append(row.Positions, int32(len(context)+k))
		}
		rows = append(rows, row)
	}
	for range members {
		whole := append(append([]int32(nil), prompt...), randomIDs(r, turns*turnTokens, vocab)...)
		trajectory := prefix.Row{ScoreRow: model.ScoreRow{IDs: whole}, Temperature: 1}
		for at := len(prompt); at < len(whole); at++ {
			trajectory.Positions = append(trajectory.Positions, int32(at))
		}
		rows = append(rows, trajectory)
		for turn := 1; turn < turns; turn++ {
			at := len(prompt) + turn*turnTokens
			score(whole[:at])
			score(append(append([]int32(nil), prompt...), whole[at:at+60]...))
		}
	}
	shared, naive := prefix.Tokens(rows)
	t.Logf("%d tokens as a tree, %d as whole rows", shared, naive)
	s, err := m.NewSession(model.SessionOptions{CacheTokens: shared / 4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := m.ResetPeak(); err != nil {
		t.Fatal(err)
	}
	before, err := m.MemoryUsage()
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	got, err := prefix.Score(context.Background(), s, rows, shared/8, func(int) { most = max(most, s.Usage().Pages) })
	if err != nil {
		t.Fatal(err)
	}
	after, err := m.MemoryUsage()
	if err != nil {
		t.Fatal(err)
	}
	usage := s.Usage()
	if most > usage.Limit || usage.Pages != 0 {
		t.Errorf("at most %d pages were in use, and %d at the end, of %d", most, usage.Pages, usage.Limit)
	}
	t.Logf("at most %d of %d pages, %d MiB of the process beyond those before", most, usage.Limit, (after.Peak-before.Current)>>20)
	for _, k := range []int{0, 1, 2, 11, 10*15 + 15, len(rows) - 1} { // rows of the first, second and last trajectory
		want, err := m.Score([]model.ScoreRow{rows[k].ScoreRow}, 1)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "log-probs", got[k].LogProbs, want[0].LogProbs, 1e-4)
	}
}
