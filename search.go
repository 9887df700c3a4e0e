package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/index"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// openedSearch is an index that can be searched, with its encoder if it needs one.
type openedSearch struct {
	index    *index.Index
	encoder  *openedEncoder // nil without vectors
	texts    func(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error)
	vectors  func(ctx context.Context, queries [][]float32, topk int) ([][]retrieval.Scored, error) // nil without vectors
	coalesce bool
	method   string
}

// indexSettings are those of searching an index, in a service or in a run.
type indexSettings struct {
	dir     string
	options index.Options
	encoder config.QueryEncoder

	schedule string // of a run; a fixed one repeats bit for bit, and so does then what is found
}

// openIndex opens an index as settings say, and checks that the encoder is the one of its vectors.
func openIndex(s indexSettings) (*openedSearch, error) {
	m, err := index.ReadManifest(s.dir)
	if err != nil {
		return nil, fault.Usage(err)
	}
	if s.options.Method == "auto" {
		s.options.Method = ""
	}
	if s.options.Method, err = m.Resolve(s.options.Method); err != nil {
		return nil, fault.Usage(fmt.Errorf("index %s: %w", s.dir, err))
	}
	o := &openedSearch{method: s.options.Method}
	if o.method != index.MethodBM25 {
		if o.encoder, err = encoderOf(s.dir, m, s.encoder); err != nil {
			return nil, err
		}
		s.options.Encoder = o.encoder
		s.options.Repeatable = s.schedule == "fixed" || s.schedule == "auto" && o.encoder.Device() == "cpu"
	}
	s.options.Graphs, s.options.Exact = graphs, exactSearch
	if o.index, err = index.Open(s.dir, s.options); err != nil {
		return nil, errors.Join(fault.Usage(err), o.closeEncoder())
	}
	o.texts = o.index.SearchBatch
	if o.encoder != nil {
		o.vectors, o.coalesce = o.index.SearchVectors, true
	}
	return o, nil
}

// encoderOf loads the encoder of the vectors of an index.
func encoderOf(dir string, m *index.Manifest, e config.QueryEncoder) (*openedEncoder, error) {
	made := m.Encoder
	settings := config.Encoder{
		Path: e.Path, QueryPrefix: made.QueryPrefix, PassagePrefix: made.PassagePrefix, Pooling: made.Pooling,
		Normalize: map[bool]string{true: "yes", false: "no"}[made.Normalize], MaxTokens: made.MaxTokens,
		Device: e.Device, Threads: e.Threads, BatchTokens: e.BatchTokens,
	}
	if settings.Path == "" {
		settings.Path = made.Path
	}
	encoder, err := openEncoder(settings)
	if err != nil {
		return nil, err
	}
	if err := m.CheckEncoder(encoder.identity); err != nil {
		return nil, errors.Join(fault.Usage(fmt.Errorf("index %s: %w", dir, err)), encoder.close())
	}
	return encoder, nil
}

func (o *openedSearch) closeEncoder() error {
	if o.encoder == nil {
		return nil
	}
	return o.encoder.close()
}

func (o *openedSearch) close() error { return errors.Join(o.index.Close(), o.closeEncoder()) }

// openSearch opens what a service searches.
func openSearch(_ context.Context, c *config.Retrieve, _ metrics.Progress) (*openedSearch, error) {
	r := c.Retrieve
	return openIndex(indexSettings{
		dir: r.Index, encoder: c.Encoder,
		options: index.Options{Method: r.Method, Approximate: r.Approximate, EF: r.EF, RRFK: r.RRFK, Depth: r.Depth},
	})
}

// describe tells what is searched, and how.
func (o *openedSearch) describe() string {
	return fmt.Sprintf("%d passages, by %s", o.index.Manifest().Passages, o.method)
}

// about is what a service says of itself.
func (o *openedSearch) about(c *config.Retrieve) map[string]any {
	return map[string]any{"version": version, "index": c.Retrieve.Index, "backend": c.Retrieve.Backend, "method": o.method, "passages": o.index.Manifest().Passages}
}
