package checkpoint

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/weights"
)

// maxCarriedBytes bounds a file that is carried over: the largest tokenizers have some 35 MB. A
// larger file is taken for weights of another kind.
const maxCarriedBytes = 256 << 20

// weightSuffixes end the names of weight files, which are not carried over.
var weightSuffixes = []string{
	".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx",
}

// Source is what checkpoints take over from the model folder that the run started from. It is read
// once, so that later changes of that folder do not matter.
type Source struct {
	dir     string
	hash    string
	files   []carried
	tensors []stored
}

// carried is a file that goes into every checkpoint byte for byte.
type carried struct {
	name string
	data []byte
}

// stored is a tensor of the source's weight files. A tensor that is no parameter keeps its data.
type stored struct {
	name, dtype string
	shape       []int64
	parameter   string // whose master weight it holds; "" for none
	data        []byte
}

// ReadSource reads a model folder: the layout of its weight files, and every other file that is
// not a folder, not weights and not a mark of an earlier checkpoint.
func ReadSource(dir string) (*Source, error) {
	folder, err := weights.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	source := &Source{dir: dir, hash: folder.Hash()}
	for _, tensor := range folder.Stored() {
		source.tensors = append(source.tensors, layout(folder, tensor))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read model folder %s: %w", dir, durable.Bare(err))
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path) // follows links: caches of downloaded models are made of them
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, durable.Bare(err))
		}
		if !info.Mode().IsRegular() || info.Size() > maxCarriedBytes || isWeights(entry.Name()) || entry.Name() == marker {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, durable.Bare(err))
		}
		source.files = append(source.files, carried{entry.Name(), data})
	}
	return source, nil
}

// ModelHash is weights.Hash of the source.
func (s *Source) ModelHash() string { return s.hash }

// CheckpointBytes is the size on disk of one checkpoint, without the headers of its files, where
// these parameters are trained, which are those of adapters if there are any.
func (s *Source) CheckpointBytes(trained []model.Parameter, adapters model.Adapters) int64 {
	var total int64
	for _, file := range s.files {
		total += int64(len(file.data))
	}
	for _, tensor := range s.tensors {
		total += max(weights.Bytes(tensor.dtype, tensor.shape), int64(len(tensor.data)))
	}
	copies := int64(len(kinds))
	if adapters.Rank > 0 {
		copies++ // in the folder of the adapters
	}
	for _, parameter := range trained {
		total += copies * weights.Bytes(weights.F32, parameter.Shape)
	}
	return total
}

// layout notes how a tensor is stored and which parameter fills it.
func layout(folder *weights.Folder, tensor weights.Tensor) stored {
	place := stored{name: tensor.Name, dtype: tensor.DType, shape: slices.Clone(tensor.Shape)}
	switch _, isParameter := folder.Tensor(tensor.Name); {
	case isParameter:
		place.parameter = tensor.Name
	case tensor.Name == "lm_head.weight": // stored although tied: the embedding once more
		place.parameter = "model.embed_tokens.weight"
	default:
		place.data = slices.Clone(tensor.Data)
	}
	return place
}

func isWeights(name string) bool {
	return slices.ContainsFunc(weightSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// writeFiles puts the carried files into a folder.
func (s *Source) writeFiles(dir string) error {
	for _, file := range s.files {
		err := durable.CreateSynced(filepath.Join(dir, file.name), func(w io.Writer) error {
			_, err := w.Write(file.data)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// entries lists the tensors to be written, filled from the master weights of a state, to which
// adapters are added.
func (s *Source) entries(state model.State) []weights.Entry {
	kind := model.Master
	if state.Adapters().Rank > 0 {
		kind = model.Merged
	}
	entries := make([]weights.Entry, len(s.tensors))
	for k, tensor := range s.tensors {
		entries[k] = weights.Entry{Name: tensor.name, DType: tensor.dtype, Shape: tensor.shape}
		entries[k].Data = func() ([]byte, error) {
			if tensor.parameter == "" {
				return tensor.data, nil
			}
			return readFinite(state, kind, tensor.parameter, tensor.dtype)
		}
	}
	return entries
}
