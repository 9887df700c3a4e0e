package index

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/jsonl"
)

// formatVersion is that of the folder of an index.
const formatVersion = 1

const manifestFile = "manifest.json"

// maxManifest bounds the file, in bytes.
const maxManifest = 1 << 20

// Manifest says what an index holds and how it was made.
type Manifest struct {
	Format   int              `json:"format"`
	Corpus   CorpusIdentity   `json:"corpus"`
	Passages int              `json:"passages"`
	Words    *int64           `json:"words"`   // of all passages; nil without BM25
	Encoder  *EncoderIdentity `json:"encoder"` // of the vectors; nil without
	Graph    *GraphIdentity   `json:"graph"`   // over the vectors; nil without

	Files map[string]FileIdentity `json:"files"` // all others of the folder
}

// FileIdentity tells whether a file is whole.
type FileIdentity struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // "" where reading all of it takes too long
}

// CorpusIdentity tells one corpus from another.
type CorpusIdentity struct {
	Files  []string `json:"files"`
	Bytes  int64    `json:"bytes"`
	SHA256 string   `json:"sha256"` // of the content of the files, one behind the other
}

// EncoderIdentity is the encoder that made the vectors of an index, which that of queries must be.
// Path and SHA256 are "" where the vectors were given and nobody said what made them.
type EncoderIdentity struct {
	Path          string `json:"path"`   // where it was
	SHA256        string `json:"sha256"` // of its folder
	QueryPrefix   string `json:"query_prefix"`
	PassagePrefix string `json:"passage_prefix"`
	Pooling       string `json:"pooling"`
	Normalize     bool   `json:"normalize"`
	MaxTokens     int    `json:"max_tokens"`
	Dimensions    int    `json:"dimensions"`
	Vectors       string `json:"vectors"` // SHA-256 of the file that the vectors were taken from; "": the encoder made them
}

// GraphIdentity is how the graph was made.
type GraphIdentity struct {
	M              int    `json:"m"`
	EFConstruction int    `json:"ef_construction"`
	Seed           uint64 `json:"seed"`
}

// ReadManifest reads that of an index and checks that this program can read the index.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestFile)
	data, err := readBounded(path, maxManifest)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no %s: it is no index; mempo-train index makes one", dir, manifestFile)
	} else if err != nil {
		return nil, err
	}
	m, err := parseManifest(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, err
}

func parseManifest(data []byte) (*Manifest, error) {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err == nil && version.Format != formatVersion {
		return nil, fmt.Errorf("format is %d; this program reads format %d: build the index again", version.Format, formatVersion)
	}
	var m Manifest
	if err := jsonl.Decode(data, &m); err != nil {
		return nil, err
	}
	return &m, m.check()
}

// check refuses numbers that no index has, on which sizes of files are worked out.
func (m *Manifest) check() error {
	switch {
	case m.Passages < 1 || m.Passages > maxPassages:
		return fmt.Errorf("passages is %d, allowed: 1 to %d", m.Passages, maxPassages)
	case m.Words != nil && *m.Words < 0:
		return fmt.Errorf("words is %d, allowed: 0 or more", *m.Words)
	case m.Encoder != nil && (m.Encoder.Dimensions < 1 || m.Encoder.Dimensions > maxDimensions):
		return fmt.Errorf("encoder.dimensions is %d, allowed: 1 to %d", m.Encoder.Dimensions, maxDimensions)
	case m.Graph != nil && m.Encoder == nil:
		return errors.New("there is a graph, but no encoder")
	}
	return nil
}

// maxDimensions bounds the length of a vector.
const maxDimensions = 1 << 16

func (m *Manifest) write(path string) error {
	return durable.WriteFile(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(m)
	})
}

// difference says in what the plan of an index differs from what was made, or is "". Where files lie
// does not count.
func (m *Manifest) difference(made *Manifest) string {
	has := func(what string, now bool) string {
		if now {
			return "this one has " + what + ", that one none"
		}
		return "this one has no " + what + ", that one has"
	}
	switch {
	case m.Corpus.SHA256 != made.Corpus.SHA256:
		return fmt.Sprintf("it was made from another corpus (%d bytes then, %d now)", made.Corpus.Bytes, m.Corpus.Bytes)
	case (m.Words == nil) != (made.Words == nil):
		return has("bm25", m.Words != nil)
	case (m.Encoder == nil) != (made.Encoder == nil):
		return has("vectors", m.Encoder != nil)
	case (m.Graph == nil) != (made.Graph == nil):
		return has("graph", m.Graph != nil)
	}
	if m.Encoder != nil {
		if what := m.Encoder.difference(made.Encoder); what != "" {
			return what
		}
	}
	if a, b := m.Graph, made.Graph; a != nil && (a.M != b.M || a.EFConstruction != b.EFConstruction || a.Seed != b.Seed) {
		return fmt.Sprintf("its graph has m %d, ef_construction %d, seed %d; wanted are %d, %d, %d",
			b.M, b.EFConstruction, b.Seed, a.M, a.EFConstruction, a.Seed)
	}
	return ""
}

// difference says in what an encoder is not the one that made the vectors, or is "".
func (e *EncoderIdentity) difference(made *EncoderIdentity) string {
	for _, setting := range []struct {
		name      string
		now, then any
	}{
		{"dimensions", e.Dimensions, made.Dimensions},
		{"pooling", e.Pooling, made.Pooling},
		{"normalize", e.Normalize, made.Normalize},
		{"query_prefix", e.QueryPrefix, made.QueryPrefix},
		{"passage_prefix", e.PassagePrefix, made.PassagePrefix},
		{"max_tokens", e.MaxTokens, made.MaxTokens},
	} {
		if setting.now != setting.then {
			return fmt.Sprintf("its vectors were made with %s %#v, now it is %#v", setting.name, setting.then, setting.now)
		}
	}
	if e.Vectors != made.Vectors {
		return "its vectors were taken from another file, or from none"
	}
	if e.SHA256 != made.SHA256 {
		return fmt.Sprintf("its vectors were made by another model (then at %s, now %s)", made.Path, e.Path)
	}
	return ""
}

// checkedBytes bounds the files whose content is checked when an index is opened; that of the graph
// always is, as its library does not check it.
const checkedBytes = 64 << 20

// seal notes the files of a folder.
func (m *Manifest) seal(dir string) error {
	m.Files = map[string]FileIdentity{}
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || slices.Contains(unsealed, entry.Name()) {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m.Files[filepath.ToSlash(name)], err = identify(path, name == graphFile)
		return err
	})
}

// unsealed are files that say what the others hold, or are only there while these are made.
var unsealed = []string{manifestFile, planFile, lockFile, sumsFile}

func identify(path string, always bool) (FileIdentity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return FileIdentity{}, err
	}
	if !always && info.Size() > checkedBytes {
		return FileIdentity{Bytes: info.Size()}, nil
	}
	sum, size, err := HashFiles([]string{path}, func(int) {})
	return FileIdentity{size, sum}, err
}

// verify checks that the files of a folder are those that were noted. The graph is only looked at
// where it is used.
func (m *Manifest) verify(dir string, graph bool) error {
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		if name == graphFile && !graph {
			continue
		}
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%s names the file %q outside its folder", manifestFile, name)
		}
		want := m.Files[name]
		found, err := identify(filepath.Join(dir, name), name == graphFile)
		if err != nil {
			return err
		}
		if found.Bytes != want.Bytes {
			return fmt.Errorf("%s has %d bytes, want %d: it was cut or changed", filepath.Join(dir, name), found.Bytes, want.Bytes)
		}
		if found.SHA256 != want.SHA256 {
			return fmt.Errorf("%s is not the file that was written: its SHA-256 is %.16s…, want %.16s…", filepath.Join(dir, name), found.SHA256, want.SHA256)
		}
	}
	return nil
}

// HashFiles is the SHA-256 of the content of files, one behind the other, and its length.
// read is told of bytes that were read.
func HashFiles(paths []string, read func(int)) (sum string, size int64, err error) {
	hash := sha256.New()
	for _, path := range paths {
		n, err := hashFile(hash, path, read)
		if err != nil {
			return "", 0, err
		}
		size += n
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}

func hashFile(hash io.Writer, path string, read func(int)) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return io.Copy(io.MultiWriter(hash, counting(read)), file)
}

// counting tells how many bytes were written.
type counting func(int)

func (c counting) Write(p []byte) (int, error) {
	c(len(p))
	return len(p), nil
}
