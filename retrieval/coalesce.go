package retrieval

import (
	"context"
	"sync"
)

// Coalescer puts searches that come in while another one runs together into the next one: nothing
// waits while nothing runs, and under load one call of an encoder and one matrix product serve
// many. Q is a query: its text, or its vector. It is safe for concurrent use.
type Coalescer[Q any] struct {
	run   func(ctx context.Context, queries []Q, topk int) ([][]Scored, error)
	limit int
	seen  func(queries int)

	mutex   sync.Mutex
	waiting []*request[Q]
	running bool
}

type request[Q any] struct {
	queries []Q
	topk    int
	results [][]Scored
	err     error
	done    chan struct{}
}

// NewCoalescer calls run with at most limit queries at once, but for a single request that has more,
// and seen with how many there are. Both may be called from any goroutine, one call at a time.
func NewCoalescer[Q any](limit int, run func(context.Context, []Q, int) ([][]Scored, error), seen func(queries int)) *Coalescer[Q] {
	return &Coalescer[Q]{run: run, limit: limit, seen: seen}
}

// Waiting is the number of requests that no call has taken yet.
func (c *Coalescer[Q]) Waiting() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return len(c.waiting)
}

// Search returns at most topk passages for each query. What a call was begun for is finished even
// if ctx ends, as others may be in it; its caller does not wait for it.
func (c *Coalescer[Q]) Search(ctx context.Context, queries []Q, topk int) ([][]Scored, error) {
	r := &request[Q]{queries: queries, topk: topk, done: make(chan struct{})}
	c.mutex.Lock()
	c.waiting = append(c.waiting, r)
	begin := !c.running
	c.running = true
	c.mutex.Unlock()
	if begin {
		go c.work()
	}
	select {
	case <-r.done:
		return r.results, r.err
	case <-ctx.Done():
		c.drop(r)
		return nil, ctx.Err()
	}
}

// drop takes a request back that no call has taken.
func (c *Coalescer[Q]) drop(gone *request[Q]) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for k, r := range c.waiting {
		if r == gone {
			c.waiting = append(c.waiting[:k:k], c.waiting[k+1:]...)
			return
		}
	}
}

// work answers until nothing waits.
func (c *Coalescer[Q]) work() {
	for {
		batch := c.take()
		if len(batch) == 0 {
			return
		}
		c.answer(batch)
	}
}

// take takes requests in the order they came, and ends the work if there are none.
func (c *Coalescer[Q]) take() []*request[Q] {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	n, queries := 0, 0
	for n < len(c.waiting) && (n == 0 || queries+len(c.waiting[n].queries) <= c.limit) {
		queries += len(c.waiting[n].queries)
		n++
	}
	batch := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	c.running = n > 0
	return batch
}

func (c *Coalescer[Q]) answer(batch []*request[Q]) {
	var queries []Q
	topk := 0
	for _, r := range batch {
		queries = append(queries, r.queries...)
		topk = max(topk, r.topk)
	}
	c.seen(len(queries))
	results, err := c.run(context.Background(), queries, topk)
	at := 0
	for _, r := range batch {
		if r.err = err; err == nil {
			r.results = make([][]Scored, len(r.queries))
			for k := range r.queries {
				r.results[k] = results[at+k][:min(r.topk, len(results[at+k]))]
			}
		}
		at += len(r.queries)
		close(r.done)
	}
}
