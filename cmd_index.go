package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval/index"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

var endOfIndex = ending{"ending the build", "what is done is kept, and the same command goes on"}

func (p *program) indexCommand() *cli.Command {
	return &cli.Command{
		Name:      "index",
		Usage:     "build an index of a corpus, to search by words, by meaning or by both",
		ArgsUsage: "INDEX.toml",
		Args:      true,
		Description: `Writes the folder index.dir, which retrieve serves and a run can search itself. A build that was stopped goes on
where it was. An index that is there is left as it is; if it is of another corpus, encoder or setting, that is said.`,
		Flags: []cli.Flag{setFlag()},
		Action: func(c *cli.Context) error {
			path, err := onlyFile(c)
			if err != nil {
				return err
			}
			return underSignals(c.Context, p.errs, endOfIndex, func(ctx context.Context, stop <-chan struct{}) error {
				ctx, stopped := untilStopped(ctx, stop)
				if err := p.makeIndex(ctx, path, c.StringSlice("set")); err != nil {
					return stopped(err, endOfIndex)
				}
				return nil
			})
		},
	}
}

// untilStopped ends a context when stop is closed. The function it returns tells whether that is why
// work ended with an error.
func untilStopped(ctx context.Context, stop <-chan struct{}) (context.Context, func(error, ending) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-stop:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func(err error, e ending) error {
		defer cancel(nil)
		if errors.Is(context.Cause(ctx), errInterrupted) {
			return fmt.Errorf("%w; %s", errInterrupted, e.left)
		}
		return err
	}
}

// makeIndex builds what a config says and prints the folder.
func (p *program) makeIndex(ctx context.Context, path string, sets []string) (err error) {
	c, err := config.LoadIndex(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	if err := index.CheckFolder(c.Index.Dir); err != nil { // before anything is loaded
		return fmt.Errorf("index.dir: %w", err)
	}
	files, err := corpusFiles(c.Index.Corpus)
	if err != nil {
		return err
	}
	progress := metrics.NewProgress(os.Stderr)
	defer progress.Close()
	o := buildOptions(c, files)
	o.Progress = func(stage string, total int) index.Stage { return progress.Stage(stage, total) }
	if c.Index.Has(index.MethodDense) {
		encoder, err := openEncoder(c.Encoder)
		if err != nil {
			return err
		}
		defer func() { err = firstError(err, encoder.close()) }()
		progress.Line(encoder.describe())
		if err := vectorsFrom(&o, encoder, c.Encoder.Vectors); err != nil {
			return err
		}
		if o.Vectors != nil {
			defer func() { err = firstError(err, o.Vectors.Close()) }()
		}
	}
	_, missing := os.Stat(o.Dir)
	m, err := index.Build(ctx, o)
	if err != nil {
		return err
	}
	if missing == nil {
		progress.Line("the index is there already and stays as it is")
	}
	progress.Line(fmt.Sprintf("%d passages", m.Passages))
	fmt.Fprintln(p.out, o.Dir)
	return nil
}

// buildOptions are those that need no encoder, without progress.
func buildOptions(c *config.Index, files []string) index.BuildOptions {
	o := index.BuildOptions{Dir: filepath.Clean(c.Index.Dir), Corpus: files, BM25: c.Index.Has(index.MethodBM25)}
	if c.Graph.Build {
		o.Graph = &index.GraphOptions{M: c.Graph.M, EFConstruction: c.Graph.EFConstruction, Seed: uint64(c.Graph.Seed)}
	}
	return o
}

// vectorsFrom takes vectors from an encoder, or from the file that is given.
func vectorsFrom(o *index.BuildOptions, encoder *openedEncoder, given string) (err error) {
	o.Identity, o.Graphs = encoder.identity, graphs(encoder.Runtime)
	if given == "" {
		o.Encoder = encoder.encoder
		return nil
	}
	if o.Vectors, err = index.OpenVectors(given); err != nil {
		return fault.Usage(err)
	}
	if encoder.encoder != nil && encoder.encoder.Dimensions() != o.Vectors.Dimensions() {
		return fault.Usage(fmt.Errorf("%s holds vectors of %d numbers, the encoder makes %d", given, o.Vectors.Dimensions(), encoder.encoder.Dimensions()))
	}
	o.Identity.Dimensions = o.Vectors.Dimensions()
	o.Identity.Vectors, _, err = index.HashFiles([]string{given}, func(int) {})
	return err
}

// corpusFiles resolves patterns.
func corpusFiles(patterns []string) ([]string, error) {
	files, err := dataset.Expand(patterns)
	if err != nil {
		return nil, fault.Usage(fmt.Errorf("index.corpus: %w", err))
	}
	return files, nil
}

// checkIndex prints what the index command would make.
func checkIndex(path string, sets []string, out io.Writer) error {
	c, err := config.LoadIndex(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	f := &findings{out: out}
	f.line("== settings ==")
	f.problem(config.WriteIndex(out, c))
	f.heading("corpus")
	files, err := corpusFiles(c.Index.Corpus)
	f.problem(err)
	passages := f.showCorpus(files)
	o := buildOptions(c, files)
	if c.Index.Has(index.MethodDense) {
		f.heading("encoder")
		encoder, err := openEncoder(c.Encoder)
		if err != nil {
			f.problem(err)
			return f.verdict()
		}
		defer func() { f.problem(encoder.close()) }()
		f.showEncoder(c, &o, encoder, passages)
		if o.Vectors != nil {
			defer func() { f.problem(o.Vectors.Close()) }()
		}
	}
	f.heading("folder " + c.Index.Dir)
	f.showIndexFolder(o)
	return f.verdict()
}

// showCorpus shows files and first passages; it returns the number of all.
func (f *findings) showCorpus(files []string) (passages int) {
	for _, file := range files {
		s, err := index.Survey(file, shownRows)
		if err != nil {
			f.problem(fault.Usage(err))
			continue
		}
		passages += s.Passages
		f.line("%s: %d passages, %s of text", file, s.Passages, inBytes(s.Bytes))
		for _, passage := range s.First {
			f.line("  %s: %.120q", onALine(passage.ID), passage.Contents)
		}
	}
	if passages == 0 && len(f.problems) == 0 {
		f.problem(fault.Usage(fmt.Errorf("index.corpus: %s: holds no passage", strings.Join(files, ", "))))
	}
	return passages
}

// showEncoder shows the encoder and what of it stays on disk, and puts it into the options.
func (f *findings) showEncoder(c *config.Index, o *index.BuildOptions, encoder *openedEncoder, passages int) {
	f.line("%s", encoder.describe())
	if err := vectorsFrom(o, encoder, c.Encoder.Vectors); err != nil {
		f.problem(err)
		return
	}
	if o.Vectors != nil && o.Vectors.Len() != passages {
		f.problem(fault.Usage(fmt.Errorf("%s holds %d vectors, the corpus %d passages", c.Encoder.Vectors, o.Vectors.Len(), passages)))
	}
	vectors := 4 * int64(passages) * int64(o.Identity.Dimensions)
	f.line("vectors: %s on disk", inBytes(vectors))
	if c.Graph.Build {
		f.line("graph: about %s on disk, and in memory where it is searched", inBytes(vectors+8*int64(passages)*int64(c.Graph.M)))
	}
}

// noStage shows no progress.
type noStage struct{}

func (noStage) Add(int) {}
func (noStage) Done()   {}

// showIndexFolder tells what is there already, where nothing before it is wrong.
func (f *findings) showIndexFolder(o index.BuildOptions) {
	if len(f.problems) > 0 {
		return
	}
	o.Progress = func(string, int) index.Stage { return noStage{} }
	made, begun, err := index.Inspect(o)
	switch {
	case err != nil:
		f.problem(err)
	case made != nil:
		f.line("holds an index of %d passages, which stays as it is", made.Passages)
	case begun:
		f.line("%s.tmp is a build that was stopped; it goes on", o.Dir)
	default:
		f.line("is made")
	}
}
