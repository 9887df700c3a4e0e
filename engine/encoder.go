package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/weights"
)

// EncoderOptions say how an encoder is loaded. Zero values take the defaults.
type EncoderOptions struct {
	DType       string // compute dtype, as in Options
	MaxTokens   int    // of a text, the special ones included; what is longer is cut. 0: 512, or the model's positions if fewer
	Pooling     string // "mean" or "cls"; "": what the folder says (model.LoadPooling)
	Normalize   *bool  // nil: what the folder says
	BatchTokens int    // most tokens of one forward pass; 0: 16384
}

const (
	defaultMaxTokens   = 512   // what encoders of the BERT family are trained on
	defaultBatchTokens = 16384 // keeps the widest activations of a base model at 200 MB
)

// Encoder turns texts into vectors by a model of the BERT family. It is safe for concurrent use, and implements the
// Encoder of package retrieval.
type Encoder struct {
	*Runtime
	Architecture model.EncoderArchitecture
	Pooling      model.Pooling
	tokenizer    *tokenizer.WordPiece
	handle       encoderHandle
	maxTokens    int
	batchTokens  int
}

// LoadEncoder reads a HuggingFace folder of a BERT model with its WordPiece tokenizer onto the device.
func (r *Runtime) LoadEncoder(dir string, o EncoderOptions) (*Encoder, error) {
	architecture, err := model.LoadEncoderArchitecture(dir)
	if err != nil {
		return nil, err
	}
	e := &Encoder{Runtime: r, Architecture: architecture}
	if e.tokenizer, err = tokenizer.LoadWordPiece(dir); err != nil {
		return nil, err
	}
	if e.tokenizer.Size() > architecture.VocabSize {
		return nil, fmt.Errorf("model folder %s: tokenizer.json has ids up to %d, but config.json says vocab_size %d: the tokenizer belongs to another model",
			dir, e.tokenizer.Size()-1, architecture.VocabSize)
	}
	if err := e.setOptions(dir, o); err != nil {
		return nil, err
	}
	files, err := weights.OpenEncoder(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	dtype, err := computeDType(o.DType, r.device)
	if err != nil {
		return nil, err
	}
	err = r.do(func() error {
		if e.handle, err = encoderNew(architecture, r.device, e.Pooling, dtype, r.groupsOf(architecture.Parameters())); err != nil {
			return err
		}
		return copyWeights(architecture.Parameters(), files, func(name string, tensor unsafe.Pointer) error {
			return encoderSetWeight(e.handle, name, tensor)
		})
	})
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("loading encoder %s: %w", dir, err)
	}
	return e, nil
}

// setOptions resolves what the options leave open.
func (e *Encoder) setOptions(dir string, o EncoderOptions) error {
	var err error
	if o.Pooling == "" || o.Normalize == nil {
		if e.Pooling, err = model.LoadPooling(dir); err != nil {
			return err
		}
	}
	if o.Normalize != nil {
		e.Pooling.Normalize = *o.Normalize
	}
	e.Pooling.Mode = cmp.Or(o.Pooling, e.Pooling.Mode)
	if e.Pooling.Mode != model.PoolMean && e.Pooling.Mode != model.PoolFirst {
		return fmt.Errorf(`pooling is %q; allowed are "mean" and "cls"`, o.Pooling)
	}
	positions := e.Architecture.MaxPositions
	e.maxTokens = cmp.Or(o.MaxTokens, min(defaultMaxTokens, positions))
	if e.maxTokens < 3 || e.maxTokens > positions {
		return fmt.Errorf("the most tokens of a text are %d; allowed are 3 to %d, the positions of the encoder", e.maxTokens, positions)
	}
	e.batchTokens = max(cmp.Or(o.BatchTokens, defaultBatchTokens), e.maxTokens)
	return nil
}

// Dimensions is the length of every vector.
func (e *Encoder) Dimensions() int { return e.Architecture.HiddenSize }

// MaxTokens is how many tokens of a text are read.
func (e *Encoder) MaxTokens() int { return e.maxTokens }

// Encode returns one vector of Dimensions numbers for each text. Texts of like length go through the model together,
// up to BatchTokens at a time; between two passes ctx is looked at.
func (e *Encoder) Encode(ctx context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, len(texts))
	ids := make([][]int32, len(texts))
	order := make([]int, len(texts))
	for k, text := range texts {
		ids[k], order[k] = e.tokenizer.Encode(text, e.maxTokens), k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(ids[a]), len(ids[b])) })
	for len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var batch packedRows
		rows := 0
		for rows < len(order) && (rows == 0 || len(batch.ids)+len(ids[order[rows]]) <= e.batchTokens) {
			batch.add(ids[order[rows]], nil)
			rows++
		}
		out, width := make([]float32, rows*e.Dimensions()), e.Dimensions()
		if err := e.do(func() error { return encoderEncode(e.handle, &batch, out) }); err != nil {
			return nil, err
		}
		for k, text := range order[:rows] {
			vectors[text] = out[k*width : (k+1)*width : (k+1)*width]
		}
		order = order[rows:]
	}
	return vectors, nil
}

// Close frees the encoder.
func (e *Encoder) Close() error {
	return e.do(func() error {
		encoderFree(e.handle)
		e.handle = nil
		return nil
	})
}
