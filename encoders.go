package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval/index"
)

// openedEncoder is an encoder on a device of its own, or the device alone, which searches among vectors.
type openedEncoder struct {
	*engine.Runtime
	encoder  *engine.Encoder // nil without one
	identity index.EncoderIdentity
}

// openEncoder loads an encoder, if the settings name one, and resolves what they leave open.
func openEncoder(s config.Encoder) (*openedEncoder, error) {
	if s.Path == "" {
		device, err := startEngine(s.Device, s.Threads)
		return &openedEncoder{Runtime: device}, err
	}
	hash, err := encoderHash(s.Path)
	if err != nil {
		return nil, fault.Usage(err)
	}
	where, err := filepath.Abs(s.Path)
	if err != nil {
		return nil, err
	}
	device, err := startEngine(s.Device, s.Threads)
	if err != nil {
		return nil, err
	}
	encoder, err := device.LoadEncoder(s.Path, encoderOptions(s))
	if err != nil {
		device.Close()
		return nil, deviceFault(err)
	}
	e5 := isE5(s.Path)
	return &openedEncoder{device, encoder, index.EncoderIdentity{
		Path: where, SHA256: hash, QueryPrefix: prefix(s.QueryPrefix, "query: ", e5), PassagePrefix: prefix(s.PassagePrefix, "passage: ", e5),
		Pooling: encoder.Pooling.Mode, Normalize: encoder.Pooling.Normalize, MaxTokens: encoder.MaxTokens(), Dimensions: encoder.Dimensions(),
	}}, nil
}

func encoderOptions(s config.Encoder) engine.EncoderOptions {
	o := engine.EncoderOptions{MaxTokens: s.MaxTokens, BatchTokens: s.BatchTokens}
	if s.Pooling != "auto" {
		o.Pooling = s.Pooling
	}
	if s.Normalize != "auto" {
		normalize := s.Normalize == "yes"
		o.Normalize = &normalize
	}
	return o
}

// prefix resolves "auto".
func prefix(setting, ofE5 string, e5 bool) string {
	switch {
	case setting != "auto":
		return setting
	case e5:
		return ofE5
	}
	return ""
}

var e5Name = regexp.MustCompile(`(?i)(^|[^a-z0-9])e5([^a-z0-9]|$)`)

// isE5 tells an E5 model by the name of its folder, or that in config.json.
func isE5(dir string) bool {
	absolute, err := filepath.Abs(dir)
	if err == nil && e5Name.MatchString(filepath.Base(absolute)) {
		return true
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	var file struct {
		Name string `json:"_name_or_path"`
	}
	return err == nil && json.Unmarshal(data, &file) == nil && e5Name.MatchString(filepath.Base(file.Name))
}

// encoderHash is that of the files of a folder that make its vectors.
func encoderHash(dir string) (string, error) {
	names, err := fs.Glob(os.DirFS(dir), "*.safetensors") // sorted; a "[" in the folder's own name is no pattern
	if err != nil {
		return "", err
	}
	var paths []string
	for _, name := range append(names, "config.json", "tokenizer.json") {
		paths = append(paths, filepath.Join(dir, name))
	}
	hash, _, err := index.HashFiles(paths, func(int) {})
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("encoder %s: %w; want a HuggingFace folder with config.json, tokenizer.json and safetensors", dir, err)
	}
	return hash, err
}

// describe tells what the encoder is.
func (e *openedEncoder) describe() string {
	i := e.identity
	if e.encoder == nil {
		return "no encoder of queries: clients send vectors"
	}
	return fmt.Sprintf("encoder %s on %s: %d dimensions, %s pooling, normalised: %v, %d tokens at most, queries behind %q, passages behind %q",
		i.Path, e.Device(), i.Dimensions, i.Pooling, i.Normalize, i.MaxTokens, i.QueryPrefix, i.PassagePrefix)
}

func (e *openedEncoder) close() (err error) {
	if e.encoder != nil {
		err = e.encoder.Close()
	}
	e.Close()
	return err
}

// exact is the search through all vectors on a device.
func exact(device *engine.Runtime) index.ExactSearcher { return engine.ExactSearch{Runtime: device} }

// graphs is the library of approximate search on a device.
func graphs(device *engine.Runtime) index.GraphLibrary {
	return index.GraphLibrary{
		New: func(o index.GraphOptions) (index.Graph, error) {
			return opened(device.NewGraph(engine.GraphOptions(o)))
		},
		Open: func(path string, dimensions int) (index.Graph, error) {
			return opened(device.OpenGraph(path, dimensions))
		},
	}
}

// opened keeps a nil graph from looking like one.
func opened(g *engine.Graph, err error) (index.Graph, error) {
	if err != nil {
		return nil, deviceFault(err)
	}
	return g, nil
}
