package retrieval

import (
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// drip writes a text byte by byte, for ever over again if it is repeated.
func drip(conn net.Conn, stop <-chan struct{}, text string, repeated bool) {
	for k := 0; repeated || k < len(text); k++ {
		if _, err := conn.Write([]byte{text[k%len(text)]}); err != nil {
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
	<-stop
}

func flood(conn net.Conn, head, body string) {
	readRequest(conn)
	_, err := io.WriteString(conn, head)
	body = strings.Repeat(body, 1000)
	for err == nil {
		_, err = io.WriteString(conn, body)
	}
}

// TestHostileServers: whatever a server does, the call ends, within its tries and time-outs.
func TestHostileServers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	cases := map[string]struct {
		scheme   string
		talk     func(conn net.Conn, stop <-chan struct{})
		kind     string
		attempts int
		timeouts int
	}{
		"accepts and never writes": {"http", func(_ net.Conn, stop <-chan struct{}) { <-stop }, KindTimeout, 2, 2},
		"accepts and never shakes hands": {
			"https", func(_ net.Conn, stop <-chan struct{}) { <-stop }, KindTimeout, 2, 2,
		},
		"drips its head": {"http", func(conn net.Conn, stop <-chan struct{}) {
			readRequest(conn)
			drip(conn, stop, head+strings.Repeat("X: y\r\n", 1000), false)
		}, KindTimeout, 2, 2},
		"drips its body": {"http", func(conn net.Conn, stop <-chan struct{}) {
			readRequest(conn)
			_, _ = io.WriteString(conn, head+"Content-Length: 1000000\r\n\r\n")
			drip(conn, stop, " ", true)
		}, KindTimeout, 2, 2},
		"stops inside its body": {"http", func(conn net.Conn, stop <-chan struct{}) {
			readRequest(conn)
			_, _ = io.WriteString(conn, head+"Content-Length: 1000000\r\n\r\n{\"result\":[[")
			<-stop
		}, KindTimeout, 2, 2},
		"sends a body without end": {"http", func(conn net.Conn, _ <-chan struct{}) {
			flood(conn, head+"\r\n", "[[[[[[[[[[")
		}, KindReply, 1, 0},
		"sends a head without end": {"http", func(conn net.Conn, _ <-chan struct{}) {
			flood(conn, head, "X: y\r\n")
		}, KindReply, 1, 0},
		"closes at once": {"http", func(net.Conn, <-chan struct{}) {}, KindReset, 2, 0},
		"closes inside its body": {"http", func(conn net.Conn, _ <-chan struct{}) {
			readRequest(conn)
			_, _ = io.WriteString(conn, head+"Content-Length: 9\r\n\r\n{")
		}, KindReset, 2, 0},
		"speaks no HTTP": {"http", func(conn net.Conn, stop <-chan struct{}) {
			readRequest(conn)
			_, _ = io.WriteString(conn, "220 mail ready\r\n\r\n")
			<-stop
		}, KindReply, 1, 0},
		"speaks no TLS": {"https", func(conn net.Conn, stop <-chan struct{}) {
			_, _ = io.WriteString(conn, strings.Repeat("\x00garbage", 100))
			<-stop
		}, KindReply, 1, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, _ := raw(t, c.talk)
			h, logs := client(t, HTTPOptions{URL: c.scheme + "://" + address, Timeout: 200 * time.Millisecond, Tries: 2, MaxReplyBytes: 1 << 20})
			started := time.Now()
			_, err := h.Search(t.Context(), "q", 3)
			took := time.Since(started)
			failure := serviceError(t, err)
			if failure.Kind != c.kind || failure.Attempts != c.attempts || failure.Timeouts != c.timeouts {
				t.Errorf("got %+v", failure)
			}
			if took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			if stats := h.Stats(); stats.Timeouts != int64(c.timeouts) || stats.Failures != 1 {
				t.Errorf("stats %+v", stats)
			}
			if n := logs.FilterMessage("tool service: attempt failed").Len(); n != c.attempts {
				t.Errorf("%d failed attempts in the log", n)
			}
		})
	}
}

func TestCompressedFlood(t *testing.T) {
	url, requests := service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.WriteString(packed, strings.Repeat(" ", 8<<20))
		_ = packed.Close()
	})
	h, _ := client(t, HTTPOptions{URL: url, MaxReplyBytes: 1 << 20})
	_, err := h.Search(t.Context(), "q", 3)
	if failure := serviceError(t, err); failure.Kind != KindReply || !strings.Contains(failure.Detail, "more than 1048576 bytes") || requests.Load() != 1 {
		t.Errorf("got %v", err)
	}
}

// TestStalledServerComesBack: a bounded client is free for the next call when a server that
// stalled comes back.
func TestStalledServerComesBack(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	url, _ := service(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}, reply(200, twoPassages))
	h, _ := client(t, HTTPOptions{URL: url, Timeout: 100 * time.Millisecond, Tries: 1, Concurrency: 1})
	_, err := h.Search(t.Context(), "q", 2)
	if failure := serviceError(t, err); failure.Kind != KindTimeout {
		t.Errorf("got %v", err)
	}
	if passages, err := h.Search(t.Context(), "q", 2); err != nil || len(passages) != 2 {
		t.Errorf("got %v, %v", passages, err)
	}
}
