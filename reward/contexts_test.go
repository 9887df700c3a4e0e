package reward

import (
	"slices"
	"testing"

	"github.com/mempo-train/mempo-train/rollout"
)

// conversation is a trajectory of three turns. Ids below 10 are the prompt's, 10s the first turn's,
// 20s the second's, and so on; 90s are tools' and templates', 80s the prefill's.
func conversation() *rollout.Trajectory {
	return &rollout.Trajectory{
		PromptIDs:   []int32{1, 2, 3},
		ResponseIDs: []int32{80, 10, 11, 12, 90, 91, 80, 20, 21, 22, 23, 92, 80, 30, 31},
		Turns: []rollout.Turn{
			{Tokens: rollout.Span{Start: 0, End: 4}, HasMemory: true, Memory: rollout.Span{Start: 0, End: 2}, MemoryIDs: []int32{80, 10}},
			{Tokens: rollout.Span{Start: 6, End: 11}, HasMemory: true, Memory: rollout.Span{Start: 6, End: 9}, MemoryIDs: []int32{80, 20, 70}}, // its last token was cut
			{Tokens: rollout.Span{Start: 12, End: 15}, HasMemory: true, Memory: rollout.Span{Start: 13, End: 15}, MemoryIDs: []int32{30, 31}},  // behind something else
		},
	}
}

func TestMemoryPairsHoldTheTwoContexts(t *testing.T) {
	pairs := MemoryPairs(conversation(), []int32{60}, []int32{50, 51})
	want := []struct {
		turn         int
		full, memory []int32
	}{
		// The full context ends before the turn, its prefill included.
		{1, []int32{1, 2, 3, 80, 10, 11, 12, 90, 91}, []int32{1, 2, 3, 80, 20, 70}},
		{2, []int32{1, 2, 3, 80, 10, 11, 12, 90, 91, 80, 20, 21, 22, 23, 92}, []int32{1, 2, 3, 30, 31}},
	}
	if len(pairs) != len(want) {
		t.Fatalf("%d pairs, want %d: the first turn has none", len(pairs), len(want))
	}
	for k, pair := range pairs {
		if pair.Turn != want[k].turn {
			t.Errorf("pair %d is of turn %d, want %d", k, pair.Turn, want[k].turn)
		}
		checkRow(t, pair.Full.IDs, pair.Full.Positions, want[k].full)
		checkRow(t, pair.Memory.IDs, pair.Memory.Positions, want[k].memory)
	}
}

// checkRow wants the context, the prefix and the answer, of which the answer alone is scored.
func checkRow(t *testing.T, ids, positions, context []int32) {
	t.Helper()
	if want := slices.Concat(context, []int32{60, 50, 51}); !slices.Equal(ids, want) {
		t.Errorf("a row holds %v, want %v", ids, want)
	}
	if at := int32(len(context)) + 1; !slices.Equal(positions, []int32{at, at + 1}) {
		t.Errorf("positions %v, want those of the answer from %d", positions, at)
	}
}

func TestMemoryPairsOfTurnsWithMemoryOnly(t *testing.T) {
	trajectory := conversation()
	trajectory.Turns[1].HasMemory = false
	pairs := MemoryPairs(trajectory, nil, []int32{50})
	if len(pairs) != 1 || pairs[0].Turn != 2 {
		t.Fatalf("pairs %+v, want one of the third turn", pairs)
	}
	if got, want := pairs[0].Memory.IDs, []int32{1, 2, 3, 30, 31, 50}; !slices.Equal(got, want) {
		t.Errorf("without a prefix the row is %v, want %v", got, want)
	}
	trajectory.Turns = trajectory.Turns[:1]
	if pairs := MemoryPairs(trajectory, nil, []int32{50}); len(pairs) != 0 {
		t.Errorf("a single turn has %d pairs", len(pairs))
	}
}

func TestMemoryPairsLeaveTheTrajectoryAlone(t *testing.T) {
	trajectory := conversation()
	prefix, answer := make([]int32, 1, 8), make([]int32, 2, 8)
	trajectory.PromptIDs = slices.Grow(trajectory.PromptIDs, 8)
	trajectory.ResponseIDs = slices.Grow(trajectory.ResponseIDs, 8)
	for _, pair := range MemoryPairs(trajectory, prefix, answer) {
		for k := range pair.Full.IDs {
			pair.Full.IDs[k] = -1
		}
		for k := range pair.Memory.IDs {
			pair.Memory.IDs[k] = -1
		}
	}
	fresh := conversation()
	if !slices.Equal(trajectory.PromptIDs, fresh.PromptIDs) || !slices.Equal(trajectory.ResponseIDs, fresh.ResponseIDs) || !slices.Equal(trajectory.Turns[1].MemoryIDs, fresh.Turns[1].MemoryIDs) {
		t.Error("the rows share memory with the trajectory")
	}
}

// A branch and what it stands behind are the row, token by token; the token that predicts the first
// of the answer is the branch's own, with or without a prefix.
func TestBranchesAreTheRows(t *testing.T) {
	trajectory := conversation()
	whole := trajectory.FullIDs()
	for prefix, begins := range map[int][]int{0: {8, 3, 14, 3}, 1: {9, 3, 15, 3}} {
		var got []int
		for _, pair := range MemoryPairs(trajectory, []int32{60}[:prefix], []int32{50, 51}) {
			for _, row := range []AnswerRow{pair.Full, pair.Memory} {
				b := row.Branch(pair.Turn)
				got = append(got, b.Length)
				if ids := slices.Concat(whole[:b.Length], b.IDs); !slices.Equal(ids, row.IDs) || b.Turn != pair.Turn {
					t.Errorf("the branch of turn %d is %v, the row %v", b.Turn, ids, row.IDs)
				}
				for k, position := range b.Positions {
					if position < 1 || b.IDs[position] != int32(50+k) || position+int32(b.Length) != row.Positions[k] {
						t.Errorf("positions %v in %v", b.Positions, b.IDs)
					}
				}
			}
		}
		if !slices.Equal(got, begins) {
			t.Errorf("with a prefix of %d tokens the branches begin at %v, want %v", prefix, got, begins)
		}
	}
}
