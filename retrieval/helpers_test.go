package retrieval

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// client makes a client that waits little between its tries, and shows its log.
func client(t *testing.T, options HTTPOptions) (*HTTP, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	options.Logger = zap.New(core)
	if options.MinBackoff == 0 {
		options.MinBackoff, options.MaxBackoff = time.Millisecond, 4*time.Millisecond
	}
	h, err := NewHTTP(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, logs
}

// service serves each request with the next of the handlers, the last one for ever, and counts.
func service(t *testing.T, handlers ...http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1))
		handlers[min(n, len(handlers))-1](w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func reply(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// raw accepts connections and lets talk do with each what it likes, until the test ends.
func raw(t *testing.T, talk func(conn net.Conn, stop <-chan struct{})) (address string, connections *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); listener.Close() })
	connections = new(atomic.Int64)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			go func() {
				defer conn.Close()
				talk(conn, stop)
			}()
		}
	}()
	return listener.Addr().String(), connections
}

// readRequest reads a request up to the end of its head.
func readRequest(conn net.Conn) {
	buffer, seen := make([]byte, 4096), ""
	for !strings.Contains(seen, "\r\n\r\n") {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		seen += string(buffer[:n])
	}
}

// serviceError is the *ServiceError in err, or ends the test.
func serviceError(t *testing.T, err error) *ServiceError {
	t.Helper()
	var failure *ServiceError
	if !errors.As(err, &failure) {
		t.Fatalf("not a service error: %v", err)
	}
	return failure
}

const twoPassages = `{"result":[[{"document":{"id":"17","contents":"\"Lima\"\nLima is the capital."},"score":0.9},{"document":{"id":4,"contents":"c"},"score":1}]]}`
