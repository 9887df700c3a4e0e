package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval/index"
	serving "github.com/mempo-train/mempo-train/retrieval/service"
	"github.com/mempo-train/mempo-train/retrieval/web"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

var endOfService = ending{"answering what is under way", "the service is stopped"}

// graceOfService is how long requests that are under way may take when a service is stopped.
const graceOfService = 30 * time.Second

func (p *program) retrieveCommand() *cli.Command {
	return &cli.Command{
		Name:      "retrieve",
		Usage:     "serve an index over HTTP, in the protocol of Search-R1",
		ArgsUsage: "RETRIEVE.toml",
		Args:      true,
		Description: `Answers POST /retrieve and POST /access, and GET /health and GET /metrics, on retrieve.listen until SIGINT or
SIGTERM; what is under way then is answered first.`,
		Flags: []cli.Flag{setFlag()},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			return underSignals(c.Context, p.errs, endOfService, func(ctx context.Context, stop <-chan struct{}) error {
				ctx, _ = untilStopped(ctx, stop)
				return runRetrieve(ctx, path, c.StringSlice("set"), p.errs)
			})
		},
	}
}

// runRetrieve serves what a config says until the end of ctx. The port is taken before the index is
// loaded, and until then requests are told so.
func runRetrieve(ctx context.Context, path string, sets []string, errs io.Writer) (err error) {
	c, err := config.LoadRetrieve(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	listener, err := serving.Listen(c.Retrieve.Listen)
	if err != nil {
		return fault.Environment(err)
	}
	log := serviceLog(errs)
	s := serving.New(serviceLimits(c.Limits), c.Limits.Timeout.Duration(), log)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener, graceOfService) }()
	progress := metrics.NewProgress(os.Stderr)
	search, err := openSearch(ctx, c, progress)
	progress.Close()
	if err != nil {
		stop()
		return errors.Join(err, <-served)
	}
	defer func() { err = firstError(err, search.close()) }()
	ready := serving.Search{
		Texts: search.texts, Vectors: search.vectors, Dimensions: search.index.Dimensions(), Coalesce: search.coalesce,
		Page: search.index.Page, About: search.about(c),
	}
	if c.Access.Live {
		pages := web.New(liveOptions(c.Access, log))
		defer pages.Close()
		ready.Live = pages
	}
	s.Ready(ready)
	fmt.Fprintf(errs, "%s\nlistening on %s\n", search.describe(), listener.Addr())
	return fault.Environment(<-served)
}

// liveOptions say how pages come from the web.
func liveOptions(a config.RetrieveAccess, log *zap.Logger) web.Options {
	return web.Options{AllowHosts: a.AllowHosts, PerSecond: a.PerSecond, UserAgent: "mempo-train/" + version, Logger: log}
}

func serviceLimits(l config.RetrieveLimits) serving.Limits {
	return serving.Limits{
		BodyBytes: int64(l.BodyBytes), Queries: l.Queries, QueryBytes: l.QueryBytes, TopK: l.TopK, URLs: l.URLs, Concurrency: l.Concurrency,
	}
}

// serviceLog writes what goes wrong as JSON lines.
func serviceLog(to io.Writer) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(to)), zap.InfoLevel))
}

// checkRetrieve prints what the retrieve command would serve.
func checkRetrieve(ctx context.Context, path string, sets []string, out io.Writer) error {
	c, err := config.LoadRetrieve(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	f := &findings{out: out}
	f.line("== settings ==")
	f.problem(config.WriteRetrieve(out, c))
	f.heading("index " + c.Retrieve.Index)
	unfilled := *c // a check writes nothing
	unfilled.Qdrant.Fill = false
	search, err := openSearch(ctx, &unfilled, metrics.NewLines(io.Discard))
	if err != nil {
		f.problem(err)
	} else {
		f.line("%s", search.describe())
		f.showManifest(search.index.Manifest())
		f.problem(search.close())
	}
	f.heading("service")
	if a := c.Access; a.Live {
		f.line("pages that the corpus does not have: from the web, %s", boundsOfWeb(a.AllowHosts, a.PerSecond))
	}
	if listener, err := serving.Listen(c.Retrieve.Listen); err != nil {
		f.problem(fault.Environment(err))
	} else {
		f.line("%s is free", c.Retrieve.Listen)
		f.problem(listener.Close())
	}
	return f.verdict()
}

func (f *findings) showManifest(m *index.Manifest) {
	f.line("corpus: %d files, %s", len(m.Corpus.Files), inBytes(m.Corpus.Bytes))
	if m.Words != nil {
		f.line("bm25: %d words", *m.Words)
	}
	if e := m.Encoder; e != nil {
		f.line("vectors: %s of %d numbers each, by %s (queries behind %q, passages behind %q)",
			inBytes(4*int64(m.Passages)*int64(e.Dimensions)), e.Dimensions, e.Path, e.QueryPrefix, e.PassagePrefix)
	}
	if g := m.Graph; g != nil {
		f.line("graph: m %d, ef_construction %d, %s in memory where it is searched", g.M, g.EFConstruction, inBytes(m.Files["graph.bin"].Bytes))
	}
}
