// Package retrieval finds passages for a query and pages for an address. HTTP is a client of a
// search service; package index searches in-process.
package retrieval

import "context"

// Passage is one document of a corpus. Contents is the title in double quotes, a newline and the text.
type Passage struct {
	ID       string
	Contents string
}

// Searcher finds the passages that fit a query, best first, at most topk. It is safe for
// concurrent use. Failures of a service are *ServiceError.
type Searcher interface {
	Search(ctx context.Context, query string, topk int) ([]Passage, error)
}

// Accessor fetches the text of a page. A refused address is a *RefusedError, the caller's own
// doing; failures of a service are *ServiceError.
type Accessor interface {
	Access(ctx context.Context, url string) (string, error)
}

// Scored is a passage with how well it fits: the measure is the searcher's own, more is better.
type Scored struct {
	Passage
	Score float64
}

// BatchSearcher searches for several queries at once, as a Searcher does for one.
type BatchSearcher interface {
	SearchBatch(ctx context.Context, queries []string, topk int) ([][]Scored, error)
}
