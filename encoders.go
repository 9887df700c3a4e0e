package main

import (
	"context"
	"errors"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/retrieval/index"
)

// graphs is the library of approximate search.
var graphs = index.GraphLibrary{
	New: func(index.GraphOptions) (index.Graph, error) {
		return nil, fault.Usage(errors.New("this program was built without approximate search"))
	},
}

// openedEncoder is an encoder on its device.
type openedEncoder struct {
	identity index.EncoderIdentity
}

func (e *openedEncoder) Encode(context.Context, []string) ([][]float32, error) { return nil, nil }
func (e *openedEncoder) Dimensions() int                                       { return 0 }
func (e *openedEncoder) Device() string                                        { return "" }
func (e *openedEncoder) describe() string                                      { return "" }
func (e *openedEncoder) close() error                                          { return nil }

// openEncoder loads an encoder.
func openEncoder(config.Encoder) (*openedEncoder, error) {
	return nil, fault.Usage(errors.New("this version has no encoders"))
}

// exactSearch compares queries with all vectors.
var exactSearch index.ExactSearcher = index.PlainExact{}
