package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/retrieval"
)

var small = Limits{BodyBytes: 2000, Queries: 3, QueryBytes: 100, TopK: 10, URLs: 2, Concurrency: 2}

var errDisk = errors.New("the disk is gone")

// fakeSearch finds passages named after the query and their rank; "none" finds none and "broken" fails.
func fakeSearch() Search {
	return Search{
		Texts: func(_ context.Context, queries []string, topk int) ([][]retrieval.Scored, error) {
			results := make([][]retrieval.Scored, len(queries))
			for q, query := range queries {
				if query == "broken" {
					return nil, errDisk
				}
				for k := 0; k < topk && query != "none"; k++ {
					results[q] = append(results[q], retrieval.Scored{
						Passage: retrieval.Passage{ID: fmt.Sprint(k), Contents: fmt.Sprintf("\"%s\"\n<mem> & %d", query, k)}, Score: 1 / float64(k+1),
					})
				}
			}
			return results, nil
		},
		Vectors: func(_ context.Context, queries [][]float32, _ int) ([][]retrieval.Scored, error) {
			results := make([][]retrieval.Scored, len(queries))
			for q, query := range queries {
				results[q] = []retrieval.Scored{{Passage: retrieval.Passage{ID: fmt.Sprint(query)}, Score: 1}}
			}
			return results, nil
		},
		Dimensions: 2,
		Page: func(address string) (string, error) {
			if strings.HasSuffix(address, "/Lima") {
				return "\"Lima\"\nA city.", nil
			}
			return "", nil
		},
		About: map[string]any{"passages": 7},
	}
}

func ready(search Search) *Service {
	s := New(small, time.Minute, zap.NewNop())
	s.Ready(search)
	return s
}

// ask sends a request and returns status, reply and headers.
func ask(s http.Handler, method, path, body string) (int, string, http.Header) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, strings.TrimSpace(w.Body.String()), w.Header()
}

func TestReplies(t *testing.T) {
	s := ready(fakeSearch())
	for _, c := range []struct{ path, body, want string }{
		{"/retrieve", `{"queries":["a"],"topk":2,"return_scores":true}`, `{"result":[[{"document":{"id":"0","contents":"\"a\"\n<mem> & 0"},"score":1},{"document":{"id":"1","contents":"\"a\"\n<mem> & 1"},"score":0.5}]]}`},
		{"/retrieve", `{"queries":["a","none"],"topk":1,"return_scores":false}`, `{"result":[[{"id":"0","contents":"\"a\"\n<mem> & 0"}],[]]}`},
		{"/retrieve", `{"queries":"a","topk":1}`, `{"result":[[{"id":"0","contents":"\"a\"\n<mem> & 0"}]]}`},
		{"/retrieve", `{"queries":["none"],"topk":null,"return_scores":null,"more":[1]}`, `{"result":[[]]}`},
		{"/retrieve", `{"queries":[]}`, `{"result":[]}`},
		{"/retrieve", `{"vectors":[[1,2],[3,4]],"return_scores":true}`, `{"result":[[{"document":{"id":"[1 2]","contents":""},"score":1}],[{"document":{"id":"[3 4]","contents":""},"score":1}]]}`},
		{"/access", `{"urls":["https://en.wikipedia.org/wiki/Lima","https://example.org/missing"]}`, `{"result":[{"page":"\"Lima\"\nA city."},{"page":""}]}`},
		{"/access", `{"urls":"x/Lima"}`, `{"result":[{"page":"\"Lima\"\nA city."}]}`},
	} {
		status, reply, header := ask(s, "POST", c.path, c.body)
		if status != 200 || reply != c.want || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, want %s", c.body, status, reply, c.want)
		}
	}
	if _, reply, _ := ask(s, "POST", "/retrieve", `{"queries":["a"]}`); strings.Count(reply, "contents") != 3 {
		t.Errorf("without topk: %s", reply)
	}
	if status, reply, _ := ask(s, "GET", "/health", ""); status != 200 || reply != `{"passages":7,"status":"ok"}` {
		t.Errorf("health: %d %s", status, reply)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	s := ready(fakeSearch())
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/retrieve", ``, 400, "not JSON"},
		{"POST", "/retrieve", `{"queries":["a"`, 400, "not JSON"},
		{"POST", "/retrieve", `[]`, 400, "the body is a JSON array, want an object"},
		{"POST", "/retrieve", `{}`, 400, `there is no \"queries\", want a list of strings`},
		{"POST", "/retrieve", `{"queries":null}`, 400, `there is no \"queries\"`},
		{"POST", "/retrieve", `{"queries":[1]}`, 400, "queries is not a list of strings"},
		{"POST", "/retrieve", `{"queries":["a",null]}`, 400, "queries holds null"},
		{"POST", "/retrieve", `{"queries":{"a":1}}`, 400, "queries is not a list of strings"},
		{"POST", "/retrieve", `{"queries":["a"],"topk":0}`, 400, "topk is 0, allowed: 1 to 10"},
		{"POST", "/retrieve", `{"queries":["a"],"topk":11}`, 400, "topk is 11"},
		{"POST", "/retrieve", `{"queries":["a"],"topk":1.5}`, 400, "topk is 1.5"},
		{"POST", "/retrieve", `{"queries":["a"],"topk":1e300}`, 400, "topk is 1e+300"},
		{"POST", "/retrieve", `{"queries":["a"],"topk":"3"}`, 400, "topk holds a JSON string, want a whole number"},
		{"POST", "/retrieve", `{"queries":["a"],"return_scores":1}`, 400, "return_scores holds a JSON number, want true or false"},
		{"POST", "/retrieve", `{"vectors":[[1]]}`, 400, "vector 1 has 1 numbers, want 2"},
		{"POST", "/retrieve", `{"vectors":[["a"]]}`, 400, "vectors is not a list of lists of numbers"},
		{"POST", "/retrieve", `{"vectors":[[1e300,1]]}`, 400, "vectors is not"},
		{"POST", "/retrieve", `{"vectors":[[1,2],[1,2],[1,2],[1,2]]}`, 413, "more than 3 vectors"},
		{"POST", "/retrieve", `{"queries":["a","b","c","d"]}`, 413, "more than 3 queries"},
		{"POST", "/retrieve", `{"queries":["` + strings.Repeat("a", 101) + `"]}`, 413, "query 1 has 101 bytes"},
		{"POST", "/retrieve", `{"queries":["` + strings.Repeat("a", 3000) + `"]}`, 413, "more than 2000 bytes"},
		{"POST", "/retrieve", strings.Repeat("[", 1900), 400, "not JSON"},
		{"POST", "/access", `{"urls":["a","b","c"]}`, 413, "more than 2 urls"},
		{"POST", "/access", `{"url":"a"}`, 400, `there is no \"urls\"`},
		{"GET", "/retrieve", ``, 405, "/retrieve takes POST"},
		{"POST", "/health", ``, 405, "/health takes GET"},
		{"POST", "/search", ``, 404, `there is no \"/search\"`},
		{"POST", "/retrieve", `{"queries":["broken"]}`, 500, errDisk.Error()},
	} {
		status, reply, _ := ask(s, c.method, c.path, c.body)
		var told struct{ Error string }
		if err := json.Unmarshal([]byte(reply), &told); err != nil || status != c.status || !strings.Contains(reply, c.want) {
			t.Errorf("%s %s %.60s: %d %s, want %d with %q", c.method, c.path, c.body, status, reply, c.status, c.want)
		}
	}
	without := fakeSearch()
	without.Vectors, without.Dimensions = nil, 0
	if status, reply, _ := ask(ready(without), "POST", "/retrieve", `{"vectors":[[]]}`); status != 400 {
		t.Errorf("vectors without an index of them: %d %s", status, reply)
	}
}

// A short text of many empty elements must not take many times its length.
func TestRequestsOfManyElementsAreReadNoFurtherThanTheLimit(t *testing.T) {
	for name, element := range map[string]string{"queries": `""`, "vectors": "[]"} {
		body := []byte(`{"` + name + `":[` + strings.Repeat(element+",", 500_000) + element + `]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parseRetrieve(body, small, 2)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 4*uint64(len(body)) {
			t.Errorf("%s: %v, %d bytes for a body of %d", name, err, took, len(body))
		}
	}
}

func TestAServiceOfVectorsAlone(t *testing.T) {
	search := fakeSearch()
	search.Texts, search.Coalesce = nil, true
	s := ready(search)
	if status, reply, _ := ask(s, "POST", "/retrieve", `{"queries":["a"]}`); status != 400 || !strings.Contains(reply, "it takes vectors") {
		t.Errorf("a text: %d %s", status, reply)
	}
	if status, reply, _ := ask(s, "POST", "/retrieve", `{"vectors":[[1,2]]}`); status != 200 || !strings.Contains(reply, "[1 2]") {
		t.Errorf("a vector: %d %s", status, reply)
	}
	if _, text, _ := ask(s, "GET", "/metrics", ""); !strings.Contains(text, "mempo_retrieve_batch_queries_count 1") || !strings.Contains(text, "mempo_retrieve_waiting 0") {
		t.Errorf("metrics:\n%s", text)
	}
}

func TestItIsLoadingUntilItIsReady(t *testing.T) {
	s := New(small, time.Minute, zap.NewNop())
	for _, path := range []string{"/health", "/retrieve"} {
		method := map[string]string{"/health": "GET"}[path]
		if method == "" {
			method = "POST"
		}
		status, reply, header := ask(s, method, path, `{"queries":["a"]}`)
		if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(reply, "loaded") {
			t.Errorf("%s: %d %s", path, status, reply)
		}
	}
}

// heldSearch says when a search has begun and ends it when it is released.
func heldSearch() (search Search, begun, release chan struct{}) {
	search = fakeSearch()
	begun, release = make(chan struct{}), make(chan struct{})
	quick := search.Texts
	search.Texts = func(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error) {
		begun <- struct{}{}
		<-release
		return quick(ctx, queries, topk)
	}
	return search, begun, release
}

func TestTooMuchIsAnswered503(t *testing.T) {
	search, begun, release := heldSearch()
	s := ready(search)
	done := make(chan int, 2)
	for range small.Concurrency {
		go func() {
			status, _, _ := ask(s, "POST", "/retrieve", `{"queries":["a"]}`)
			done <- status
		}()
		<-begun
	}
	if status, reply, header := ask(s, "POST", "/retrieve", `{"queries":["a"]}`); status != 503 || header.Get("Retry-After") != "1" || !strings.Contains(reply, "2 requests are under way") {
		t.Errorf("%d %s", status, reply)
	}
	close(release)
	for range small.Concurrency {
		if status := <-done; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	if _, text, _ := ask(s, "GET", "/metrics", ""); !strings.Contains(text, `mempo_retrieve_requests_total{code="503",path="/retrieve"} 1`) || !strings.Contains(text, "mempo_retrieve_under_way 0") {
		t.Errorf("metrics:\n%s", text)
	}
}

// unread is a client that does not take its answer until it is released.
type unread struct {
	*httptest.ResponseRecorder
	begun, release chan struct{}
}

func (u unread) Write(data []byte) (int, error) {
	u.begun <- struct{}{}
	<-u.release
	return u.ResponseRecorder.Write(data)
}

// Large answers that nobody takes keep other large ones waiting, and no small one.
func TestLargeAnswersWaitForRoom(t *testing.T) {
	limits := small
	limits.TopK, limits.Concurrency = 1000, 100
	s := New(limits, time.Minute, zap.NewNop())
	s.Ready(fakeSearch())
	large := `{"queries":["none","none","none"],"topk":1000}`
	client := unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{}, largestAtOnce)
	for range largestAtOnce {
		go func() {
			s.ServeHTTP(client, httptest.NewRequest("POST", "/retrieve", strings.NewReader(large)))
			ended <- struct{}{}
		}()
		<-client.begun
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/retrieve", strings.NewReader(large)).WithContext(ctx))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "no answer within") {
		t.Errorf("a large one: %d %s", w.Code, w.Body)
	}
	if status, reply, _ := ask(s, "POST", "/retrieve", `{"queries":["none"],"topk":1000}`); status != 200 {
		t.Errorf("a small one: %d %s", status, reply)
	}
	for range largestAtOnce {
		client.release <- struct{}{}
		<-ended
	}
	if status, reply, _ := ask(s, "POST", "/retrieve", large); status != 200 {
		t.Errorf("afterwards: %d %s", status, reply)
	}
}

// stalled is a body of which nothing comes until it is released.
type stalled struct{ begun, release chan struct{} }

func (b stalled) Read([]byte) (int, error) {
	b.begun <- struct{}{}
	<-b.release
	return 0, io.EOF
}

// Large requests that are under way keep other large ones waiting, and no small one; one that does not tell its length
// counts as large.
func TestLargeBodiesWaitForRoom(t *testing.T) {
	limits := small
	limits.BodyBytes, limits.Concurrency = 4*smallBody, 100
	s := New(limits, time.Minute, zap.NewNop())
	s.Ready(fakeSearch())
	body := stalled{make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{}, largestAtOnce)
	for range largestAtOnce {
		go func() {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/retrieve", body))
			ended <- struct{}{}
		}()
		<-body.begun
	}
	large := `{"queries":["none"],"more":"` + strings.Repeat("x", smallBody) + `"}`
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("POST", "/retrieve", strings.NewReader(large)).WithContext(ctx))
	if w.Code != 503 || !strings.Contains(w.Body.String(), "no answer within") {
		t.Errorf("a large one: %d %s", w.Code, w.Body)
	}
	if status, reply, _ := ask(s, "POST", "/retrieve", `{"queries":["none"]}`); status != 200 {
		t.Errorf("a small one: %d %s", status, reply)
	}
	for range largestAtOnce {
		body.release <- struct{}{}
		<-ended
	}
	if status, reply, _ := ask(s, "POST", "/retrieve", large); status != 200 {
		t.Errorf("afterwards: %d %s", status, reply)
	}
}

func TestASearchThatTakesTooLong(t *testing.T) {
	search := fakeSearch()
	search.Coalesce = true
	release := make(chan struct{})
	defer close(release)
	search.Texts = func(context.Context, []string, int) ([][]retrieval.Scored, error) {
		<-release
		return [][]retrieval.Scored{nil}, nil
	}
	s := New(small, 50*time.Millisecond, zap.NewNop())
	s.Ready(search)
	if status, reply, _ := ask(s, "POST", "/retrieve", `{"queries":["a"]}`); status != 503 || !strings.Contains(reply, "no answer within 50ms") {
		t.Errorf("%d %s", status, reply)
	}
}

// live opens one page and refuses the others.
type live struct{}

func (live) Access(_ context.Context, address string) (string, error) {
	if address == "https://example.org/" {
		return "An example.", nil
	}
	return "", &retrieval.RefusedError{URL: address, Reason: "it is local"}
}

func TestPagesOfTheWeb(t *testing.T) {
	search := fakeSearch()
	search.Live = live{}
	s := ready(search)
	want := `{"result":[{"page":"An example."},{"page":""}]}`
	if status, reply, _ := ask(s, "POST", "/access", `{"urls":["https://example.org/","http://127.0.0.1/"]}`); status != 200 || reply != want {
		t.Errorf("%d %s", status, reply)
	}
}

func TestServingEndsInGoodOrder(t *testing.T) {
	search, begun, release := heldSearch()
	s := ready(search)
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(listener.Addr().String()); err == nil || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("a port that is taken: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, time.Minute) }()
	replies := make(chan string, 1)
	go func() {
		resp, err := http.Post("http://"+listener.Addr().String()+"/retrieve", "application/json", strings.NewReader(`{"queries":["a"],"topk":1}`))
		if err != nil {
			replies <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		replies <- string(body)
	}()
	<-begun
	stop()
	close(release)
	if reply := <-replies; !strings.Contains(reply, `<mem> & 0`) {
		t.Errorf("the request under way got %s", reply)
	}
	if err := <-ended; err != nil {
		t.Errorf("serving ended with %v", err)
	}
}

func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		`{"queries":["capital of Peru"],"topk":2,"return_scores":true}`, `{"vectors":[[1,2]]}`, `{"urls":["a"]}`, `{"queries":"\ud800"}`,
		`{"queries":["a"],"topk":1e400}`, "\xff", `{"queries":[[]],"vectors":null}`,
	} {
		f.Add([]byte(seed))
	}
	s := ready(fakeSearch())
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/retrieve", "/access"} {
			status, reply, _ := ask(s, "POST", path, string(body))
			if !json.Valid([]byte(reply)) || status != 200 && status != 400 && status != 413 && !strings.Contains(reply, errDisk.Error()) {
				t.Errorf("%s %q: %d %s", path, body, status, reply)
			}
		}
	})
}
