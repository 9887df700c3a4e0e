package engine

/*
#include <stdlib.h>
#include "mempo.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/mempo-train/mempo-train/model"
)

type encoderHandle = *C.mempo_encoder

var activations = map[string]C.mempo_activation{
	model.GELU: C.MEMPO_GELU, model.GELUTanh: C.MEMPO_GELU_TANH, model.ReLU: C.MEMPO_RELU,
}

func encoderNew(a model.EncoderArchitecture, device string, p model.Pooling, dtype string, groups int) (encoderHandle, error) {
	activation, known := activations[a.Activation]
	if !known {
		return nil, fmt.Errorf("engine: unknown activation %q", a.Activation)
	}
	config := C.mempo_encoder_config{
		vocab: C.int64_t(a.VocabSize), hidden: C.int64_t(a.HiddenSize), intermediate: C.int64_t(a.IntermediateSize),
		layers: C.int64_t(a.Layers), heads: C.int64_t(a.Heads), positions: C.int64_t(a.MaxPositions),
		token_types: C.int64_t(a.TokenTypes), layer_norm_eps: C.double(a.LayerNormEps), activation: activation,
		normalize: cBool(p.Normalize), groups: C.int64_t(groups),
	}
	if p.Mode == model.PoolFirst {
		config.pooling = C.MEMPO_POOL_FIRST
	}
	if dtype == bfloat16Name {
		config.compute_dtype = C.MEMPO_BFLOAT16
	}
	c, free := cString(device)
	defer free()
	var e C.mempo_error
	var handle encoderHandle
	err := check(C.mempo_encoder_new(&config, c, &handle, &e), &e)
	return handle, err
}

func encoderFree(h encoderHandle) { C.mempo_encoder_free(h) }

// encoderSetWeight hands over a tensor; `tensor` is an at::Tensor*.
func encoderSetWeight(h encoderHandle, name string, tensor unsafe.Pointer) error {
	c, free := cString(name)
	defer free()
	var e C.mempo_error
	return check(C.mempo_encoder_set_weight(h, c, tensor, &e), &e)
}

// encoderEncode fills out, which has room for a vector of each row.
func encoderEncode(h encoderHandle, p *packedRows, out []float32) error {
	var e C.mempo_error
	code := C.mempo_encoder_encode(h, C.int64_t(p.rows()), (*C.int64_t)(first(p.allOffsets())), (*C.int32_t)(first(p.ids)), cFloats(out), &e)
	return check(code, &e)
}
