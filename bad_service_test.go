package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
)

// passages is a good reply to one query.
func passages(contents ...string) string {
	type document struct {
		ID       string `json:"id"`
		Contents string `json:"contents"`
	}
	type hit struct {
		Document document `json:"document"`
		Score    float64  `json:"score"`
	}
	hits := []hit{}
	for k, text := range contents {
		hits = append(hits, hit{document{fmt.Sprint(k), text}, 1})
	}
	reply, err := json.Marshal(map[string]any{"result": [][]hit{hits}})
	if err != nil {
		panic(err)
	}
	return string(reply)
}

func answerWith(reply string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, reply) }
}

// service is a search service that answers well so many times and then misbehaves.
func service(t *testing.T, well int64, then http.HandlerFunc) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that a client has gone
		if asked.Add(1) <= well {
			answerWith(passages("\"t\"\nx"))(w, r)
			return
		}
		then(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// searching is a config under which a taught model searches in every trajectory.
func searching(url string, more ...string) []string {
	return append([]string{
		"tools.search.backend=http", "tools.search.url=" + url, "tools.search.tries=1", "tools.search.timeout_s=5", "tools.cache_mib=0",
		"rollout.temperature=0.1", "optimizer.learning_rate=0", "loss.kl_coef=0",
	}, more...)
}

func records(t *testing.T, runDir string, step int) []rollout.Record {
	t.Helper()
	return recordsOf(t, filepath.Join(runDir, "trajectories", fmt.Sprintf("step_%06d.jsonl", step)))
}

func recordsOf(t *testing.T, path string) []rollout.Record {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []rollout.Record
	for line := range strings.Lines(string(data)) {
		var record rollout.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		all = append(all, record)
	}
	return all
}

func TestServicesThatMisbehave(t *testing.T) {
	path, _ := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	_, _ = packer.Write(bytes.Repeat([]byte(" "), 1<<20))
	_ = packer.Close()
	tests := []struct {
		name  string
		reply http.HandlerFunc
		named string // beside the address
		wait  string // tools.search.timeout_s
	}{
		{"no JSON", answerWith("garbage"), "broken JSON", "5"},
		{"a page of HTML", answerWith("<!doctype html><html><body>Bad gateway</body></html>"), "broken JSON", "5"},
		{"another schema", answerWith(`{"results":[]}`), "result", "5"},
		{"too few lists", answerWith(`{"result":[]}`), "list of 0", "5"},
		{"a list of numbers", answerWith(`{"result":[[1,2]]}`), "a number", "5"},
		{"cut JSON", answerWith(`{"result":[[{"document":{"contents":"x`), "broken JSON", "5"},
		{"nothing", answerWith(""), "broken JSON", "5"},
		{"status 500", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "out of shards", http.StatusInternalServerError)
		}, "out of shards", "5"},
		{"status 422", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "topk missing", http.StatusUnprocessableEntity)
		}, "topk missing", "5"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "302", "5"},
		{"nothing in time", hang, "time-out", "0.3"},
		{"half a reply in time", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"result":`)
			w.(http.Flusher).Flush()
			hang(w, r)
		}, "time-out", "0.3"},
		{"a broken connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "connection broken", "5"},
		{"a reply without end", func(w http.ResponseWriter, r *http.Request) {
			for spaces := strings.Repeat(" ", 1<<16); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, spaces); err != nil {
					return
				}
			}
		}, "16777216", "60"},
		{"a reply that unpacks without end", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			for r.Context().Err() == nil {
				if _, err := w.Write(packed.Bytes()); err != nil {
					return
				}
			}
		}, "16777216", "60"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			url, _ := service(t, 1, test.reply) // once, when the run asks whether it is there
			runDir := filepath.Join(t.TempDir(), "run")
			begun := time.Now()
			err := runTrain(t.Context(), path, searching(url, "run.dir="+runDir, "tools.search.timeout_s="+test.wait, "tools.max_failed_steps=1"), nil)
			refused(t, err, fault.CodeEnvironment, "search", url, test.named)
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
			if len(metricLines(t, runDir)) != 0 {
				t.Error("a step without a valid trajectory counts as trained")
			}
		})
		t.Run(test.name+", at the start", func(t *testing.T) {
			url, _ := service(t, 0, test.reply)
			err := runTrain(t.Context(), path, searching(url, "run.dir="+filepath.Join(t.TempDir(), "run"), "tools.search.timeout_s="+test.wait), nil)
			refused(t, err, fault.CodeEnvironment, "search", url, test.named)
		})
	}
}

func TestServiceThatIsNotThere(t *testing.T) {
	path, runDir := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	for _, url := range []string{"http://127.0.0.1:1", "https://127.0.0.1:1/path"} {
		refused(t, runTrain(t.Context(), path, searching(url), nil), fault.CodeEnvironment, "search", url)
	}
	if found, _ := filepath.Glob(filepath.Join(runDir, "checkpoints", "*")); len(found) > 0 {
		t.Errorf("checkpoints %v", found)
	}
}

// A service that dies under way: what was trained stands, and the run ends after three tries.
func TestServiceDiesUnderWay(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "llama-tiny"))
	url, asked := service(t, 1+2*8+3, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	err := runTrain(t.Context(), path, searching(url, "run.steps=50"), nil)
	refused(t, err, fault.CodeEnvironment, "3 steps in a row", "tools.max_failed_steps", url)
	lines := metricLines(t, runDir)
	everyStepOnce(t, runDir, len(lines))
	if len(lines) < 2 || len(lines) > 6 {
		t.Errorf("%d steps were trained", len(lines))
	}
	onlyTrained := records(t, runDir, len(lines))
	failed := 0
	for _, record := range onlyTrained {
		if !record.Stop.Failed() {
			continue
		}
		failed++
		if record.Score != nil || strings.Contains(fmt.Sprint(record.ResponseMask), "1") {
			t.Errorf("a failed trajectory has score %v and mask %v", record.Score, record.ResponseMask)
		}
	}
	if got := lines[len(lines)-1]["tools/failed"].(float64); failed == 0 || got == 0 {
		t.Errorf("%d failed trajectories and %v failed calls in the last step that was trained", failed, got)
	}
	before := asked.Load()

	// With another service the run goes on from its last checkpoint.
	good, _ := service(t, 0, answerWith(passages("\"t\"\ny")))
	if err := runTrain(t.Context(), path, searching(good, "run.steps="+fmt.Sprint(len(lines)+2)), nil); err != nil {
		t.Fatal(err)
	}
	everyStepOnce(t, runDir, len(lines)+2)
	if asked.Load() != before {
		t.Error("the old service was asked")
	}
}

func TestFailuresThatTheModelIsTold(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	url, _ := service(t, 1, answerWith("garbage"))
	if err := runTrain(t.Context(), path, searching(url, "tools.on_tool_failure=tell_model", "run.steps=1"), nil); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, record := range records(t, runDir, 1) {
		if record.Stop.Failed() {
			t.Errorf("a trajectory failed: %s", record.StopDetail)
		}
		for _, turn := range record.Turns {
			if turn.ToolError != "" {
				told++
			}
			if strings.Contains(turn.Result, url) || strings.Contains(turn.Result, "garbage") {
				t.Errorf("the model is told %q", turn.Result)
			}
		}
	}
	if told == 0 {
		t.Error("no trajectory was told of a failure")
	}
}

// What a service has answered once is not asked for again, and a run is the same with and without the
// cache. Of two services, one may be down.
func TestACacheAndASecondService(t *testing.T) {
	folder := taughtFolder(t, "qwen2-tiny")
	run := func(sets ...string) (lines []map[string]any, trajectories []rollout.Record) {
		path, runDir := tinyConfig(t, folder)
		train(t, path, sets...)
		return metricLines(t, runDir), records(t, runDir, 3)
	}
	url, asked := service(t, 1<<40, nil)
	down := "http://127.0.0.1:9" // the port of discard, where nobody listens
	plain, before := run(searching(url)...)
	calls := asked.Swap(0)
	cached, after := run(searching(url, "tools.cache_mib=1", fmt.Sprintf("tools.search.url=[%q, %q]", url, down), "tools.search.hedge_after_s=20")...)
	if asked.Load() >= calls {
		t.Errorf("%d requests, without the cache %d", asked.Load(), calls)
	}
	hits := 0.0
	for k := range cached {
		h, _ := cached[k]["tools/cache_hits"].(float64)
		hits += h
		for _, name := range []string{"tools/cache_hits", "tools/latency_s"} {
			delete(cached[k], name)
			delete(plain[k], name)
		}
	}
	if hits == 0 || !reflect.DeepEqual(cached, plain) {
		t.Errorf("%v hits; got %v, want %v", hits, cached, plain)
	}
	for k := range before {
		if !reflect.DeepEqual(before[k].ResponseIDs, after[k].ResponseIDs) {
			t.Errorf("trajectory %d is another one", k)
		}
	}
}
