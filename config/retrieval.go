package config

import (
	"errors"
	"io"
	"net"
	"strconv"
)

// Index is an index of a corpus, to be built.
type Index struct {
	Index   IndexContent `toml:"index"`
	Encoder Encoder      `toml:"encoder"`
	Graph   IndexGraph   `toml:"graph"`
}

// IndexContent is what an index is made of and what it can be searched by.
type IndexContent struct {
	Dir     string `toml:"dir"`     // folder that is written
	Corpus  List   `toml:"corpus"`  // JSONL files of passages, or patterns such as "wiki/*.jsonl", one behind the other
	Methods List   `toml:"methods"` // "bm25", "dense" or both, which "hybrid" needs. ["bm25"] (own)
}

// Encoder turns texts into vectors: a model of the BERT family.
type Encoder struct {
	Path          string `toml:"path"`           // HuggingFace folder. "" (own)
	Vectors       string `toml:"vectors"`        // .npy file of the passages' vectors, float32, in the order of the corpus: they are not made then, and Path is that of queries, or "". "" (own)
	QueryPrefix   string `toml:"query_prefix"`   // in front of every query; "auto": "query: " for an E5 model, else nothing. "auto" (own)
	PassagePrefix string `toml:"passage_prefix"` // in front of every passage; "auto": "passage: " for an E5 model, else nothing. "auto" (own)
	Pooling       string `toml:"pooling"`        // of the tokens' vectors: "mean", "cls", or "auto": as the folder says, else "mean". "auto" (own)
	Normalize     string `toml:"normalize"`      // to length 1: "yes", "no", or "auto": as the folder says, else yes. "auto" (own)
	MaxTokens     int    `toml:"max_tokens"`     // longer texts are cut; 0 is what the model takes, 512 at most. 0 (own)
	Device        string `toml:"device"`         // "auto", "cpu", "cuda", "cuda:N". "auto" (own)
	Threads       int    `toml:"threads"`        // of the CPU; 0 is one per core. 0 (own)
	BatchTokens   int    `toml:"batch_tokens"`   // of one forward pass. 16384 (own)
}

// IndexGraph is a graph over the vectors (HNSW), by which approximate search finds its way.
type IndexGraph struct {
	Build          bool  `toml:"build"`           // false (own)
	M              int   `toml:"m"`               // neighbours of a passage. 32 (own)
	EFConstruction int   `toml:"ef_construction"` // candidates while they are sought: more take longer and find more. 200 (own)
	Seed           int64 `toml:"seed"`            // 0 (own)
}

// Retrieve is a retrieval service.
type Retrieve struct {
	Retrieve RetrieveService `toml:"retrieve"`
	Encoder  QueryEncoder    `toml:"encoder"`
	Limits   RetrieveLimits  `toml:"limits"`
	Access   RetrieveAccess  `toml:"access"`
	Qdrant   Qdrant          `toml:"qdrant"`
}

// RetrieveService is what is served, and where.
type RetrieveService struct {
	Listen      string  `toml:"listen"`      // host and port. "127.0.0.1:8013" (own)
	Backend     string  `toml:"backend"`     // "index": the folder Index; "qdrant": the collection of a Qdrant server that it was filled into. "index" (own)
	Index       string  `toml:"index"`       // folder of a built index
	Method      string  `toml:"method"`      // "bm25", "dense", "hybrid", or "auto": the last of these that the index has. "auto" (own)
	Approximate bool    `toml:"approximate"` // dense search by the graph of the index, not through all vectors. false (own)
	EF          int     `toml:"ef"`          // candidates of an approximate search: more take longer and find more. 128 (own)
	RRFK        float64 `toml:"rrf_k"`       // k of hybrid's reciprocal rank fusion. 60 (own)
	Depth       int     `toml:"depth"`       // passages of each method that hybrid fuses. 100 (own)
}

// QueryEncoder is where the encoder of an index is now, and how it runs.
type QueryEncoder struct {
	Path        string `toml:"path"`         // HuggingFace folder; "" is where it was when the index was built. "" (own)
	Device      string `toml:"device"`       // "auto", "cpu", "cuda", "cuda:N". "auto" (own)
	Threads     int    `toml:"threads"`      // of the CPU; 0 is one per core. 0 (own)
	BatchTokens int    `toml:"batch_tokens"` // of one forward pass. 16384 (own)
}

// RetrieveLimits bound what clients can make the service do.
type RetrieveLimits struct {
	BodyBytes   int     `toml:"body_bytes"`  // of a request. 8388608 (own)
	Queries     int     `toml:"queries"`     // of a request. 1024 (own)
	QueryBytes  int     `toml:"query_bytes"` // of a query. 16384 (own)
	TopK        int     `toml:"topk"`        // passages per query. 100 (own)
	URLs        int     `toml:"urls"`        // of a request for pages. 64 (own)
	Concurrency int     `toml:"concurrency"` // requests under way; more are answered 503. 1024 (own)
	Timeout     Seconds `toml:"timeout_s"`   // of a request, its reading and writing included. 60 (own)
}

// RetrieveAccess is where pages come from that the corpus has none for.
type RetrieveAccess struct {
	Live       bool    `toml:"live"`        // the web itself. false (own)
	AllowHosts List    `toml:"allow_hosts"` // the only hosts that are opened; empty: every public one. none (own)
	PerSecond  float64 `toml:"per_second"`  // requests to one host; 0 is no bound. 2 (own)
}

// Qdrant is a Qdrant server.
type Qdrant struct {
	Address    string `toml:"address"`     // host and port of its gRPC interface. "127.0.0.1:6334" (own)
	Collection string `toml:"collection"`  // "" (own)
	TLS        bool   `toml:"tls"`         // false (own)
	APIKeyEnv  string `toml:"api_key_env"` // environment variable that holds the API key; "" is none. "" (own)
	Fill       bool   `toml:"fill"`        // put the vectors of Index into Collection at the start, where it is not there. false (own)
}

// DefaultIndex returns settings in which every key that has a default holds it.
func DefaultIndex() *Index {
	return &Index{
		Index: IndexContent{Corpus: List{}, Methods: List{"bm25"}},
		Encoder: Encoder{
			QueryPrefix: "auto", PassagePrefix: "auto", Pooling: "auto", Normalize: "auto", Device: "auto", BatchTokens: 16384,
		},
		Graph: IndexGraph{M: 32, EFConstruction: 200},
	}
}

// DefaultRetrieve returns settings in which every key that has a default holds it.
func DefaultRetrieve() *Retrieve {
	return &Retrieve{
		Retrieve: RetrieveService{Listen: "127.0.0.1:8013", Backend: "index", Method: "auto", EF: 128, RRFK: 60, Depth: 100},
		Encoder:  QueryEncoder{Device: "auto", BatchTokens: 16384},
		Limits: RetrieveLimits{
			BodyBytes: 8 << 20, Queries: 1024, QueryBytes: 16 << 10, TopK: 100, URLs: 64, Concurrency: 1024, Timeout: 60,
		},
		Access: RetrieveAccess{AllowHosts: List{}, PerSecond: 2},
		Qdrant: Qdrant{Address: "127.0.0.1:6334"},
	}
}

// LoadIndex reads the settings of an index, as Load does those of a run.
func LoadIndex(path string, sets []string) (*Index, error) {
	x := DefaultIndex()
	return x, loadInto(x, path, sets, x.Validate)
}

// LoadRetrieve reads the settings of a retrieval service, as Load does those of a run.
func LoadRetrieve(path string, sets []string) (*Retrieve, error) {
	s := DefaultRetrieve()
	return s, loadInto(s, path, sets, s.Validate)
}

func loadInto(target any, path string, sets []string, validate func() error) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	if err := fill(target, path, text, sets); err != nil {
		return err
	}
	return within(path, validate())
}

// WriteIndex writes every key as TOML that LoadIndex reads back to the same settings.
func WriteIndex(w io.Writer, x *Index) error { return write(w, x, nil) }

// WriteRetrieve writes every key as TOML that LoadRetrieve reads back to the same settings.
func WriteRetrieve(w io.Writer, s *Retrieve) error { return write(w, s, nil) }

// Has reports whether an index is to be searched by a method.
func (c IndexContent) Has(method string) bool {
	for _, m := range c.Methods {
		if m == method {
			return true
		}
	}
	return false
}

// Validate checks every value against its rule and reports all violations, one a line.
func (x *Index) Validate() error {
	var r rules
	r.given("index.dir", x.Index.Dir, "the folder that the index is written to")
	r.files("index.corpus", x.Index.Corpus, "one or more files of passages")
	r.someOf("index.methods", x.Index.Methods, "bm25", "dense")
	x.Encoder.check(&r)
	if x.Index.Has("dense") {
		r.given("encoder.path", x.Encoder.Path+x.Encoder.Vectors, `the HuggingFace folder of the encoder that method "dense" needs (or encoder.vectors)`)
	} else if x.Graph.Build {
		r.violated("graph.build", true, `true only with "dense" among index.methods`)
	}
	between(&r, "graph.m", x.Graph.M, 2, 1024)
	between(&r, "graph.ef_construction", x.Graph.EFConstruction, 1, 1_000_000)
	atLeast(&r, "graph.seed", x.Graph.Seed, 0)
	return errors.Join(r.violations...)
}

func (e Encoder) check(r *rules) {
	r.oneOf("encoder.pooling", e.Pooling, "auto", "mean", "cls")
	r.oneOf("encoder.normalize", e.Normalize, "auto", "yes", "no")
	atLeast(r, "encoder.max_tokens", e.MaxTokens, 0)
	r.encoderRuns(e.Device, e.Threads, e.BatchTokens)
}

func (r *rules) encoderRuns(where string, threads, batchTokens int) {
	r.device("encoder.device", where)
	between(r, "encoder.threads", threads, 0, 1024)
	atLeast(r, "encoder.batch_tokens", batchTokens, 1)
}

// Validate checks every value against its rule and reports all violations, one a line.
func (s *Retrieve) Validate() error {
	var r rules
	s.Retrieve.check(&r)
	r.encoderRuns(s.Encoder.Device, s.Encoder.Threads, s.Encoder.BatchTokens)
	l := s.Limits
	between(&r, "limits.body_bytes", l.BodyBytes, 1, 1<<30)
	between(&r, "limits.queries", l.Queries, 1, 1_000_000)
	between(&r, "limits.query_bytes", l.QueryBytes, 1, 1<<20)
	between(&r, "limits.topk", l.TopK, 1, 10_000)
	between(&r, "limits.urls", l.URLs, 1, 10_000)
	between(&r, "limits.concurrency", l.Concurrency, 1, 1_000_000)
	above(&r, "limits.timeout_s", l.Timeout, 0)
	r.web("access", s.Access.AllowHosts, s.Access.PerSecond)
	if s.Retrieve.Backend == "qdrant" {
		r.hostPort("qdrant.address", s.Qdrant.Address)
		r.given("qdrant.collection", s.Qdrant.Collection, `the collection that backend "qdrant" searches`)
	}
	return errors.Join(r.violations...)
}

func (s RetrieveService) check(r *rules) {
	r.hostPort("retrieve.listen", s.Listen)
	r.oneOf("retrieve.backend", s.Backend, "index", "qdrant")
	r.given("retrieve.index", s.Index, "the folder of the index that is served")
	r.oneOf("retrieve.method", s.Method, "auto", "bm25", "dense", "hybrid")
	if s.Backend == "qdrant" && (s.Method == "bm25" || s.Method == "hybrid") {
		r.violated("retrieve.method", quoted(s.Method), `"dense" or "auto" with backend "qdrant"`)
	}
	between(r, "retrieve.ef", s.EF, 1, 1_000_000)
	between(r, "retrieve.depth", s.Depth, 1, 10_000)
	divisor(r, "retrieve.rrf_k", s.RRFK, 1e-6)
}

func (r *rules) hostPort(key, found string) {
	_, port, err := net.SplitHostPort(found)
	if number, portErr := strconv.Atoi(port); err != nil || portErr != nil || number < 0 || number > 65535 {
		r.violated(key, quoted(found), `host and port, as in "127.0.0.1:8013"`)
	}
}
