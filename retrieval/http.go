package retrieval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"go.uber.org/zap"

	addresses "github.com/mempo-train/mempo-train/retrieval/address"
)

// HTTPOptions say how a service is called. A zero value stands for the default in brackets.
type HTTPOptions struct {
	// URL is the address of the service; "/retrieve" and "/access" are appended to its path, in
	// place of one of them that is already there. It is trusted, loopback included.
	URL            string
	ConnectTimeout time.Duration // to connect, TLS included [5 s]
	Timeout        time.Duration // of one try, from connecting to the last byte of the reply [10 s]
	Tries          int           // in all [3]
	MinBackoff     time.Duration // wait before the second try, doubled for each further one [250 ms]
	MaxBackoff     time.Duration // longest wait, also when a Retry-After asks for more [5 s]
	Concurrency    int           // requests in flight; further calls wait [64]
	MaxReplyBytes  int64         // of a reply's body, decompressed [16 MiB]
	// AllowHosts are the only hosts, in lower case, "host" or "host:port", whose pages are asked for.
	// Without any, every host is allowed that is not a local network's.
	AllowHosts []string
	// UseProxy takes the proxy from the environment (HTTPS_PROXY and its like).
	UseProxy bool
	// Service is what the errors of Search call the service ["search"].
	Service string
	Logger  *zap.Logger // gets every attempt: failed ones as warnings; nil for none
}

// HTTP speaks the protocol of Search-R1 style services: POST /retrieve and POST /access. It is
// safe for concurrent use. A call ends at the latest after Tries × Timeout, the waits between the
// tries and the time it waits for its turn, or when its context does; the error is then the
// context's own, wrapped, and no *ServiceError.
type HTTP struct {
	search, access string
	options        HTTPOptions
	client         *retryablehttp.Client
	transport      *transport
	counters       counters
	differingCount sync.Once
}

// NewHTTP checks the options; it does not connect.
func NewHTTP(options HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(options.URL)
	if err != nil {
		return nil, fmt.Errorf("address of the service: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("address of the service: %q, want http://host:port or https://…", options.URL)
	}
	if err := options.setDefaults(); err != nil {
		return nil, fmt.Errorf("service %s: %w", u.Redacted(), err)
	}
	path := strings.TrimRight(u.Path, "/")
	path = strings.TrimSuffix(strings.TrimSuffix(path, "/retrieve"), "/access")
	endpoint := func(name string) string {
		e := *u
		e.Path, e.RawPath = path+name, ""
		return e.String()
	}
	h := &HTTP{search: endpoint("/retrieve"), access: endpoint("/access"), options: options}
	h.transport = newTransport(options, &h.counters)
	h.client = &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     h.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		RetryMax:     options.Tries - 1,
		RetryWaitMin: options.MinBackoff,
		RetryWaitMax: options.MaxBackoff,
		CheckRetry:   checkRetry,
		Backoff:      backoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return h, nil
}

func (o *HTTPOptions) setDefaults() error {
	if o.ConnectTimeout < 0 || o.Timeout < 0 || o.Tries < 0 || o.MinBackoff < 0 || o.MaxBackoff < 0 || o.Concurrency < 0 || o.MaxReplyBytes < 0 {
		return errors.New("time-outs, tries, waits, concurrency and reply size must not be negative")
	}
	o.ConnectTimeout = orDefault(o.ConnectTimeout, 5*time.Second)
	o.Timeout = orDefault(o.Timeout, 10*time.Second)
	o.Tries = orDefault(o.Tries, 3)
	o.MinBackoff = orDefault(o.MinBackoff, 250*time.Millisecond)
	o.MaxBackoff = max(orDefault(o.MaxBackoff, 5*time.Second), o.MinBackoff)
	o.Concurrency = orDefault(o.Concurrency, 64)
	o.MaxReplyBytes = orDefault(o.MaxReplyBytes, 16<<20)
	o.Service = orDefault(o.Service, "search")
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return nil
}

func orDefault[T comparable](v, standard T) T {
	var zero T
	if v == zero {
		return standard
	}
	return v
}

// Search asks for the topk passages of one query and returns at most that many, in the order of
// the reply. Fewer are no error; that the count differs is logged once.
func (h *HTTP) Search(ctx context.Context, query string, topk int) ([]Passage, error) {
	if topk < 1 {
		return nil, fmt.Errorf("topk is %d, want at least 1", topk)
	}
	request := struct {
		Queries      []string `json:"queries"`
		TopK         int      `json:"topk"`
		ReturnScores bool     `json:"return_scores"`
	}{[]string{query}, topk, true}
	var passages []Passage
	err := h.call(ctx, h.options.Service, h.search, request, func(body []byte) error {
		results, err := parseRetrieve(body, 1)
		if err != nil {
			return err
		}
		passages = results[0]
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(passages) != topk {
		h.differingCount.Do(func() {
			h.options.Logger.Warn("the search service returned another number of passages than asked for (said once)",
				zap.String("url", redact(h.search)), zap.Int("topk", topk), zap.Int("returned", len(passages)))
		})
	}
	return passages[:min(topk, len(passages))], nil
}

// Access asks for the text of the page at an address; "" means that the service found none.
// Addresses that are not http(s), carry a user name, or lead into the local network are refused
// without asking the service.
func (h *HTTP) Access(ctx context.Context, address string) (string, error) {
	if _, err := addresses.Parse(address, h.options.AllowHosts); err != nil {
		return "", Refuse(address, err.Error())
	}
	request := struct {
		URLs []string `json:"urls"`
	}{[]string{address}}
	var page string
	err := h.call(ctx, "access", h.access, request, func(body []byte) error {
		pages, err := parseAccess(body, 1)
		if err != nil {
			return err
		}
		page = pages[0]
		return nil
	})
	return page, err
}

// Close drops idle connections.
func (h *HTTP) Close() { h.transport.base.CloseIdleConnections() }

// call posts a request and hands the body of a good reply to parse.
func (h *HTTP) call(ctx context.Context, service, address string, request any, parse func([]byte) error) error {
	started := time.Now()
	attempts := &attempts{}
	err := h.post(context.WithValue(ctx, attemptsKey{}, attempts), address, request, parse)
	h.counters.calls.Add(1)
	h.counters.latency.Add(int64(time.Since(started)))
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		h.counters.abandoned.Add(1)
		return fmt.Errorf("%s service %s: given up in attempt %d: %w", service, redact(address), attempts.sent, ctx.Err())
	}
	h.counters.failures.Add(1)
	failure := &ServiceError{
		Service: service, URL: redact(address), Attempts: attempts.sent, Timeouts: attempts.timeouts,
		Kind: KindReply, Detail: err.Error(),
	}
	var attempt *attemptError
	if errors.As(err, &attempt) {
		failure.Kind, failure.Detail = attempt.kind, attempt.detail
	}
	return failure
}

func (h *HTTP) post(ctx context.Context, address string, request any, parse func([]byte) error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reply := resp.Body.(*replyBody) // put there by transport, whole
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &attemptError{kind: KindStatus, detail: fmt.Sprintf("%s, body %q", resp.Status, firstBytes(reply.whole))}
	}
	return parse(reply.whole)
}

// checkRetry says which attempts are repeated: see the kinds of a ServiceError.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var attempt *attemptError
		return errors.As(err, &attempt) && attempt.transient, nil
	}
	return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, nil
}

// backoff doubles from shortest to longest, or follows a Retry-After within the same bounds; up
// to a quarter more is random, so that calls that failed together do not come back together.
func backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := retryablehttp.DefaultBackoff(shortest, longest, attempt, resp)
	wait = min(max(wait, shortest), longest)
	return wait + rand.N(wait/4+1)
}

// redact hides the password in an address.
func redact(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(unreadable address)"
	}
	return u.Redacted()
}
