package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/index"
)

// inProcess searches an index in the process of a run.
type inProcess struct {
	*openedSearch
	dir    string
	search func(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error)
}

// mostInProcess are the queries that one search takes.
const mostInProcess = 256

// openInProcess opens the index of [tools.search].
func openInProcess(c *config.Config) (*inProcess, error) {
	s, m := c.Tools.Search, c.Model
	encoder := config.DefaultRetrieve().Encoder
	encoder.Path, encoder.Device, encoder.Threads = s.Encoder, m.Device, m.Threads
	opened, err := openIndex(indexSettings{
		dir: s.Index, encoder: encoder, schedule: c.Rollout.Schedule,
		options: index.Options{Method: s.Method, Approximate: s.Approximate},
	})
	if err != nil {
		return nil, err
	}
	if opened.texts == nil {
		return nil, errors.Join(fmt.Errorf("index %s has no encoder of queries; build it with encoder.path beside encoder.vectors", s.Index), opened.close())
	}
	x := &inProcess{openedSearch: opened, dir: s.Index, search: opened.texts}
	if opened.coalesce {
		x.search = retrieval.NewCoalescer(mostInProcess, opened.texts, func(int) {}).Search
	}
	return x, nil
}

// Search implements retrieval.Searcher.
func (x *inProcess) Search(ctx context.Context, query string, topk int) ([]retrieval.Passage, error) {
	found, err := x.search(ctx, []string{query}, topk)
	if err != nil && ctx.Err() == nil {
		return nil, &retrieval.ServiceError{Service: "search", URL: x.dir, Attempts: 1, Kind: retrieval.KindIndex, Detail: err.Error()}
	}
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	passages := make([]retrieval.Passage, len(found[0]))
	for k, p := range found[0] {
		passages[k] = p.Passage
	}
	return passages, nil
}
