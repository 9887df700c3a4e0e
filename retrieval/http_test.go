package retrieval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest/observer"
)

func TestSearchRequestAndReply(t *testing.T) {
	var body, path, kind string
	url, _ := service(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		body, path, kind = string(sent), r.Method+" "+r.URL.Path, r.Header.Get("Content-Type")
		reply(200, `{"result":[[{"document":{"id":"17","contents":"\"München\"\nMünchen 東京 <b>&</b> \u00e9"},"score":0.9},{"document":{"id":4,"contents":"c"}}]]}`)(w, r)
	})
	h, _ := client(t, HTTPOptions{URL: url + "/"})
	got, err := h.Search(t.Context(), "capital of «Peru»", 3)
	if err != nil {
		t.Fatal(err)
	}
	want := []Passage{{"17", "\"München\"\nMünchen 東京 <b>&</b> é"}, {"4", "c"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if body != `{"queries":["capital of «Peru»"],"topk":3,"return_scores":true}` || path != "POST /retrieve" || kind != "application/json" {
		t.Errorf("%s %s: %s", path, kind, body)
	}
}

func TestServiceAddress(t *testing.T) {
	for url, want := range map[string]string{
		"http://h:1":                 "http://h:1/retrieve",
		"http://h:1/retrieve":        "http://h:1/retrieve",
		"http://h:1/a/access/":       "http://h:1/a/retrieve",
		"https://u:p@h/a?key=1":      "https://u:p@h/a/retrieve?key=1",
		"http://[::1]:8000/retrieve": "http://[::1]:8000/retrieve",
	} {
		h, err := NewHTTP(HTTPOptions{URL: url})
		if err != nil || h.search != want {
			t.Errorf("%s: %v, %v", url, h, err)
		}
	}
	for _, url := range []string{"", "localhost:8000", "127.0.0.1:8000", "ftp://h/", "http:///retrieve", "http://h:port/", "/retrieve"} {
		if _, err := NewHTTP(HTTPOptions{URL: url}); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
	if _, err := NewHTTP(HTTPOptions{URL: "http://u:secret@h", Tries: -1}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("negative tries: %v", err)
	}
	h, _ := client(t, HTTPOptions{URL: "http://u:secret@127.0.0.1:1", Tries: 1})
	if _, err := h.Search(t.Context(), "q", 1); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in: %v", err)
	}
}

func TestTopKIsCutInTheServersOrder(t *testing.T) {
	documents := func(n int) http.HandlerFunc {
		var list []string
		for k := range n {
			list = append(list, fmt.Sprintf(`{"document":{"id":%d,"contents":"c"},"score":%d}`, k, k*7%5))
		}
		return reply(200, `{"result":[[`+strings.Join(list, ",")+`]]}`)
	}
	url, _ := service(t, documents(5), documents(2), documents(3))
	h, logs := client(t, HTTPOptions{URL: url})
	for _, want := range []string{"0 1 2", "0 1", "0 1 2"} {
		passages, err := h.Search(t.Context(), "q", 3)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, p := range passages {
			ids = append(ids, p.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if n := logs.FilterMessageSnippet("another number of passages").Len(); n != 1 {
		t.Errorf("the differing count was logged %d times", n)
	}
	if _, err := h.Search(t.Context(), "q", 0); err == nil {
		t.Error("topk 0 was taken")
	}
}

func TestRetries(t *testing.T) {
	good := reply(200, twoPassages)
	reset := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}
	cut := func(w http.ResponseWriter, _ *http.Request) { // a body shorter than promised
		w.Header().Set("Content-Length", "5000")
		_, _ = io.WriteString(w, twoPassages)
	}
	stall := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	impatient := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "999999999999")
		reply(503, "later")(w, r)
	}
	cases := map[string]struct {
		handlers []http.HandlerFunc
		requests int
		kind     string // "" = it works in the end
		detail   string
	}{
		"third attempt works":           {[]http.HandlerFunc{reply(500, "x"), reply(502, "x"), good}, 3, "", ""},
		"always 500":                    {[]http.HandlerFunc{reply(500, "out of memory")}, 3, KindStatus, `500 Internal Server Error, body "out of memory"`},
		"overload":                      {[]http.HandlerFunc{reply(429, "slow down"), good}, 2, "", ""},
		"a Retry-After beyond measure":  {[]http.HandlerFunc{impatient, good}, 2, "", ""},
		"connection reset":              {[]http.HandlerFunc{reset, good}, 2, "", ""},
		"always reset":                  {[]http.HandlerFunc{reset}, 3, KindReset, ""},
		"body cut":                      {[]http.HandlerFunc{cut, good}, 2, "", ""},
		"body always cut":               {[]http.HandlerFunc{cut}, 3, KindReset, "unexpected EOF"},
		"time-out":                      {[]http.HandlerFunc{stall, good}, 2, "", ""},
		"wrong schema, once":            {[]http.HandlerFunc{reply(422, `{"detail":"field required"}`)}, 1, KindStatus, `422 Unprocessable Entity, body "{\"detail\":\"field required\"}"`},
		"not found, once":               {[]http.HandlerFunc{reply(404, "")}, 1, KindStatus, "404"},
		"broken JSON, once":             {[]http.HandlerFunc{reply(200, `{"result":`)}, 1, KindReply, "broken JSON"},
		"long body of a bad status":     {[]http.HandlerFunc{reply(400, strings.Repeat("x", 5000))}, 1, KindStatus, strings.Repeat("x", 200) + "…"},
		"no content":                    {[]http.HandlerFunc{reply(204, "")}, 1, KindReply, "broken JSON"},
		"a status that is not retried ": {[]http.HandlerFunc{reply(300, "")}, 1, KindStatus, "300"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := service(t, c.handlers...)
			h, _ := client(t, HTTPOptions{URL: url, Timeout: 300 * time.Millisecond})
			passages, err := h.Search(t.Context(), "q", 2)
			if int(requests.Load()) != c.requests {
				t.Errorf("%d requests, want %d", requests.Load(), c.requests)
			}
			stats := h.Stats()
			if stats.Calls != 1 || stats.Retries != int64(c.requests-1) || stats.Latency <= 0 || stats.InFlight != 0 || stats.Queued != 0 {
				t.Errorf("stats %+v", stats)
			}
			if c.kind == "" {
				if err != nil || len(passages) != 2 || stats.Failures != 0 {
					t.Errorf("got %+v, %v; stats %+v", passages, err, stats)
				}
				return
			}
			failure := serviceError(t, err)
			if failure.Kind != c.kind || failure.Attempts != c.requests || failure.Service != "search" || failure.URL != url+"/retrieve" || !strings.Contains(failure.Detail, c.detail) {
				t.Errorf("got %+v", failure)
			}
			if stats.Failures != 1 {
				t.Errorf("stats %+v", stats)
			}
		})
	}
}

func TestAttemptsAreLogged(t *testing.T) {
	url, _ := service(t, reply(500, "no memory"), reply(422, "field required"))
	h, logs := client(t, HTTPOptions{URL: url})
	_, err := h.Search(t.Context(), "q", 2)
	serviceError(t, err)
	entries := logs.FilterMessage("tool service: bad status").All()
	if len(entries) != 2 {
		t.Fatalf("%d entries", len(entries))
	}
	for k, want := range []map[string]any{
		{"status": int64(500), "body": "no memory", "attempt": int64(1), "url": url + "/retrieve", "queued": int64(0), "in_flight": int64(1)},
		{"status": int64(422), "body": "field required", "attempt": int64(2), "url": url + "/retrieve", "queued": int64(0), "in_flight": int64(1)},
	} {
		got := entries[k].ContextMap()
		delete(got, "took")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("entry %d: %v", k, got)
		}
	}
}

func TestNothingListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	h, _ := client(t, HTTPOptions{URL: "http://" + address})
	_, err = h.Search(t.Context(), "q", 2)
	failure := serviceError(t, err)
	if failure.Kind != KindRefused || failure.Attempts != 3 || !strings.Contains(err.Error(), "search service http://"+address+"/retrieve: connection refused in attempt 3") {
		t.Errorf("got %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	url, requests := service(t, http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect).ServeHTTP, reply(200, twoPassages))
	h, _ := client(t, HTTPOptions{URL: url})
	_, err := h.Search(t.Context(), "q", 2)
	if failure := serviceError(t, err); failure.Kind != KindStatus || !strings.Contains(failure.Detail, "307") || requests.Load() != 1 {
		t.Errorf("got %v after %d requests", err, requests.Load())
	}
}

func TestProxyOnlyWhenAskedFor(t *testing.T) {
	for _, asked := range []bool{false, true} {
		h, _ := client(t, HTTPOptions{URL: "http://h", UseProxy: asked})
		if (h.transport.base.Proxy != nil) != asked {
			t.Errorf("asked %v, proxy %v", asked, h.transport.base.Proxy != nil)
		}
	}
}

func TestContextEndsACall(t *testing.T) {
	stall := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	cases := map[string]struct {
		handler http.HandlerFunc
		options HTTPOptions
	}{
		"under way":         {stall, HTTPOptions{Timeout: time.Minute}},
		"between two tries": {reply(500, "x"), HTTPOptions{MinBackoff: time.Minute, MaxBackoff: time.Minute}},
		"waiting for its turn": {stall, HTTPOptions{
			Timeout: time.Minute, Concurrency: 1,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := service(t, c.handler)
			c.options.URL = url
			h, _ := client(t, c.options)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			calls := max(1, 3*c.options.Concurrency)
			var group sync.WaitGroup
			started := time.Now()
			for range calls {
				group.Go(func() {
					_, err := h.Search(ctx, "q", 2)
					var failure *ServiceError
					if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failure) || !strings.Contains(err.Error(), "search service "+url) {
						t.Errorf("got %v", err)
					}
				})
			}
			group.Wait()
			if took := time.Since(started); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			if stats := h.Stats(); stats.Abandoned != int64(calls) || stats.Failures != 0 || stats.Timeouts != 0 || stats.InFlight != 0 || stats.Queued != 0 {
				t.Errorf("stats %+v", stats)
			}
		})
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	var now, most atomic.Int64
	url, requests := service(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			seen := most.Load()
			if n <= seen || most.CompareAndSwap(seen, n) {
				break
			}
		}
		time.Sleep(10 * time.Millisecond)
		reply(200, twoPassages)(w, r)
	})
	h, logs := client(t, HTTPOptions{URL: url, Concurrency: 3})
	var group sync.WaitGroup
	for range 24 {
		group.Go(func() {
			if _, err := h.Search(t.Context(), "q", 2); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if most.Load() != 3 || requests.Load() != 24 {
		t.Errorf("at most %d requests at once, %d in all", most.Load(), requests.Load())
	}
	if depth := deepest(logs); depth < 10 {
		t.Errorf("the deepest queue in the log is %d", depth)
	}
}

func deepest(logs *observer.ObservedLogs) (depth int64) {
	for _, entry := range logs.All() {
		if queued, ok := entry.ContextMap()["queued"].(int64); ok {
			depth = max(depth, queued)
		}
	}
	return depth
}
