package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/mempo-train/mempo-train/retrieval"
)

// reply is what came back for one request.
type reply struct {
	status      int
	contentType string
	encoding    string // of the body; "" where it is plain, or was gzip
	body        []byte
	redirect    *url.URL // where to, else nil
}

// wanted is what a request is for.
type wanted struct {
	*url.URL
	limit   int64 // bytes of the body that are read
	anyType bool  // the body is read whatever its media type says; else only what can be read
}

// get sends one request when its host's turn and a slot are free, and reads the reply. It takes the
// time of that off the budget, and no more than there is.
func (f *Fetcher) get(ctx context.Context, w wanted, budget *time.Duration) (*reply, error) {
	if err := f.hosts.of(w.URL).wait(ctx); err != nil {
		return nil, err
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	started := time.Now()
	timed, cancel := context.WithTimeout(ctx, *budget)
	defer cancel()
	defer func() { *budget -= time.Since(started) }()
	r, err := f.exchange(timed, w)
	switch {
	case err == nil || ctx.Err() != nil:
		return r, err
	case errors.Is(err, errNotPublic), errors.Is(err, errNoHost):
		return nil, err
	case timed.Err() != nil:
		return nil, &hostError{retrieval.KindTimeout, fmt.Sprintf("no whole page within %s", f.options.Timeout), true}
	}
	kind, transient := retrieval.WireKind(err)
	return nil, &hostError{kind, err.Error(), transient}
}

func (f *Fetcher) exchange(ctx context.Context, w wanted) (*reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", f.options.UserAgent)
	request.Header.Set("Accept", "text/html, application/xhtml+xml, text/plain, application/json, text/*;q=0.8")
	response, err := f.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	r := &reply{status: response.StatusCode, contentType: response.Header.Get("Content-Type"), encoding: response.Header.Get("Content-Encoding")}
	if isRedirect(r.status) && response.Header.Get("Location") != "" {
		r.redirect, err = w.Parse(response.Header.Get("Location"))
		if err != nil {
			r.redirect = &url.URL{} // which is refused
		}
		return r, nil
	}
	if media := mediaType(r.contentType); r.status/100 != 2 || !w.anyType && media != "" && kindOf(media) == unreadable {
		return r, nil // its body is not looked at
	}
	r.body, err = io.ReadAll(io.LimitReader(response.Body, w.limit))
	return r, err
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
