// Package web fetches pages of the live web for a language model, whose addresses nobody has
// checked: only public addresses are connected to, every hop of a redirect is checked like the
// first, and time, size, kind and number of what comes back are bounded.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/address"
)

const (
	maxRedirects   = 5
	maxHeaderBytes = 64 << 10
	connectTimeout = 5 * time.Second
	minBackoff     = 250 * time.Millisecond // before the second try, doubled for each further one
	maxBackoff     = 5 * time.Second
)

// Options say how pages are fetched. A zero value stands for the default in brackets.
type Options struct {
	// AllowHosts are the only hosts that are opened, in lower case: "host", or "host:port". They are
	// trusted, local ones included. Without any, every public host is opened, on the ports 80 and 443.
	AllowHosts   []string
	Timeout      time.Duration // of one try, over all its redirects; the wait for a turn does not count [10 s]
	Tries        int           // in all [3]
	Concurrency  int           // pages fetched at the same time; further ones wait [64]
	MaxBytes     int64         // that are read of a page, decompressed; what is behind them is cut off [4 MiB]
	PerSecond    float64       // requests to one host; 0 is no bound
	IgnoreRobots bool          // do not ask robots.txt
	UserAgent    string        // ["mempo-train"]
	Logger       *zap.Logger   // gets every failed try; nil for none

	// Resolver and Dial take the place of the system's, for tests. Dial gets IP addresses only.
	Resolver Resolver
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o *Options) setDefaults() {
	o.Timeout = orDefault(o.Timeout, 10*time.Second)
	o.Tries = orDefault(o.Tries, 3)
	o.Concurrency = orDefault(o.Concurrency, 64)
	o.MaxBytes = orDefault(o.MaxBytes, 4<<20)
	o.UserAgent = orDefault(o.UserAgent, "mempo-train")
	o.Logger = orDefault(o.Logger, zap.NewNop())
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
}

func orDefault[T comparable](v, standard T) T {
	var zero T
	if v == zero {
		return standard
	}
	return v
}

// Fetcher is a retrieval.Accessor of the live web. It keeps no cookies, sends no credentials and
// goes through no proxy, which would connect in its place. It is safe for concurrent use.
type Fetcher struct {
	options   Options
	transport *http.Transport
	slots     chan struct{}
	hosts     *hosts
}

// New makes a fetcher; it does not connect.
func New(options Options) *Fetcher {
	options.setDefaults()
	g := &guard{allowed: options.AllowHosts, resolver: options.Resolver, dial: options.Dial}
	return &Fetcher{
		options: options,
		transport: &http.Transport{
			DialContext:            g.DialContext,
			TLSHandshakeTimeout:    connectTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			MaxIdleConns:           options.Concurrency,
			IdleConnTimeout:        30 * time.Second,
		},
		slots: make(chan struct{}, options.Concurrency),
		hosts: newHosts(options.PerSecond),
	}
}

// Close drops idle connections.
func (f *Fetcher) Close() { f.transport.CloseIdleConnections() }

// Access returns the text of the page at an address; "" means that there is none, or nothing on it. It
// is a *retrieval.RefusedError when the address is not a public page's, there is no such host, the
// host's robots.txt or the host itself forbids it, it redirects more than five times, or is no text.
// It is a *retrieval.ServiceError when the host fails: a time-out, a broken connection, a status of 500
// and above or 429, after all tries.
func (f *Fetcher) Access(ctx context.Context, page string) (string, error) {
	failure := &retrieval.ServiceError{Service: "access", URL: page[:min(len(page), 200)]}
	for {
		failure.Attempts++
		text, err := f.try(ctx, page)
		var failed *hostError
		switch {
		case err == nil:
			return text, nil
		case ctx.Err() != nil:
			return "", fmt.Errorf("access to %q: given up in attempt %d: %w", failure.URL, failure.Attempts, ctx.Err())
		case !errors.As(err, &failed):
			return "", err
		}
		f.options.Logger.Warn("access: attempt failed", zap.String("url", failure.URL), zap.Int("attempt", failure.Attempts), zap.Error(err))
		failure.Kind, failure.Detail = failed.kind, failed.detail
		if failed.kind == retrieval.KindTimeout {
			failure.Timeouts++
		}
		if !failed.transient || failure.Attempts >= f.options.Tries {
			return "", failure
		}
		if err := sleep(ctx, min(minBackoff<<(failure.Attempts-1), maxBackoff)); err != nil {
			return "", fmt.Errorf("access to %q: given up after attempt %d: %w", failure.URL, failure.Attempts, err)
		}
	}
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hostError is why one try failed through no doing of the model's.
type hostError struct {
	kind, detail string
	transient    bool
}

func (e *hostError) Error() string { return e.kind + ": " + e.detail }

// try fetches a page once, over its redirects.
func (f *Fetcher) try(ctx context.Context, page string) (string, error) {
	budget := f.options.Timeout
	target := page
	for range maxRedirects + 1 {
		u, err := address.Parse(target, f.options.AllowHosts)
		if err != nil {
			return "", retrieval.Refuse(page, err.Error())
		}
		if allowed, err := f.permitted(ctx, u, &budget); err != nil {
			return "", f.explain(page, err)
		} else if !allowed {
			return "", retrieval.Refuse(page, "the site's robots.txt does not allow it")
		}
		reply, err := f.get(ctx, wanted{u, f.options.MaxBytes, false}, &budget)
		if err != nil {
			return "", f.explain(page, err)
		}
		if next := reply.redirect; next != nil {
			target = next.String()
			continue
		}
		return reply.text(page)
	}
	return "", retrieval.Refuse(page, fmt.Sprintf("it redirects more than %d times", maxRedirects))
}

// explain makes a refusal of what the address itself is to blame for.
func (f *Fetcher) explain(page string, err error) error {
	for _, own := range []error{errNotPublic, errNoHost} {
		if errors.Is(err, own) {
			return retrieval.Refuse(page, own.Error())
		}
	}
	return err
}

// failed is the failure that a status stands for, or nil.
func (r *reply) failed() error {
	if r.status != http.StatusTooManyRequests && r.status < 500 {
		return nil
	}
	return &hostError{retrieval.KindStatus, fmt.Sprintf("%d %s", r.status, http.StatusText(r.status)), true}
}

// text reads what came back for a page.
func (r *reply) text(page string) (string, error) {
	if failed := r.failed(); failed != nil {
		return "", failed
	}
	switch {
	case r.status == http.StatusNotFound, r.status == http.StatusGone:
		return "", nil
	case r.status < 200 || r.status > 299:
		return "", retrieval.Refuse(page, fmt.Sprintf("the site answers %d %s", r.status, http.StatusText(r.status)))
	}
	if r.encoding != "" {
		return "", &hostError{retrieval.KindReply, fmt.Sprintf("its content-encoding is %.60q, which was not asked for", r.encoding), false}
	}
	text, refused := bodyText(r.body, r.contentType)
	if refused != "" {
		return "", retrieval.Refuse(page, refused)
	}
	return text, nil
}
