package rollout

import (
	"errors"
	"time"

	"github.com/mempo-train/mempo-train/retrieval"
)

// Stats counts what one Run did.
type Stats struct {
	Turns           int // that ended, of all trajectories
	GeneratedTokens int // sampled
	ForwardTokens   int // that went through the model
	PrefillTokens   int // of ForwardTokens, those in pieces of several tokens or without sampling
	ForwardPasses   int
	Redraws         int // sampled ids without a token, redrawn

	PutAside        int // times that a trajectory gave up its row for want of memory or to let another go on
	ReencodedTokens int // of ForwardTokens, those that had been in a row that was given up

	ScoredTokens int           // of branches that were measured; not among ForwardTokens
	ScoreTime    time.Duration // that took

	ToolCalls     int
	ToolFailures  int             // calls that failed after all tries; a refused address is none
	ToolTimeouts  int             // tries of failed calls that timed out
	ToolLatencies []time.Duration // of each call whose outcome came in time
	ToolCacheHits int             // calls that a cache answered
	ResultsCut    int             // Turn.ResultCut
	MemoriesCut   int             // Turn.MemoryCut

	Malformed       int    // turns with Turn.Malformed
	MalformedSample string // text of one of them
}

// addTrajectory counts the turns of a trajectory that has ended.
func (s *Stats) addTrajectory(t *Trajectory) {
	s.Turns += len(t.Turns)
	s.Redraws += t.Redraws
	for _, turn := range t.Turns {
		if turn.ResultCut {
			s.ResultsCut++
		}
		if turn.MemoryCut {
			s.MemoriesCut++
		}
		if turn.Malformed {
			s.Malformed++
			s.MalformedSample = turn.Text
		}
	}
}

// addOutcome counts a call that came back.
func (s *Stats) addOutcome(o outcome) {
	s.ToolLatencies = append(s.ToolLatencies, o.elapsed)
	var refused *retrieval.RefusedError
	if o.err == nil || errors.As(o.err, &refused) {
		return
	}
	s.ToolFailures++
	var failed *retrieval.ServiceError
	if errors.As(o.err, &failed) {
		s.ToolTimeouts += failed.Timeouts
	}
}
