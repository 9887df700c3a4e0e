package retrieval

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// echo finds a passage for each rank, named after query and rank.
func echo(_ context.Context, queries []string, topk int) ([][]Scored, error) {
	results := make([][]Scored, len(queries))
	for q, query := range queries {
		for k := range topk {
			results[q] = append(results[q], Scored{Passage: Passage{ID: fmt.Sprint(query, k)}})
		}
	}
	return results, nil
}

// held runs searches one at a time when it is told to, and notes how many queries each has.
type held struct {
	begun, release chan struct{}
	mutex          sync.Mutex
	sizes          []int
}

func newHeld() *held {
	return &held{begun: make(chan struct{}, 1000), release: make(chan struct{}, 1000)}
}

func (h *held) run(ctx context.Context, queries []string, topk int) ([][]Scored, error) {
	h.begun <- struct{}{}
	<-h.release
	return echo(ctx, queries, topk)
}

func (h *held) seen(n int) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.sizes = append(h.sizes, n)
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for t.Context().Err() == nil && !holds() {
		select {
		case <-t.Context().Done():
			t.Fatal(what)
		default:
		}
	}
}

func TestWhatComesInMeanwhileIsOneSearch(t *testing.T) {
	h := newHeld()
	c := NewCoalescer(100, h.run, h.seen)
	var group sync.WaitGroup
	ask := func(k int) {
		group.Go(func() {
			results, err := c.Search(t.Context(), []string{fmt.Sprint("a", k, "-"), fmt.Sprint("b", k, "-")}, 1+k%3)
			if err != nil || len(results) != 2 || len(results[0]) != 1+k%3 || results[1][0].ID != fmt.Sprint("b", k, "-0") {
				t.Errorf("request %d: %v, %v", k, results, err)
			}
		})
	}
	ask(0)
	<-h.begun
	for k := 1; k <= 60; k++ {
		ask(k)
	}
	waitFor(t, "60 requests wait", func() bool { return c.Waiting() == 60 })
	for range 3 {
		h.release <- struct{}{}
	}
	group.Wait()
	if fmt.Sprint(h.sizes) != "[2 100 20]" {
		t.Errorf("searches of %v queries, want 2, then as many as go together, then the rest", h.sizes)
	}
}

func TestARequestThatGivesUp(t *testing.T) {
	h := newHeld()
	c := NewCoalescer(100, h.run, h.seen)
	var group sync.WaitGroup
	group.Go(func() { _, _ = c.Search(t.Context(), []string{"first"}, 1) })
	<-h.begun
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() {
		if _, err := c.Search(ctx, []string{"gone"}, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	waitFor(t, "it waits", func() bool { return c.Waiting() == 1 })
	cancel()
	waitFor(t, "it is dropped", func() bool { return c.Waiting() == 0 })
	h.release <- struct{}{}
	group.Wait()
	if fmt.Sprint(h.sizes) != "[1]" {
		t.Errorf("searches of %v queries", h.sizes)
	}
}

func TestAFailedSearchFailsItsRequests(t *testing.T) {
	broken := errors.New("no memory")
	c := NewCoalescer(8, func(context.Context, []string, int) ([][]Scored, error) { return nil, broken }, func(int) {})
	for range 2 {
		if _, err := c.Search(t.Context(), []string{"x"}, 1); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
}
