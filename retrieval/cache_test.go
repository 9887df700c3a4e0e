package retrieval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type (
	searchFunc func(ctx context.Context, query string, topk int) ([]Passage, error)
	accessFunc func(ctx context.Context, url string) (string, error)
)

func (f searchFunc) Search(ctx context.Context, query string, topk int) ([]Passage, error) {
	return f(ctx, query, topk)
}

func (f accessFunc) Access(ctx context.Context, url string) (string, error) { return f(ctx, url) }

func TestCache(t *testing.T) {
	calls := 0
	behind := searchFunc(func(_ context.Context, query string, topk int) ([]Passage, error) {
		if calls++; query == "broken" {
			return nil, &ServiceError{Kind: KindStatus}
		}
		if query == "nothing" {
			return nil, nil
		}
		return []Passage{{ID: "1", Contents: fmt.Sprint(query, topk)}}, nil
	})
	c := NewCache(1 << 20)
	a, b := c.Searcher("a", behind), c.Searcher("b", behind)
	for _, step := range []struct {
		s     Searcher
		query string
		topk  int
		want  string
		calls int
	}{
		{a, "x", 1, "x1", 1},
		{a, "x", 1, "x1", 1},
		{a, "x", 2, "x2", 2},
		{b, "x", 1, "x1", 3},
		{a, "nothing", 1, "", 4},
		{a, "nothing", 1, "", 4},
		{a, "broken", 1, "error", 5},
		{a, "broken", 1, "error", 6},
	} {
		passages, err := step.s.Search(t.Context(), step.query, step.topk)
		got := ""
		var failed *ServiceError
		switch {
		case errors.As(err, &failed):
			got = "error"
		case len(passages) > 0:
			got = passages[0].Contents
			passages[0].Contents = "changed by the caller"
		}
		if got != step.want || calls != step.calls {
			t.Errorf("%s, %d: %q after %d calls, want %q after %d", step.query, step.topk, got, calls, step.want, step.calls)
		}
	}
	if c.Hits() != 2 {
		t.Errorf("%d hits", c.Hits())
	}
}

func TestCacheOfPages(t *testing.T) {
	calls := 0
	a := NewCache(1<<20).Accessor("a", accessFunc(func(_ context.Context, url string) (string, error) {
		if calls++; url == "refused" {
			return "", Refuse(url, "no")
		}
		return "page of " + url, nil
	}))
	for range 2 {
		if page, err := a.Access(t.Context(), "u"); err != nil || page != "page of u" {
			t.Errorf("%q, %v", page, err)
		}
		var refused *RefusedError
		if _, err := a.Access(t.Context(), "refused"); !errors.As(err, &refused) {
			t.Errorf("got %v", err)
		}
	}
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

func TestCacheKeepsItsBound(t *testing.T) {
	calls := 0
	c := NewCache(20_000)
	s := c.Searcher("s", searchFunc(func(_ context.Context, query string, _ int) ([]Passage, error) {
		calls++
		return []Passage{{Contents: strings.Repeat(query, 1000)}}, nil
	}))
	ask := func(query string) {
		t.Helper()
		if _, err := s.Search(t.Context(), query, 1); err != nil {
			t.Fatal(err)
		}
		if c.bytes > c.limit || c.bytes < 0 {
			t.Fatalf("holds %d bytes", c.bytes)
		}
	}
	for k := range 100 {
		ask(string(rune('a' + k%26)))
		ask("hot")
	}
	ask(strings.Repeat("large", 20))
	before := calls
	ask("hot")
	ask(strings.Repeat("large", 20))
	if calls != before+1 || calls < 90 {
		t.Errorf("%d calls, then %d", before, calls)
	}
}

func TestCallsForTheSameAreOne(t *testing.T) {
	var calls atomic.Int64
	gate := make(chan struct{})
	c := NewCache(1 << 20)
	s := c.Searcher("s", searchFunc(func(ctx context.Context, _ string, _ int) ([]Passage, error) {
		calls.Add(1)
		<-gate
		return []Passage{{Contents: "x"}}, ctx.Err()
	}))
	gone, leave := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // begins the call, and gives up
		if _, err := s.Search(gone, "q", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	for calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	leave()
	for range 20 {
		running.Go(func() {
			if passages, err := s.Search(t.Context(), "q", 1); err != nil || passages[0].Contents != "x" {
				t.Errorf("%v, %v", passages, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	close(gate)
	running.Wait()
	if calls.Load() != 1 || c.Hits() != 20 {
		t.Errorf("%d calls, %d hits", calls.Load(), c.Hits())
	}
}

func TestSpread(t *testing.T) {
	var asked [3]int
	down := map[int]bool{}
	var s Spread
	for k := range asked {
		s = append(s, searchFunc(func(context.Context, string, int) ([]Passage, error) {
			if asked[k]++; down[k] {
				return nil, &ServiceError{URL: fmt.Sprint(k)}
			}
			return []Passage{{Contents: fmt.Sprint(k)}}, nil
		}))
	}
	answers := map[string]string{}
	for round := range 2 {
		for k := range 300 {
			query := fmt.Sprint("query ", k)
			passages, err := s.Search(t.Context(), query, 1)
			if err != nil {
				t.Fatal(err)
			}
			if round == 1 && answers[query] != passages[0].Contents {
				t.Errorf("%s goes to another service", query)
			}
			answers[query] = passages[0].Contents
		}
	}
	for k, n := range asked {
		if n < 100 {
			t.Errorf("service %d is asked %d of 600 times", k, n)
		}
	}
	down[1] = true
	for k := range 30 {
		if passages, err := s.Search(t.Context(), fmt.Sprint("query ", k), 1); err != nil || passages[0].Contents == "1" {
			t.Errorf("with service 1 down: %v, %v", passages, err)
		}
	}
	down[0], down[2] = true, true
	before := asked[0] + asked[1] + asked[2]
	var failed *ServiceError
	if _, err := s.Search(t.Context(), "x", 1); !errors.As(err, &failed) || asked[0]+asked[1]+asked[2] != before+3 {
		t.Errorf("with all down: %v", err)
	}
}

func TestHedged(t *testing.T) {
	var calls atomic.Int64
	var given atomic.Int64
	h := NewHedged(searchFunc(func(ctx context.Context, query string, _ int) ([]Passage, error) {
		n := calls.Add(1)
		switch {
		case query == "fast", query == "slow" && n > 1:
			return []Passage{{Contents: fmt.Sprint(n)}}, nil
		case query == "broken":
			return nil, errors.New("broken")
		case query == "second fails" && n > 1:
			return nil, errors.New("broken")
		case query == "second fails":
			time.Sleep(100 * time.Millisecond)
			return []Passage{{Contents: "1"}}, nil
		}
		<-ctx.Done()
		given.Add(1)
		return nil, ctx.Err()
	}), 20*time.Millisecond, 1)
	for query, want := range map[string]struct {
		answer string
		calls  int64
	}{"fast": {"1", 1}, "slow": {"2", 2}, "broken": {"", 1}, "second fails": {"1", 2}} {
		calls.Store(0)
		passages, err := h.Search(t.Context(), query, 1)
		if (err == nil) != (want.answer != "") || err == nil && passages[0].Contents != want.answer || calls.Load() != want.calls {
			t.Errorf("%s: %v, %v after %d calls", query, passages, err, calls.Load())
		}
	}
	for deadline := time.Now().Add(20 * time.Second); given.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the slower call is not given up")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := h.Search(ctx, "never", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
