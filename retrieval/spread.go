package retrieval

import (
	"context"
	"errors"
	"hash/fnv"
	"time"
)

// Spread shares queries out among services that find the same: which one is asked follows from the
// query alone. When one has failed a query, after all its tries, the next is asked. It is a Searcher.
type Spread []Searcher

// Search implements Searcher. Its error is that of the last service.
func (s Spread) Search(ctx context.Context, query string, topk int) (passages []Passage, err error) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(query)) // never fails
	first := int(hash.Sum32() % uint32(len(s)))
	for k := range s {
		passages, err = s[(first+k)%len(s)].Search(ctx, query, topk)
		var failed *ServiceError
		if err == nil || !errors.As(err, &failed) || ctx.Err() != nil {
			break
		}
	}
	return passages, err
}

// Hedged asks a second time what is not answered after a while; the first good answer counts, and the
// other call is given up. It is a Searcher.
type Hedged struct {
	behind Searcher
	after  time.Duration
	second chan struct{} // holds a token for each second call that runs
}

// NewHedged makes a Hedged that has at most so many second calls run at the same time.
func NewHedged(behind Searcher, after time.Duration, most int) *Hedged {
	return &Hedged{behind: behind, after: after, second: make(chan struct{}, max(1, most))}
}

// answered is the end of a call.
type answered struct {
	passages []Passage
	err      error
}

// Search implements Searcher. When both calls fail, the error is that of the one that ended last.
func (h *Hedged) Search(ctx context.Context, query string, topk int) ([]Passage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answered, 2) // neither call waits to be heard
	call := func() {
		passages, err := h.behind.Search(ctx, query, topk)
		answers <- answered{passages, err}
	}
	go call()
	running := 1
	timer := time.NewTimer(h.after)
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			if running--; a.err == nil || running == 0 {
				return a.passages, a.err
			}
		case <-timer.C:
			select {
			case h.second <- struct{}{}:
				running++
				go func() {
					defer func() { <-h.second }()
					call()
				}()
			default: // enough others are asked again
			}
		}
	}
}
