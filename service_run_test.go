package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/retrieval"
)

// freeAddress is one that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// serviceConfig is a service over the corpus of a run.
func serviceConfig(t *testing.T, runPath, address string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "retrieve.toml"), `[retrieve]`, `index = "`+indexOf(t, runPath)+`"`, `listen = "`+address+`"`)
}

func startService(t *testing.T, config string) *running {
	t.Helper()
	r := startCommand(t, "retrieve", config)
	if !r.until("listening on") {
		t.Fatalf("the service does not begin: %q", r.lines)
	}
	return r
}

// fragile passes requests on to a service and kills it in the middle of a run: the request after so
// many good ones finds it dead, and so do the next ones, until it is started again.
type fragile struct {
	t       *testing.T
	config  string
	to      string
	good    int // requests until it is killed
	refused int // requests until it is back
	mutex   sync.Mutex
	asked   int
	service *running
}

func (f *fragile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	body, _ := io.ReadAll(r.Body)
	f.asked++
	switch f.asked {
	case f.good + 1:
		f.service.signal(f.t, syscall.SIGKILL)
		f.service.end()
	case f.good + f.refused + 1:
		f.service = startService(f.t, f.config)
	}
	reply, err := http.Post(f.to+r.URL.Path, "application/json", bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler) // the trainer's connection breaks as this one did
	}
	defer reply.Body.Close()
	w.WriteHeader(reply.StatusCode)
	_, _ = io.Copy(w, reply.Body)
}

// A run whose search service is killed and started again goes on: what failed meanwhile is counted
// and kept out, and what comes after is as before.
func TestTheServiceIsKilledInTheMiddle(t *testing.T) {
	path, runDir := tinyConfig(t, taughtFolder(t, "qwen2-tiny"))
	address := freeAddress(t)
	f := &fragile{t: t, config: serviceConfig(t, path, address), to: "http://" + address, good: 20, refused: 5}
	f.service = startService(t, f.config)
	passing := httptest.NewServer(f)
	defer passing.Close()
	if err := runTrain(t.Context(), path, searching(passing.URL, "tools.search.timeout_s=60", "run.steps=8", "tools.max_failed_steps=8"), nil); err != nil {
		t.Fatal(err)
	}
	lines := metricLines(t, runDir)
	everyStepOnce(t, runDir, 8)
	failed := 0
	for _, line := range lines {
		failed += int(line["tools/failed"].(float64))
	}
	found := 0
	for _, record := range records(t, runDir, 8) {
		for _, turn := range record.Turns {
			found += strings.Count(turn.Result, "Doc 1(")
		}
	}
	if last := lines[7]["tools/failed"].(float64); failed == 0 || failed > f.refused || last != 0 {
		t.Errorf("%d failed calls in the metrics, %v of them in the last step; %d were refused", failed, last, f.refused)
	}
	if f.asked <= f.good+f.refused || found == 0 {
		t.Errorf("%d searches in all; the last step found nothing", f.asked)
	}
	f.service.signal(t, syscall.SIGTERM)
	if code, took := f.service.end(); code != codeTerminated || took > 20*time.Second {
		t.Errorf("the service ended with %d after %s", code, took)
	}
}

// 512 searches at once are all answered: by a service that may have 256 files open, of a client that
// may have as many as it wants, and of one with the same limit.
func TestManySearchesWithFewFiles(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	address := freeAddress(t)
	own := process("retrieve", serviceConfig(t, path, address))
	limited := exec.Command("sh", "-c", `ulimit -n 256 && exec "$@"`, "sh", own.Path, own.Args[1], own.Args[2])
	limited.Env, limited.Stderr = own.Env, &bytes.Buffer{}
	if err := limited.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = limited.Process.Kill(); _ = limited.Wait() }()
	searchAtOnce(t, "http://"+address, 512)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 256
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	searchAtOnce(t, "http://"+address, 512)
}

func searchAtOnce(t *testing.T, url string, n int) {
	t.Helper()
	client, err := retrieval.NewHTTP(retrieval.HTTPOptions{URL: url, Timeout: time.Minute, Tries: 10, Concurrency: n})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Search(t.Context(), "a", 1); err != nil { // the service begins
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			found, err := client.Search(t.Context(), "a", 1)
			if err != nil || len(found) != 1 || found[0].Contents != "\"a\"\nx" {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
	group.Wait()
	if retries := client.Stats().Retries; retries > int64(n) {
		t.Errorf("%d retries", retries)
	}
}
