package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval"
	"github.com/mempo-train/mempo-train/retrieval/index"
	"github.com/mempo-train/mempo-train/retrieval/qdrant"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// openedSearch is an index that can be searched, with its encoder if it needs one.
type openedSearch struct {
	index      *index.Index
	encoder    *openedEncoder     // nil without vectors
	collection *qdrant.Collection // nil where the index itself is searched
	texts      func(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error)
	vectors    func(ctx context.Context, queries [][]float32, topk int) ([][]retrieval.Scored, error) // nil without vectors
	coalesce   bool
	method     string
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
		if m.Encoder != nil && m.Encoder.Path == "" {
			s.options.Method = index.MethodDense // for vectors alone
		}
	}
	if s.options.Method, err = m.Resolve(s.options.Method); err != nil {
		return nil, fault.Usage(fmt.Errorf("index %s: %w", s.dir, err))
	}
	if s.options.Approximate && s.options.Method == index.MethodBM25 {
		return nil, fault.Usage(fmt.Errorf("index %s: approximate is true, but it is searched by %q, which has no graph", s.dir, s.options.Method))
	}
	o := &openedSearch{method: s.options.Method}
	if o.method != index.MethodBM25 {
		if o.encoder, err = encoderOf(s.dir, m, s.encoder); err != nil {
			return nil, err
		}
		s.options.Graphs, s.options.Exact = graphs(o.encoder.Runtime), exact(o.encoder.Runtime)
		if o.encoder.encoder != nil {
			s.options.Encoder = o.encoder.encoder
		}
		s.options.Repeatable = s.schedule == "fixed" || s.schedule == "auto" && o.encoder.Device() == "cpu"
	}
	if o.index, err = index.Open(s.dir, s.options); err != nil {
		return nil, errors.Join(fault.Usage(err), o.closeEncoder())
	}
	if s.options.Encoder != nil || o.method == index.MethodBM25 {
		o.texts = o.index.SearchBatch
	} else if o.method == index.MethodHybrid {
		return nil, errors.Join(fault.Usage(fmt.Errorf("index %s: method \"hybrid\" needs the encoder of its vectors (encoder.path)", s.dir)), o.close())
	}
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
	if made.Path == "" && e.Path != "" {
		return nil, fault.Usage(fmt.Errorf("index %s does not say which encoder its vectors are of; build it with encoder.path beside encoder.vectors", dir))
	}
	encoder, err := openEncoder(settings)
	if err != nil {
		return nil, err
	}
	if encoder.encoder == nil {
		return encoder, nil
	}
	encoder.identity.Vectors = made.Vectors
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

func (o *openedSearch) close() error {
	var err error
	if o.collection != nil {
		err = o.collection.Close()
	}
	return errors.Join(err, o.index.Close(), o.closeEncoder())
}

// openSearch opens what a service searches.
func openSearch(ctx context.Context, c *config.Retrieve, progress metrics.Progress) (*openedSearch, error) {
	r := c.Retrieve
	method := r.Method
	if r.Backend == "qdrant" {
		method = index.MethodDense
	}
	o, err := openIndex(indexSettings{
		dir: r.Index, encoder: c.Encoder,
		options: index.Options{Method: method, Approximate: r.Approximate, EF: r.EF, RRFK: r.RRFK, Depth: r.Depth},
	})
	if err != nil || r.Backend != "qdrant" {
		return o, err
	}
	if err := o.moveTo(ctx, c.Qdrant, progress); err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

// moveTo searches the vectors of an index in a Qdrant server.
func (o *openedSearch) moveTo(ctx context.Context, q config.Qdrant, progress metrics.Progress) error {
	options := qdrant.Options{Address: q.Address, Collection: q.Collection, TLS: q.TLS}
	if q.APIKeyEnv != "" {
		if options.APIKey = os.Getenv(q.APIKeyEnv); options.APIKey == "" {
			return fault.Usage(fmt.Errorf("qdrant.api_key_env is %q, but that variable is not set", q.APIKeyEnv))
		}
	}
	collection, err := qdrant.Open(options)
	if err != nil {
		return fault.Usage(err)
	}
	o.collection = collection
	if q.Fill {
		stage := progress.Stage("passages in Qdrant", o.index.Len())
		err := collection.Fill(ctx, o.index, stage.Add)
		stage.Done()
		if err != nil {
			return fault.Environment(err)
		}
	}
	o.vectors, o.method = collection.SearchVectors, "dense in Qdrant"
	if o.texts == nil {
		return fault.Environment(collection.Check(ctx, o.index))
	}
	o.texts = func(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error) {
		vectors, err := o.index.Encode(ctx, queries)
		if err != nil {
			return nil, err
		}
		return collection.SearchVectors(ctx, vectors, topk)
	}
	return fault.Environment(collection.Check(ctx, o.index))
}

// describe tells what is searched, and how.
func (o *openedSearch) describe() string {
	return fmt.Sprintf("%d passages, by %s", o.index.Manifest().Passages, o.method)
}

// about is what a service says of itself.
func (o *openedSearch) about(c *config.Retrieve) map[string]any {
	return map[string]any{"version": version, "index": c.Retrieve.Index, "backend": c.Retrieve.Backend, "method": o.method, "passages": o.index.Manifest().Passages}
}
