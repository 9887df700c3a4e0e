package service

import (
	"net/http"

	"golang.org/x/sync/semaphore"
)

// Bounds of the memory of requests and of answers, which lie there until clients have taken them.
const (
	smallAnswer   = 1000     // passages; so many go out without waiting for large ones
	smallBody     = 64 << 10 // bytes; so many come in without waiting
	largestAtOnce = 4        // answers, and bodies, of the largest size that the limits allow, or more smaller ones
)

// room is what requests and answers that are not small wait for.
type room struct {
	passages, bytes *semaphore.Weighted
}

func newRoom(l Limits) room {
	return room{
		passages: semaphore.NewWeighted(largestAtOnce * int64(l.Queries) * int64(l.TopK)),
		bytes:    semaphore.NewWeighted(largestAtOnce * l.BodyBytes),
	}
}

// call is a request with the room that it and its answer have.
type call struct {
	*http.Request
	taken int64 // passages
	body  int64 // bytes
}

// admit waits for room for the body of a call, one that does not tell its length being as long as the limit, until the
// context of the call ends.
func (r room) admit(c *call, limit int64) error {
	length := c.ContentLength
	if length >= 0 && length <= smallBody {
		return nil
	}
	if length < 0 || length > limit {
		length = limit
	}
	if err := r.bytes.Acquire(c.Context(), length); err != nil {
		return err
	}
	c.body = length
	return nil
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

// leave gives the room of a call back.
func (r room) leave(c *call) {
	if c.taken > 0 {
		r.passages.Release(c.taken)
	}
	if c.body > 0 {
		r.bytes.Release(c.body)
	}
}
