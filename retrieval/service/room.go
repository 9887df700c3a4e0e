package service

import (
	"net/http"

	"golang.org/x/sync/semaphore"
)

// Bounds of the memory of answers, which lie there until clients have taken them.
const (
	smallAnswer   = 1000 // passages; so many go out without waiting for large ones
	largestAtOnce = 4    // answers of the largest size that the limits allow, or more smaller ones
)

// room is what answers that are not small wait for.
type room struct {
	passages *semaphore.Weighted
}

func newRoom(l Limits) room {
	return room{semaphore.NewWeighted(largestAtOnce * int64(l.Queries) * int64(l.TopK))}
}

// call is a request with the room that its answer has.
type call struct {
	*http.Request
	taken int64 // passages
}

// take waits for room for an answer of so many passages, until the context of the call ends.
func (r room) take(c *call, passages int64) error {
	if passages <= smallAnswer {
		return nil
	}
	if err := r.passages.Acquire(c.Context(), passages); err != nil {
		return err
	}
	c.taken = passages
	return nil
}

// leave gives the room of an answer back.
func (r room) leave(c *call) {
	if c.taken > 0 {
		r.passages.Release(c.taken)
	}
}
