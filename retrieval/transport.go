package retrieval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Stats counts what an HTTP client did since it was made.
type Stats struct {
	Calls     int64         // finished calls
	Retries   int64         // attempts beyond the first of a call
	Timeouts  int64         // attempts that ran into a time-out
	Failures  int64         // calls that ended in a *ServiceError
	Abandoned int64         // calls whose context ended first
	Latency   time.Duration // of all finished calls together, waits and retries included
	Queued    int64         // attempts that wait for their turn now
	InFlight  int64         // attempts under way now
}

type counters struct {
	calls, retries, timeouts, failures, abandoned, latency, queued, inFlight atomic.Int64
}

// Stats reads the counters, each by itself.
func (h *HTTP) Stats() Stats {
	c := &h.counters
	return Stats{
		Calls: c.calls.Load(), Retries: c.retries.Load(), Timeouts: c.timeouts.Load(),
		Failures: c.failures.Load(), Abandoned: c.abandoned.Load(), Latency: time.Duration(c.latency.Load()),
		Queued: c.queued.Load(), InFlight: c.inFlight.Load(),
	}
}

// attempts counts the attempts of one call, which run one after the other.
type attempts struct{ sent, timeouts int }

type attemptsKey struct{}

// attemptError is why one attempt brought no reply, or a wrong one.
type attemptError struct {
	kind      string
	detail    string
	transient bool // worth another attempt
}

func (e *attemptError) Error() string { return e.kind + ": " + e.detail }

// transport makes one attempt: it waits for its turn, sends the request and reads the whole reply
// within the time-out, so that a retry covers everything that can go wrong on the wire.
type transport struct {
	base     *http.Transport
	timeout  time.Duration
	maxBytes int64
	slots    chan struct{}
	counters *counters
	logger   *zap.Logger
}

func newTransport(o HTTPOptions, c *counters) *transport {
	base := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    o.ConnectTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    o.Concurrency,
		IdleConnTimeout:        60 * time.Second,
	}
	if o.UseProxy {
		base.Proxy = http.ProxyFromEnvironment
	}
	return &transport{
		base: base, timeout: o.Timeout, maxBytes: o.MaxReplyBytes,
		slots: make(chan struct{}, min(o.Concurrency, MostConnections())), counters: c, logger: o.Logger,
	}
}

// replyBody is the body of a reply that was already read.
type replyBody struct {
	bytes.Reader
	whole []byte
}

func (*replyBody) Close() error { return nil }

// RoundTrip implements http.RoundTripper. Its error is an *attemptError, or the context's.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.wait(req.Context()); err != nil {
		return nil, errors.Join(err, req.Body.Close())
	}
	defer func() { <-t.slots; t.counters.inFlight.Add(-1) }()
	attempts := req.Context().Value(attemptsKey{}).(*attempts)
	if attempts.sent++; attempts.sent > 1 {
		t.counters.retries.Add(1)
	}
	started := time.Now()
	resp, body, err := t.exchange(req)
	var failed *attemptError
	if errors.As(err, &failed) && failed.kind == KindTimeout {
		attempts.timeouts++
		t.counters.timeouts.Add(1)
	}
	t.log(req, attempts.sent, time.Since(started), resp, body, err)
	if err != nil {
		return nil, err
	}
	reply := &replyBody{whole: body}
	reply.Reset(body)
	resp.Body = reply
	return resp, nil
}

// wait takes a slot, or gives up with the context.
func (t *transport) wait(ctx context.Context) error {
	t.counters.queued.Add(1)
	defer t.counters.queued.Add(-1)
	select {
	case t.slots <- struct{}{}:
		t.counters.inFlight.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *transport) exchange(req *http.Request) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(req.Context(), t.timeout)
	defer cancel()
	resp, err := t.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, nil, t.classify(req.Context(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, t.maxBytes+1))
	if err != nil {
		return resp, body, t.classify(req.Context(), err)
	}
	if int64(len(body)) > t.maxBytes {
		return resp, body, &attemptError{kind: KindReply, detail: fmt.Sprintf("more than %d bytes, beginning with %q", t.maxBytes, firstBytes(body))}
	}
	return resp, body, nil
}

// classify gives an error of the wire its kind; the caller's own context goes first.
func (t *transport) classify(caller context.Context, err error) error {
	if caller.Err() != nil {
		return caller.Err()
	}
	kind, transient := WireKind(err)
	detail := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		detail = fmt.Sprintf("no whole reply within %s", t.timeout)
	}
	return &attemptError{kind, detail, transient}
}

// WireKind is the kind of a ServiceError for an error of a connection, and whether another try may go better.
func WireKind(err error) (kind string, transient bool) {
	var network net.Error
	var dial *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return KindTimeout, true
	case errors.Is(err, syscall.ECONNREFUSED):
		return KindRefused, true
	case broken(err):
		return KindReset, true
	case errors.As(err, &dial) && dial.Op == "dial":
		return KindUnreachable, true
	}
	return KindReply, false
}

// broken reports whether the other side, or something on the way, ended the connection. The last
// case is an unexported error of net/http.
func broken(err error) bool {
	for _, known := range []error{syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, known) {
			return true
		}
	}
	return strings.Contains(err.Error(), "server closed idle connection")
}

func (t *transport) log(req *http.Request, attempt int, took time.Duration, resp *http.Response, body []byte, err error) {
	fields := []zap.Field{
		zap.String("url", req.URL.Redacted()), zap.Int("attempt", attempt), zap.Duration("took", took),
		zap.Int64("queued", t.counters.queued.Load()), zap.Int64("in_flight", t.counters.inFlight.Load()),
	}
	if resp != nil {
		fields = append(fields, zap.Int("status", resp.StatusCode), zap.String("body", firstBytes(body)))
	}
	switch {
	case err != nil:
		t.logger.Warn("tool service: attempt failed", append(fields, zap.Error(err))...)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		t.logger.Warn("tool service: bad status", fields...)
	default:
		t.logger.Debug("tool service: attempt", fields...)
	}
}
