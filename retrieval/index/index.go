package index

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/mempo-train/mempo-train/retrieval"
)

// The methods of searching an index.
const (
	MethodBM25   = "bm25"
	MethodDense  = "dense"
	MethodHybrid = "hybrid"
)

// Options are how an index is searched.
type Options struct {
	Method      string            // "" is the best that the index has: hybrid, dense, bm25 in this order
	Approximate bool              // dense by the graph, not by all vectors
	EF          int               // candidates of an approximate search. 0 is 128
	RRFK        float64           // k of the reciprocal rank fusion. 0 is 60 (Cormack, Clarke and Büttcher, 2009)
	Depth       int               // passages of each method that hybrid fuses. 0 is 100
	Encoder     retrieval.Encoder // of queries; nil where only vectors are searched for
	Exact       ExactSearcher     // nil is PlainExact
	Graphs      GraphLibrary
	// Repeatable encodes each query by itself, so that what else is asked at the same time does not
	// change the last bits of its vector.
	Repeatable bool
}

// Index is an index that was built, opened. It is safe for concurrent use. Searches for several
// queries at once share one call of the encoder and one matrix product.
type Index struct {
	manifest *Manifest
	options  Options
	passages *passages
	titles   *titles
	bm25     *storedBM25   // nil where it is not searched
	vectors  *mapped       // nil where they are not searched
	graph    Graph         // nil for exact search
	slots    chan struct{} // of searches of BM25 under way
}

var _ retrieval.BatchSearcher = (*Index)(nil)

// Resolve is a method that an index has, or an error that says why it has not.
func (m *Manifest) Resolve(method string) (string, error) {
	switch {
	case method == "" && m.Words != nil && m.Encoder != nil:
		return MethodHybrid, nil
	case method == "" && m.Encoder != nil:
		return MethodDense, nil
	case method == "":
		return MethodBM25, nil
	case method != MethodBM25 && m.Encoder == nil:
		return "", fmt.Errorf("method %q needs vectors, which the index was built without", method)
	case method != MethodDense && m.Words == nil:
		return "", fmt.Errorf("method %q needs bm25, which the index was built without", method)
	}
	return method, nil
}

// CheckEncoder refuses an encoder that is not the one that made the vectors of an index.
func (m *Manifest) CheckEncoder(now EncoderIdentity) error {
	if what := now.difference(m.Encoder); what != "" {
		return fmt.Errorf("the encoder does not fit the index: %s", what)
	}
	return nil
}

// Open opens an index that Build made. Folders that are broken, cut or of something else are errors
// that name the file.
func Open(dir string, o Options) (*Index, error) {
	if err := checkByteOrder(); err != nil {
		return nil, err
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	if o.Method, err = m.Resolve(o.Method); err != nil {
		return nil, fmt.Errorf("index %s: %w", dir, err)
	}
	o.setDefaults()
	x := &Index{manifest: m, options: o, slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if err := x.open(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("index %s: %w", dir, err), x.Close())
	}
	return x, nil
}

func (o *Options) setDefaults() {
	if o.EF == 0 {
		o.EF = 128
	}
	if o.RRFK == 0 {
		o.RRFK = 60
	}
	if o.Depth == 0 {
		o.Depth = 100
	}
	if o.Exact == nil {
		o.Exact = PlainExact{}
	}
}

func (x *Index) open(dir string) (err error) {
	if err := x.manifest.verify(dir, x.options.Approximate); err != nil {
		return err
	}
	if x.passages, err = openPassages(dir, x.manifest.Passages); err != nil {
		return err
	}
	if x.titles, err = openTitles(dir, x.passages); err != nil {
		return err
	}
	if x.options.Method != MethodDense {
		if x.bm25, err = openBM25(dir, x.manifest.Passages, *x.manifest.Words); err != nil {
			return err
		}
	}
	if x.options.Method == MethodBM25 {
		return nil
	}
	dimensions := x.manifest.Encoder.Dimensions
	if e := x.options.Encoder; e != nil && e.Dimensions() != dimensions {
		return fmt.Errorf("the encoder has %d dimensions, the vectors have %d", e.Dimensions(), dimensions)
	}
	if x.vectors, err = mapFile(filepath.Join(dir, vectorsFile), 4*int64(dimensions)*int64(x.manifest.Passages)); err != nil {
		return err
	}
	if x.options.Approximate {
		x.graph, err = x.openGraph(filepath.Join(dir, graphFile))
	}
	return err
}

func (x *Index) openGraph(path string) (Graph, error) {
	if x.manifest.Graph == nil {
		return nil, errors.New("approximate search needs a graph, which the index was built without (graph.build = true)")
	}
	if x.options.Graphs.Open == nil {
		return nil, errors.New("this program was built without approximate search")
	}
	return x.options.Graphs.Open(path, x.manifest.Encoder.Dimensions)
}

// Close gives memory and files back; no search may be under way.
func (x *Index) Close() error {
	var errs []error
	if x.graph != nil {
		errs = append(errs, x.graph.Close())
	}
	if x.bm25 != nil {
		errs = append(errs, x.bm25.Close())
	}
	if x.titles != nil {
		errs = append(errs, x.titles.Close())
	}
	if x.passages != nil {
		errs = append(errs, x.passages.Close())
	}
	return errors.Join(append(errs, x.vectors.Close())...)
}

// Manifest is what the index was made of.
func (x *Index) Manifest() *Manifest { return x.manifest }

// Method is what it is searched by.
func (x *Index) Method() string { return x.options.Method }

// SearchBatch finds the topk passages of each query, best first. Scores are those of BM25, inner
// products, or sums of reciprocal ranks.
func (x *Index) SearchBatch(ctx context.Context, queries []string, topk int) ([][]retrieval.Scored, error) {
	if len(queries) == 0 || topk < 1 {
		return make([][]retrieval.Scored, len(queries)), nil
	}
	switch x.options.Method {
	case MethodBM25:
		hits, err := x.byWords(ctx, queries, topk)
		return x.found(hits, err)
	case MethodDense:
		hits, err := x.byMeaning(ctx, queries, topk)
		return x.found(hits, err)
	}
	return x.hybrid(ctx, queries, topk)
}

// SearchVectors is SearchBatch of an index with vectors, for queries that are encoded already.
func (x *Index) SearchVectors(_ context.Context, queries [][]float32, topk int) ([][]retrieval.Scored, error) {
	if x.vectors == nil {
		return nil, errors.New("this index is not searched by vectors")
	}
	hits, err := x.byVectors(queries, topk)
	return x.found(hits, err)
}

// Dimensions is the length of a vector, 0 where the index is not searched by them.
func (x *Index) Dimensions() int {
	if x.vectors == nil {
		return 0
	}
	return x.manifest.Encoder.Dimensions
}

// byWords searches by BM25, for as many queries at the same time as there are cores.
func (x *Index) byWords(ctx context.Context, queries []string, topk int) ([][]hit, error) {
	hits := make([][]hit, len(queries))
	group, ctx := errgroup.WithContext(ctx)
	for q, query := range queries {
		select {
		case x.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, errors.Join(group.Wait(), ctx.Err())
		}
		group.Go(func() (err error) {
			defer func() { <-x.slots }()
			hits[q], err = x.bm25.search(ctx, query, topk)
			return err
		})
	}
	return hits, group.Wait()
}

func (x *Index) byMeaning(ctx context.Context, queries []string, topk int) ([][]hit, error) {
	vectors, err := x.Encode(ctx, queries)
	if err != nil {
		return nil, err
	}
	return x.byVectors(vectors, topk)
}

// Encode returns the vectors of queries.
func (x *Index) Encode(ctx context.Context, queries []string) ([][]float32, error) {
	if x.options.Encoder == nil {
		return nil, errors.New("the index was opened without an encoder")
	}
	texts := make([]string, len(queries))
	for q, query := range queries {
		texts[q] = x.manifest.Encoder.QueryPrefix + strings.ToValidUTF8(query, "\uFFFD")
	}
	return x.encode(ctx, texts)
}

func (x *Index) encode(ctx context.Context, texts []string) (vectors [][]float32, err error) {
	if !x.options.Repeatable {
		return x.options.Encoder.Encode(ctx, texts)
	}
	vectors = make([][]float32, len(texts))
	for k := range texts {
		one, err := x.options.Encoder.Encode(ctx, texts[k:k+1])
		if err != nil {
			return nil, err
		}
		vectors[k] = one[0]
	}
	return vectors, nil
}

// spareCandidates are found beyond those that are wanted, of which exact scores then choose.
const spareCandidates = 8

func (x *Index) byVectors(queries [][]float32, topk int) (hits [][]hit, err error) {
	defer guarded("the index", &err)()
	for _, query := range queries {
		if err := checkVector(query, x.manifest.Encoder.Dimensions); err != nil {
			return nil, fmt.Errorf("the vector of a query %w", err)
		}
	}
	candidates := min(topk+spareCandidates, x.manifest.Passages)
	var rows [][]int32
	if x.graph != nil {
		rows, _, err = x.graph.Search(queries, max(x.options.EF, candidates), candidates)
	} else if err = x.vectors.whole(); err == nil {
		rows, _, err = x.options.Exact.TopK(queries, x.vectors.float32s(), x.manifest.Encoder.Dimensions, candidates)
	}
	if err != nil {
		return nil, err
	}
	hits = make([][]hit, len(queries))
	for q, query := range queries {
		if hits[q], err = x.choose(query, rows[q], topk); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

// choose ranks candidates by inner products summed in float64: a fast product of matrices rounds
// otherwise with every number of queries, and what is found should not depend on that.
func (x *Index) choose(query []float32, rows []int32, topk int) ([]hit, error) {
	best := ranking{limit: topk}
	all, dimensions := x.vectors.float32s(), len(query)
	for _, row := range rows {
		if row < 0 || int(row) >= x.manifest.Passages {
			return nil, fmt.Errorf("the index is broken: it found passage %d of %d", row, x.manifest.Passages)
		}
		sum := 0.0
		for k, value := range all[int(row)*dimensions : (int(row)+1)*dimensions] {
			sum += float64(value) * float64(query[k])
		}
		best.offer(hit{uint32(row), sum})
	}
	return best.hits, nil
}

// found puts passages in the place of hits.
func (x *Index) found(hits [][]hit, err error) (_ [][]retrieval.Scored, broken error) {
	if err != nil {
		return nil, err
	}
	defer guarded("the index", &broken)()
	results := make([][]retrieval.Scored, len(hits))
	for q, list := range hits {
		results[q] = make([]retrieval.Scored, len(list))
		for k, h := range list {
			passage, err := x.passages.at(int(h.passage))
			if err != nil {
				return nil, err
			}
			results[q][k] = retrieval.Scored{Passage: passage, Score: h.score}
		}
	}
	return results, nil
}

// Len is the number of passages.
func (x *Index) Len() int { return x.manifest.Passages }

// Rows are the passages from first up to end with their vectors; the index must have some.
func (x *Index) Rows(first, end int) (passages []retrieval.Passage, vectors [][]float32, err error) {
	defer guarded("the index", &err)()
	passages = make([]retrieval.Passage, end-first)
	for k := range passages {
		if passages[k], err = x.passages.at(first + k); err != nil {
			return nil, nil, err
		}
	}
	all, err := x.vectors.numbers(first*x.Dimensions(), end*x.Dimensions())
	if err != nil {
		return nil, nil, err
	}
	return passages, slices.Collect(slices.Chunk(all, x.Dimensions())), nil
}
