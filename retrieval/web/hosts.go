package web

import (
	"bytes"
	"context"
	"net/url"
	"regexp"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/temoto/robotstxt"
	"golang.org/x/time/rate"

	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/address"
)

const (
	maxHosts       = 4096      // that are remembered
	maxRobotsBytes = 512 << 10 // RFC 9309 asks for 500 KiB at least
	robotsLife     = time.Hour // after which robots.txt is read again
	robotsAgent    = "mempo-train"
)

// hosts remembers the hosts that were talked to most recently.
type hosts struct {
	perSecond float64
	mutex     sync.Mutex
	known     *lru.Cache[string, *host]
}

// host is what is known of one scheme, host and port.
type host struct {
	turns *rate.Limiter

	reading chan struct{} // holds a token while nobody reads robots.txt
	robots  *robotstxt.RobotsData
	read    time.Time
}

func newHosts(perSecond float64) *hosts {
	known, err := lru.New[string, *host](maxHosts)
	if err != nil {
		panic(err) // for a size below 1 only
	}
	return &hosts{perSecond: perSecond, known: known}
}

func (h *hosts) of(u *url.URL) *host {
	key := u.Scheme + "://" + u.Hostname() + ":" + address.Port(u)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if known, ok := h.known.Get(key); ok {
		return known
	}
	limit := rate.Limit(h.perSecond)
	if h.perSecond <= 0 {
		limit = rate.Inf
	}
	added := &host{turns: rate.NewLimiter(limit, 1), reading: make(chan struct{}, 1)}
	added.reading <- struct{}{}
	h.known.Add(key, added)
	return added
}

// wait waits for the host's next turn, or fails at once when that comes behind the deadline of ctx.
func (h *host) wait(ctx context.Context) error {
	err := h.turns.Wait(ctx)
	if err != nil && ctx.Err() == nil {
		return &hostError{retrieval.KindTimeout, "too many requests to this host: its turn comes too late", false}
	}
	return err
}

// permitted reports whether the host's robots.txt lets a page be fetched: one that is missing lets
// all. One that the host fails to show, with a status of 500 and above or 429, is the host's failure.
func (f *Fetcher) permitted(ctx context.Context, u *url.URL, budget *time.Duration) (bool, error) {
	if f.options.IgnoreRobots {
		return true, nil
	}
	h := f.hosts.of(u)
	select {
	case <-h.reading:
		defer func() { h.reading <- struct{}{} }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if h.robots == nil || time.Since(h.read) > robotsLife {
		robots, err := f.readRobots(ctx, u, budget)
		if err != nil {
			return false, err
		}
		h.robots, h.read = robots, time.Now()
	}
	return h.robots.TestAgent(u.RequestURI(), robotsAgent), nil
}

var robotsRule = regexp.MustCompile(`(?mi)^[ \t]*(user-agent|allow|disallow)[ \t]*:.*$`)

// parseRobots reads the rules of a robots.txt. The library refuses a file for a line that it does not
// understand, so other lines are left out; a file that it refuses still says nothing.
func parseRobots(status int, body []byte) (*robotstxt.RobotsData, error) {
	lines := robotsRule.FindAll([]byte(printable(string(body))), -1)
	robots, err := robotstxt.FromStatusAndBytes(status, bytes.Join(lines, []byte("\n")))
	if err != nil {
		return robotstxt.FromBytes(nil)
	}
	return robots, nil
}

// readRobots reads the robots.txt of a host. A redirect is followed within the host's own rules of
// safety; one that leads nowhere counts as a missing file, as RFC 9309 says.
func (f *Fetcher) readRobots(ctx context.Context, u *url.URL, budget *time.Duration) (*robotstxt.RobotsData, error) {
	target := &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/robots.txt"}
	for range maxRedirects + 1 {
		r, err := f.get(ctx, wanted{target, maxRobotsBytes, true}, budget)
		if err != nil {
			return nil, err
		}
		if failed := r.failed(); failed != nil {
			return nil, failed
		}
		if r.redirect == nil {
			return parseRobots(r.status, r.body)
		}
		if target, err = address.Parse(r.redirect.String(), f.options.AllowHosts); err != nil {
			break
		}
	}
	return robotstxt.FromBytes(nil)
}
