package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// Inspect tells what Build would find: the manifest of the index if it is made already, or that a build
// of it was stopped. Its errors are those of Build before it writes anything.
func Inspect(o BuildOptions) (made *Manifest, begun bool, err error) {
	plan, err := o.plan()
	if err != nil {
		return nil, false, err
	}
	if made, err = o.existing(plan); made != nil || err != nil {
		return made, false, err
	}
	before, err := o.begun(plan)
	return nil, before != nil, err
}

// plan is the manifest as far as it is known before anything is made.
func (o BuildOptions) plan() (*Manifest, error) {
	m := &Manifest{Format: formatVersion, Corpus: CorpusIdentity{Files: o.Corpus}}
	stage := o.Progress("reading the corpus, bytes", 0)
	defer stage.Done()
	var err error
	if m.Corpus.SHA256, m.Corpus.Bytes, err = HashFiles(o.Corpus, stage.Add); err != nil {
		return nil, fault.Usage(fmt.Errorf("corpus: %w", err))
	}
	if o.BM25 {
		m.Words = new(int64)
	}
	if o.Encoder != nil || o.Vectors != nil {
		identity := o.Identity
		m.Encoder = &identity
		if o.Graph != nil {
			m.Graph = &GraphIdentity{M: o.Graph.M, EFConstruction: o.Graph.EFConstruction, Seed: o.Graph.Seed}
		}
	}
	return m, nil
}

// CheckFolder refuses a folder that no index can be put in: one that holds something else, or that cannot be replaced. It is quick
// and writes nothing. Its errors, which are those of Build too, are marked as the user's.
func CheckFolder(dir string) error {
	_, err := madeIn(filepath.Clean(dir))
	return err
}

// madeIn is the manifest of the index in a folder, nil if an index can still be put in its place.
func madeIn(dir string) (*Manifest, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fault.Usage(fmt.Errorf("index folder: %w", err))
	case len(entries) == 0:
		return nil, fault.Usage(replaceable(dir))
	}
	made, err := ReadManifest(dir)
	if err != nil {
		return nil, fault.Usage(fmt.Errorf("the folder of the index is there, but %w; choose another folder, or remove it", err))
	}
	return made, nil
}

// replaceable refuses an empty folder whose place no other can take.
func replaceable(dir string) error {
	if base := filepath.Base(dir); base == "." || base == ".." || base == string(filepath.Separator) {
		return fmt.Errorf("the folder of the index cannot be %q, which nothing can be renamed to; name a folder inside it", dir)
	}
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &stat)
	if err == nil && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return fmt.Errorf("the folder of the index cannot be %s, where a file system is mounted; name a folder inside it", dir)
	}
	return nil
}

// existing is the manifest of the folder that is already there, nil if there is none, an error if it
// is another or not whole.
func (o BuildOptions) existing(plan *Manifest) (*Manifest, error) {
	made, err := madeIn(o.Dir)
	if made == nil || err != nil {
		return nil, err
	}
	if what := plan.difference(made); what != "" {
		return nil, fault.Usage(fmt.Errorf("%s holds an index, but %s; choose another folder, or remove it", o.Dir, what))
	}
	if err := made.verify(o.Dir, true); err != nil {
		return nil, fault.Usage(fmt.Errorf("%s holds an index, but %w; remove it to build it again", o.Dir, err))
	}
	return made, nil
}

// unfinished is the folder that a build writes.
func (o BuildOptions) unfinished() string { return o.Dir + durable.TempSuffix }

// begun is the manifest of a build that was stopped, nil if nothing is known of one, an error if it was
// that of another index.
func (o BuildOptions) begun(plan *Manifest) (*Manifest, error) {
	dir := o.unfinished()
	path := filepath.Join(dir, planFile)
	data, err := readBounded(path, maxManifest)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	before, err := parseManifest(data)
	if err != nil {
		return nil, fault.Usage(fmt.Errorf("%s: %w; remove %s to begin anew", path, err, dir))
	}
	if what := plan.difference(before); what != "" {
		return nil, fault.Usage(fmt.Errorf("%s holds an index that was begun, but %s; remove it to begin anew", dir, what))
	}
	return before, nil
}

// lock keeps two builds out of one folder.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fault.Usage(fmt.Errorf("%s is being written by another process", dir)), file.Close())
	}
	return func() { _ = file.Close() }, nil // which gives the lock up
}
