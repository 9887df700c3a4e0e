// Package service answers searches over HTTP in the protocol of Search-R1: POST /retrieve and POST
// /access, with GET /health and GET /metrics beside them.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/mempo-train/mempo-train/retrieval"
)

// Search is what a service searches. All of it is safe for concurrent use.
type Search struct {
	Texts   func(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error)    // nil where it cannot
	Vectors func(ctx context.Context, queries [][]float32, topk int) ([][]retrieval.Scored, error) // nil where it cannot
	// Dimensions is the length of a vector.
	Dimensions int
	// Coalesce puts requests that come in while a search runs together into the next one.
	Coalesce bool
	// Page is the text that the corpus has for an address or a title, "" for none.
	Page func(address string) (string, error)
	// Live opens the pages that the corpus does not have; nil: nobody does.
	Live retrieval.Accessor
	// About is shown by /health.
	About map[string]any
}

// Service is an HTTP handler. Until Ready is called it answers that it is loading.
type Service struct {
	limits  Limits
	timeout time.Duration
	log     *zap.Logger
	metrics *metrics
	search  atomic.Pointer[Search]
	slots   chan struct{}
	room    room
	mux     *http.ServeMux
	crowded func() bool
}

// mostCoalesced are the queries that one search takes.
const mostCoalesced = 256

// New makes a service whose requests may take so long.
func New(limits Limits, timeout time.Duration, log *zap.Logger) *Service {
	s := &Service{
		limits: limits, timeout: timeout, log: log, metrics: newMetrics(),
		slots: make(chan struct{}, limits.Concurrency), room: newRoom(limits), mux: http.NewServeMux(), crowded: func() bool { return false },
	}
	s.mux.Handle("/retrieve", s.endpoint(http.MethodPost, s.retrieve))
	s.mux.Handle("/access", s.endpoint(http.MethodPost, s.access))
	s.mux.Handle("/health", s.endpoint(http.MethodGet, s.health))
	s.mux.Handle("/metrics", s.metrics.handler())
	s.mux.Handle("/", s.endpoint("", func(r *call, _ *Search) (any, error) {
		return nil, &statusError{http.StatusNotFound, fmt.Errorf("there is no %.100q; there are /retrieve, /access, /health and /metrics", r.URL.Path)}
	}))
	return s
}

// Ready begins to answer searches.
func (s *Service) Ready(search Search) {
	if search.Coalesce {
		var waiting []func() int
		if search.Texts != nil {
			texts := retrieval.NewCoalescer(mostCoalesced, search.Texts, s.metrics.batch)
			search.Texts, waiting = texts.Search, append(waiting, texts.Waiting)
		}
		if search.Vectors != nil {
			vectors := retrieval.NewCoalescer(mostCoalesced, search.Vectors, s.metrics.batch)
			search.Vectors, waiting = vectors.Search, append(waiting, vectors.Waiting)
		}
		s.metrics.showWaiting(waiting)
	}
	s.search.Store(&search)
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// statusError is an error with the status that a client sees it under.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func bad(err error) error {
	if errors.Is(err, errTooMuch) {
		return &statusError{http.StatusRequestEntityTooLarge, err}
	}
	return &statusError{http.StatusBadRequest, err}
}

// endpoint answers requests of one method ("" is all) with what answer returns, as JSON.
func (s *Service) endpoint(method string, answer func(*call, *Search) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		c := &call{Request: r}
		defer s.room.leave(c)
		reply, err := s.guarded(w, c, method, answer)
		status := http.StatusOK
		if err != nil {
			status, reply = s.refusal(w, r, err)
		}
		if s.crowded() {
			w.Header().Set("Connection", "close") // others wait for the place
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(reply); err != nil {
			s.log.Debug("a client did not take its reply", zap.Error(err))
		}
		s.metrics.answered(r.URL.Path, status, time.Since(begin))
	})
}

// guarded answers a request within the limits.
func (s *Service) guarded(w http.ResponseWriter, r *call, method string, answer func(*call, *Search) (any, error)) (any, error) {
	if method != "" && r.Method != method {
		w.Header().Set("Allow", method)
		return nil, &statusError{http.StatusMethodNotAllowed, fmt.Errorf("%s takes %s, found %.20q", r.URL.Path, method, r.Method)}
	}
	search := s.search.Load()
	if search == nil {
		return nil, &statusError{http.StatusServiceUnavailable, errors.New("the index is being loaded")}
	}
	if r.ContentLength > s.limits.BodyBytes { // it says so itself: nothing of it need be waited for
		return nil, &http.MaxBytesError{Limit: s.limits.BodyBytes}
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return nil, &statusError{http.StatusServiceUnavailable, fmt.Errorf("%d requests are under way, which is the limit", s.limits.Concurrency)}
	}
	s.metrics.underWay.Inc()
	defer s.metrics.underWay.Dec()
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	r.Request = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, s.limits.BodyBytes)
	return answer(r, search)
}

// refusal is the status and the reply for an error.
func (s *Service) refusal(w http.ResponseWriter, r *http.Request, err error) (status int, reply any) {
	var known *statusError
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.As(err, &tooLong):
		status, err = http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", tooLong.Limit)
	case errors.Is(err, context.DeadlineExceeded):
		status, err = http.StatusServiceUnavailable, fmt.Errorf("no answer within %s", s.timeout)
	case r.Context().Err() != nil:
		status = http.StatusServiceUnavailable // nobody reads it
	default:
		status = http.StatusInternalServerError
		s.log.Error("a search failed", zap.String("path", r.URL.Path), zap.Error(err))
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	return status, map[string]string{"error": err.Error()}
}

func (s *Service) readBody(r *call) ([]byte, error) {
	if err := s.room.admit(r, s.limits.BodyBytes); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(r.Body)
	var tooLong *http.MaxBytesError
	if err != nil && !errors.As(err, &tooLong) && r.Context().Err() == nil {
		return nil, bad(fmt.Errorf("the body cannot be read: %w", err))
	}
	return body, err
}

// document is a passage on the wire.
type document struct {
	ID       string `json:"id"`
	Contents string `json:"contents"`
}

type scoredDocument struct {
	Document document `json:"document"`
	Score    float64  `json:"score"`
}

type result[T any] struct {
	Result []T `json:"result"`
}

func (s *Service) retrieve(r *call, search *Search) (any, error) {
	body, err := s.readBody(r)
	if err != nil {
		return nil, err
	}
	request, err := parseRetrieve(body, s.limits, search.Dimensions)
	if err != nil {
		return nil, bad(err)
	}
	if err := s.room.take(r, int64(len(request.queries)+len(request.vectors))*int64(request.topk)); err != nil {
		return nil, err
	}
	var found [][]retrieval.Scored
	switch {
	case len(request.queries)+len(request.vectors) == 0:
	case request.vectors != nil:
		found, err = search.Vectors(r.Context(), request.vectors, request.topk)
	case search.Texts == nil:
		return nil, bad(errors.New("this service has no encoder: it takes vectors in the place of queries"))
	default:
		found, err = search.Texts(r.Context(), request.queries, request.topk)
	}
	if err != nil {
		return nil, err
	}
	if request.withScores {
		return result[[]scoredDocument]{eachOf(found, func(p retrieval.Scored) scoredDocument {
			return scoredDocument{document{p.ID, p.Contents}, p.Score}
		})}, nil
	}
	return result[[]document]{eachOf(found, func(p retrieval.Scored) document { return document{p.ID, p.Contents} })}, nil
}

// eachOf puts the passages of each query in the shape of the wire; lists are never null.
func eachOf[T any](found [][]retrieval.Scored, shape func(retrieval.Scored) T) [][]T {
	lists := make([][]T, len(found))
	for q, passages := range found {
		lists[q] = make([]T, len(passages))
		for k, p := range passages {
			lists[q][k] = shape(p)
		}
	}
	return lists
}

// pagesAtOnce are the pages of one request that are opened at the same time.
const pagesAtOnce = 8

type page struct {
	Page string `json:"page"`
}

func (s *Service) access(r *call, search *Search) (any, error) {
	body, err := s.readBody(r)
	if err != nil {
		return nil, err
	}
	addresses, err := parseAccess(body, s.limits)
	if err != nil {
		return nil, bad(err)
	}
	pages := make([]page, len(addresses))
	group, ctx := errgroup.WithContext(r.Context())
	group.SetLimit(pagesAtOnce)
	for k, address := range addresses {
		group.Go(func() (err error) {
			pages[k].Page, err = s.page(ctx, search, address)
			return err
		})
	}
	return result[page]{pages}, group.Wait()
}

// page is that of the corpus, else that of the web. An address that is refused, or whose host
// fails, has none: neither is the fault of the other addresses.
func (s *Service) page(ctx context.Context, search *Search, address string) (string, error) {
	text, err := search.Page(address)
	if err != nil || text != "" || search.Live == nil {
		return text, err
	}
	text, err = search.Live.Access(ctx, address)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		s.log.Info("a page was not opened", zap.Error(err))
		return "", nil
	}
	return text, nil
}

func (s *Service) health(_ *call, search *Search) (any, error) {
	about := map[string]any{"status": "ok"}
	for name, value := range search.About {
		about[name] = value
	}
	return about, nil
}
