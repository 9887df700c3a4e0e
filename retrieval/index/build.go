package index

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval"
)

// BuildOptions are what an index is made of. Without encoder and given vectors it has none, without a graph
// no approximate search.
type BuildOptions struct {
	Dir      string
	Corpus   []string // JSONL files, one behind the other
	BM25     bool
	Encoder  retrieval.Encoder
	Vectors  *GivenVectors   // take the place of Encoder's
	Identity EncoderIdentity // of what made the vectors
	Graph    *GraphOptions   // M, EFConstruction and Seed of it
	Graphs   GraphLibrary
	Progress func(stage string, total int) Stage // total is 0 where it is not known
}

// Stage is a part of the work that is under way.
type Stage interface {
	Add(n int)
	Done()
}

// graphFile is the graph as its library saves it.
const graphFile = "graph.bin"

// planFile, in an unfinished folder, is the manifest that it will have, with what is known so far.
const planFile = "plan.json"

// lockFile is locked by the process that writes an unfinished folder.
const lockFile = "lock"

// Build makes the folder of an index. It is written under a name of its own and renamed when it is
// whole; a build that was stopped goes on where it was, in chunks of vectors. An index that is
// there already is left as it is, if it is the one that is wanted. Errors of the corpus, and folders
// that hold something else, are marked as the user's.
func Build(ctx context.Context, o BuildOptions) (*Manifest, error) {
	if err := checkByteOrder(); err != nil {
		return nil, fault.Environment(err)
	}
	plan, err := o.plan()
	if err != nil {
		return nil, err
	}
	if made, err := o.existing(plan); made != nil || err != nil {
		return made, err
	}
	b := &build{BuildOptions: o, dir: o.unfinished(), manifest: plan}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, fmt.Errorf("index folder: %w", err)
	}
	unlock, err := lock(b.dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if made, err := o.existing(plan); made != nil || err != nil { // another build ended meanwhile
		return made, errors.Join(err, os.RemoveAll(b.dir))
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return plan, nil
}

// build is one build under way in the unfinished folder dir.
type build struct {
	BuildOptions
	dir      string
	manifest *Manifest
	passages *passages
}

func (b *build) run(ctx context.Context) (err error) {
	if err := b.resume(ctx); err != nil {
		return err
	}
	if b.passages, err = openPassages(b.dir, b.manifest.Passages); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.passages.Close()) }()
	for _, step := range []func(context.Context) error{b.makeTitles, b.makeWords, b.makeVectors, b.makeGraph} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return b.finish()
}

// resume takes what an earlier build of the same index left, or reads the corpus anew.
func (b *build) resume(ctx context.Context) error {
	before, err := b.begun(b.manifest)
	if err != nil {
		return err
	}
	if before == nil {
		return b.readCorpus(ctx)
	}
	b.manifest.Passages, b.manifest.Words = before.Passages, before.Words
	return nil
}

// readCorpus writes the passages, and then the plan, which says that they are whole.
func (b *build) readCorpus(ctx context.Context) (err error) {
	if err := b.clear(); err != nil {
		return err
	}
	stage := b.Progress("passages", 0)
	defer stage.Done()
	w, err := newPassageWriter(b.dir)
	if err != nil {
		return err
	}
	for _, path := range b.Corpus {
		if err := readInto(ctx, w, path, stage); err != nil {
			return errors.Join(err, w.close())
		}
	}
	if err := w.close(); err != nil {
		return err
	}
	if w.count == 0 {
		return fault.Usage(fmt.Errorf("corpus %s holds no passage, want one a line: %s", strings.Join(b.Corpus, ", "), corpusExample))
	}
	written, err := openPassages(b.dir, w.count)
	if err != nil {
		return err
	}
	if err := errors.Join(written.checkUnique(w.idHashes), written.Close()); err != nil {
		return fault.Usage(fmt.Errorf("corpus %s: %w", strings.Join(b.Corpus, ", "), err))
	}
	b.manifest.Passages = w.count
	return b.keepPlan()
}

// clear removes what a build left of which nothing is known.
func (b *build) clear() error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == lockFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(b.dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) keepPlan() error { return b.manifest.write(filepath.Join(b.dir, planFile)) }

func readInto(ctx context.Context, w *passageWriter, path string, stage Stage) error {
	file, err := os.Open(path)
	if err != nil {
		return fault.Usage(fmt.Errorf("corpus: %w", err))
	}
	defer file.Close()
	err = scanCorpus(file, func(_ int, passage retrieval.Passage) error {
		stage.Add(1)
		return errors.Join(ctx.Err(), fault.Environment(w.add(passage)))
	})
	var environment *fault.Error
	if err == nil || ctx.Err() != nil || errors.As(err, &environment) {
		return err
	}
	return fault.Usage(fmt.Errorf("corpus %s: %w", path, err))
}

func (b *build) makeTitles(context.Context) error {
	if exists(filepath.Join(b.dir, titlesFile)) {
		return nil
	}
	return writeTitles(b.dir, b.passages)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeWords makes BM25's files; those of a build that was stopped are made anew.
func (b *build) makeWords(ctx context.Context) error {
	if b.manifest.Words == nil || *b.manifest.Words > 0 {
		return nil
	}
	stage := b.Progress("words of passages", b.manifest.Passages)
	defer stage.Done()
	words, err := buildWords(ctx, b.dir, b.passages, stage.Add)
	if err != nil {
		return fmt.Errorf("building BM25: %w", err)
	}
	b.manifest.Words = &words
	return b.keepPlan()
}

func (b *build) makeVectors(ctx context.Context) error {
	count := b.manifest.Passages
	if b.manifest.Encoder == nil {
		return nil
	}
	chunk := func(first, end int) ([][]float32, error) {
		return encodeChunk(ctx, b.passages, b.Encoder, b.Identity.PassagePrefix, first, end)
	}
	if b.Vectors != nil {
		if b.Vectors.Len() != count {
			return fault.Usage(fmt.Errorf("%s holds %d vectors, the corpus %d passages", b.Vectors.Path(), b.Vectors.Len(), count))
		}
		chunk = func(first, end int) ([][]float32, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return b.Vectors.chunk(first, end)
		}
	}
	stage := b.Progress("vectors of passages", count)
	defer stage.Done()
	return writeVectors(b.dir, b.manifest.Encoder.Dimensions, count, chunk, stage.Add)
}

// makeGraph builds the graph over the vectors; one that was stopped is built anew.
func (b *build) makeGraph(ctx context.Context) (err error) {
	if b.manifest.Graph == nil {
		return nil
	}
	dimensions := b.manifest.Encoder.Dimensions
	options := *b.Graph
	options.Dimensions, options.Capacity = dimensions, b.manifest.Passages
	graph, err := b.Graphs.New(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, graph.Close()) }()
	if err := b.fill(ctx, graph, dimensions); err != nil {
		return err
	}
	return graph.Save(filepath.Join(b.dir, graphFile))
}

// graphPassages are put into a graph at once, by all threads.
const graphPassages = 2048

func (b *build) fill(ctx context.Context, graph Graph, dimensions int) (err error) {
	vectors, err := mapFile(filepath.Join(b.dir, vectorsFile), 4*int64(dimensions)*int64(b.manifest.Passages))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vectors.Close()) }()
	stage := b.Progress("graph of passages", b.manifest.Passages)
	defer stage.Done()
	for first := 0; first < b.manifest.Passages; first += graphPassages {
		if err := ctx.Err(); err != nil {
			return err
		}
		last := min(first+graphPassages, b.manifest.Passages)
		some, err := vectors.numbers(first*dimensions, last*dimensions)
		if err != nil {
			return err
		}
		if err := graph.Add(some); err != nil {
			return err
		}
		stage.Add(last - first)
	}
	return nil
}

// readable lets everybody read what bleve keeps for its own user.
func readable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// finish writes the manifest, puts everything on disk and gives the folder its name.
func (b *build) finish() error {
	if err := readable(b.dir); err != nil {
		return err
	}
	if err := b.manifest.seal(b.dir); err != nil {
		return err
	}
	if err := b.manifest.write(filepath.Join(b.dir, manifestFile)); err != nil {
		return err
	}
	if err := syncTree(b.dir); err != nil {
		return err
	}
	if err := os.Remove(b.Dir); err != nil && !errors.Is(err, os.ErrNotExist) { // an empty folder
		return err
	}
	if err := os.Rename(b.dir, b.Dir); err != nil {
		return err
	}
	for _, left := range []string{planFile, sumsFile, lockFile} {
		if err := os.Remove(filepath.Join(b.Dir, left)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return durable.SyncDir(filepath.Dir(b.Dir))
}

// syncTree waits until a folder and all files in it are on disk.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(file.Sync(), file.Close())
	})
}
