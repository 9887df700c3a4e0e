package weights

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/model"
)

// The names of the weight files of a HuggingFace model folder.
const (
	SingleFile = "model.safetensors"
	IndexFile  = "model.safetensors.index.json"
)

// maxIndexBytes bounds the shard index; that of a model of 1000 layers has about 1 MB.
const maxIndexBytes = 32 << 20

// layout is what the weight files of a kind of model must hold.
type layout struct {
	name       string // of the model, in errors
	parameters []model.Parameter
	prefixes   []string       // that the names in the files may have in front, all the same one
	ignored    *regexp.Regexp // names without the prefix that nothing needs
}

// superfluousAngles matches tensors that older versions of transformers stored: the rotary angles follow from config.json.
var superfluousAngles = regexp.MustCompile(`\.rotary_emb\.inv_freq$`)

const (
	embedding  = "model.embed_tokens.weight"
	outputHead = "lm_head.weight"
)

// Folder is the open weights of a model folder.
type Folder struct {
	layout  layout
	dir     string
	prefix  string // of the names in the files
	files   []*File
	tensors []Tensor
	byName  map[string]int
	stored  []Tensor
}

// Open maps the weights of a model folder, model.safetensors or the shards named by
// model.safetensors.index.json, and checks them against config.json: every parameter of the
// architecture is there, in its shape, as F32, BF16 or F16, and nothing else but what is known to
// be superfluous: rotary inv_freq buffers, and an lm_head.weight equal to the embedding in a model
// that ties them.
func Open(dir string) (*Folder, error) {
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		return nil, err
	}
	return open(dir, layout{architecture.Name, architecture.Parameters(), []string{""}, superfluousAngles})
}

func open(dir string, l layout) (*Folder, error) {
	folder := &Folder{layout: l, dir: dir, byName: map[string]int{}}
	if err := folder.open(); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

func (f *Folder) open() error {
	owner, err := f.openFiles()
	if err != nil {
		return err
	}
	holds := func(prefix string) bool { return owner[prefix+f.layout.parameters[0].Name] != nil }
	if k := slices.IndexFunc(f.layout.prefixes, holds); k >= 0 {
		f.prefix = f.layout.prefixes[k]
	}
	for _, parameter := range f.layout.parameters {
		tensor, err := f.find(parameter, owner)
		if err != nil {
			return err
		}
		f.byName[parameter.Name] = len(f.tensors)
		f.tensors = append(f.tensors, tensor)
	}
	for _, file := range f.files {
		for _, tensor := range file.Tensors() {
			if err := f.checkExtra(file, tensor); err != nil {
				return err
			}
			f.stored = append(f.stored, tensor)
		}
	}
	return nil
}

// openFiles opens all weight files and tells which one holds each tensor.
func (f *Folder) openFiles() (map[string]*File, error) {
	names, index, err := weightFiles(f.dir)
	if err != nil {
		return nil, err
	}
	owner := map[string]*File{}
	for _, name := range names {
		file, err := OpenFile(filepath.Join(f.dir, name))
		if err != nil {
			return nil, err
		}
		f.files = append(f.files, file)
	}
	for k, file := range f.files {
		for _, tensor := range file.Tensors() {
			if place, listed := index[tensor.Name]; index != nil && (!listed || place != names[k]) {
				return nil, fmt.Errorf("weight file %s holds tensor %q, for which %s names file %q", file.path, tensor.Name, IndexFile, place)
			}
			owner[tensor.Name] = file
		}
	}
	for _, name := range sortedNames(index) {
		if owner[name] == nil {
			return nil, fmt.Errorf("%s: tensor %q is not in file %s as the index says", filepath.Join(f.dir, IndexFile), name, index[name])
		}
	}
	return owner, nil
}

// weightFiles lists the weight files of a folder, with the index's file of each tensor where there
// is an index. Like transformers, it prefers a single file.
func weightFiles(dir string) (names []string, index map[string]string, err error) {
	_, err = os.Stat(filepath.Join(dir, SingleFile))
	if err == nil {
		return []string{SingleFile}, nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("cannot open weight file: %w", err)
	}
	index, err = readIndex(filepath.Join(dir, IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("model folder %s has no weights: needed is %s, or %s with its shards", dir, SingleFile, IndexFile)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, tensor := range sortedNames(index) {
		name := index[tensor]
		if name != filepath.Base(name) || name == "." || name == ".." {
			return nil, nil, fmt.Errorf("%s: tensor %q is in file %q, allowed is a file of the same folder", filepath.Join(dir, IndexFile), tensor, name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), index, nil
}

// readIndex reads the weight_map of a shard index: the file of each tensor.
func readIndex(path string) (map[string]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read weight index: %w", err)
	}
	if info.Size() > maxIndexBytes {
		return nil, fmt.Errorf("%s has %d bytes, allowed are %d", path, info.Size(), maxIndexBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read weight index: %w", err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("%s is not a weight index: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map is missing or empty, needed is the file of each tensor", path)
	}
	return index.WeightMap, nil
}

// find looks a parameter up and checks its shape and data type.
func (f *Folder) find(parameter model.Parameter, owner map[string]*File) (Tensor, error) {
	file := owner[f.prefix+parameter.Name]
	if file == nil {
		return Tensor{}, fmt.Errorf("model folder %s: tensor %q, which %s of this config.json needs, is in none of its weight files",
			f.dir, f.prefix+parameter.Name, f.layout.name)
	}
	tensor, _ := file.Tensor(f.prefix + parameter.Name)
	if !slices.Equal(tensor.Shape, parameter.Shape) {
		return Tensor{}, fmt.Errorf("weight file %s: tensor %q has shape %v, config.json asks for %v", file.path, tensor.Name, tensor.Shape, parameter.Shape)
	}
	if elementBytes(tensor.DType) == 0 {
		return Tensor{}, fmt.Errorf("weight file %s: tensor %q has data type %s, allowed are F32, BF16 and F16", file.path, tensor.Name, tensor.DType)
	}
	tensor.Name = parameter.Name
	return tensor, nil
}

// checkExtra refuses a tensor that is no parameter, unless it is known to be superfluous.
func (f *Folder) checkExtra(file *File, tensor Tensor) error {
	name := strings.TrimPrefix(tensor.Name, f.prefix)
	if _, known := f.byName[name]; known || f.layout.ignored.MatchString(name) {
		return nil
	}
	tied, decoder := f.Tensor(embedding)
	if name != outputHead || !decoder {
		return fmt.Errorf("weight file %s: tensor %q does not belong to %s with this config.json", file.path, tensor.Name, f.layout.name)
	}
	if tensor.DType != tied.DType || !slices.Equal(tensor.Shape, tied.Shape) || !bytes.Equal(tensor.Data, tied.Data) {
		return fmt.Errorf("weight file %s: tensor %q differs from the embedding, config.json says tie_word_embeddings", file.path, tensor.Name)
	}
	return nil
}

// Tensors lists the parameters in the order of Architecture.Parameters, under the names there.
func (f *Folder) Tensors() []Tensor { return f.tensors }

// Stored lists all tensors of the files in the order in which they are stored, superfluous ones
// included.
func (f *Folder) Stored() []Tensor { return f.stored }

// Tensor finds a parameter by name.
func (f *Folder) Tensor(name string) (Tensor, bool) {
	k, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[k], true
}

// Close unmaps all files; the data of their tensors must not be touched afterwards.
func (f *Folder) Close() error {
	var failed []error
	for _, file := range f.files {
		failed = append(failed, file.Close())
	}
	f.files, f.tensors, f.stored = nil, nil, nil
	clear(f.byName)
	return errors.Join(failed...)
}

// Hash is the SHA-256, in hex, of the parameters: name, data type, shape and content of each, in
// the order of Architecture.Parameters. It does not depend on how they are spread over files.
func (f *Folder) Hash() string {
	sum := sha256.New()
	for _, tensor := range f.tensors {
		fmt.Fprintf(sum, "%q %s %v %d\n", tensor.Name, tensor.DType, tensor.Shape, len(tensor.Data))
		sum.Write(tensor.Data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Hash is Folder.Hash of the model folder dir.
func Hash(dir string) (string, error) {
	folder, err := Open(dir)
	if err != nil {
		return "", err
	}
	hash := folder.Hash()
	return hash, folder.Close()
}

func sortedNames(index map[string]string) []string {
	names := make([]string, 0, len(index))
	for name := range index {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
