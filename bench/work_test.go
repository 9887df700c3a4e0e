package bench

import (
	"testing"

	"github.com/mempo-train/mempo-train/model"
)

// Two layers of hidden size 3 with 2 query heads and 1 key head of size 2, an MLP of 5 and 7 tokens.
var small = model.Architecture{HiddenSize: 3, IntermediateSize: 5, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 2, VocabSize: 7}

func TestOperations(t *testing.T) {
	// A layer has 3·4 weights for the query, 3·2 each for key and value, 4·3 for the output and 3·3·5 of
	// the MLP: 81.
	for _, test := range []struct {
		name string
		work Work
		want float64
	}{
		{"one token", Work{Tokens: 1}, 2 * 2 * 81},
		{"one pair", Work{Pairs: 1}, 2 * 2 * (2*2 + 2*2)}, // layers · heads · (query times key, weight times value)
		{"one row of the head", Work{Heads: 1}, 2 * 3 * 7},
		{"all of it", Work{Tokens: 10, Pairs: 20, Heads: 3}, 10*324 + 20*32 + 3*42},
	} {
		if got := test.work.Forward(small); got != test.want {
			t.Errorf("%s: %g operations, want %g", test.name, got, test.want)
		}
		if got := test.work.Training(small, false); got != 3*test.want {
			t.Errorf("%s, training: %g operations, want %g", test.name, got, 3*test.want)
		}
		// Attention has gradients on both sides all the same.
		if got, want := test.work.Training(small, true), 2*test.want+float64(32*test.work.Pairs); got != want {
			t.Errorf("%s, training with frozen weights: %g operations, want %g", test.name, got, want)
		}
	}
}

// A pass reads 2 · 81 weights of the layers and 3 · 7 of the head; a pair a key and a value of 2 in both layers.
func TestBytes(t *testing.T) {
	for _, test := range []struct {
		name   string
		pairs  int
		passes int
		want   float64
	}{
		{"two passes", 0, 2, 2 * (2*81 + 21) * 4},
		{"three pairs", 3, 0, 3 * 2 * 2 * 2 * 4},
		{"both", 3, 2, 2*183*4 + 3*8*4},
	} {
		if got := (Work{Pairs: test.pairs}).Bytes(small, test.passes, 4); got != test.want {
			t.Errorf("%s: %g bytes, want %g", test.name, got, test.want)
		}
	}
}

func TestStretch(t *testing.T) {
	if got, want := stretch(0, 4, 1), (Work{Tokens: 4, Pairs: 1 + 2 + 3 + 4, Heads: 1}); got != want {
		t.Errorf("a sequence of 4: %+v, want %+v", got, want)
	}
	if got, want := stretch(10, 3, 0), (Work{Tokens: 3, Pairs: 11 + 12 + 13}); got != want {
		t.Errorf("3 behind 10: %+v, want %+v", got, want)
	}
	// Cut anywhere, a sequence is the same work.
	whole := stretch(5, 9, 2)
	for cut := range 10 {
		parts := stretch(5, cut, 2)
		parts.add(stretch(5+cut, 9-cut, 0))
		if parts != whole {
			t.Errorf("cut at %d: %+v, whole %+v", cut, parts, whole)
		}
	}
}

func TestShape(t *testing.T) {
	s := Shape{Questions: 2, GroupSize: 4, PromptTokens: 20, Turns: 3, TurnTokens: 6, ToolTokens: 9}
	if got, want := s.TrajectoryTokens(), 20+6+9+6+9+6; got != want {
		t.Errorf("a trajectory has %d tokens, want %d", got, want)
	}
	if got, want := s.naiveRollout(), 8*(26+41+56); got != want {
		t.Errorf("rollouts without a cache compute %d tokens, want %d", got, want)
	}
	if got, want := s.sampled(), 8*18; got != want {
		t.Errorf("%d tokens are sampled, want %d", got, want)
	}
}
