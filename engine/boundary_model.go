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

var checkpointings = map[string]C.mempo_checkpointing{
	"": C.MEMPO_KEEP_ALL, "none": C.MEMPO_KEEP_ALL, "mlp": C.MEMPO_RECOMPUTE_MLP, "layer": C.MEMPO_RECOMPUTE_LAYER,
}

var offloads = map[string]C.int{"": 0, "none": 0, "cpu": 1}

func modelNew(a model.Architecture, device string, o Options, dtype string, groups int) (modelHandle, error) {
	checkpointing, known := checkpointings[o.ActivationCheckpointing]
	if !known {
		return nil, fmt.Errorf(`activation checkpointing is %q; allowed are "none", "mlp" and "layer"`, o.ActivationCheckpointing)
	}
	onHost, known := offloads[o.OptimizerOffload]
	if !known {
		return nil, fmt.Errorf(`optimizer offload is %q; allowed are "none" and "cpu"`, o.OptimizerOffload)
	}
	adapters, err := adaptersOf(o.Adapters)
	if err != nil {
		return nil, err
	}
	frequencies := a.Rope.InverseFrequencies(a.HeadDim)
	inC := C.CBytes(unsafe.Slice((*byte)(unsafe.Pointer(first(frequencies))), 4*len(frequencies)))
	defer C.free(inC)
	config := C.mempo_model_config{
		vocab: C.int64_t(a.VocabSize), hidden: C.int64_t(a.HiddenSize), intermediate: C.int64_t(a.IntermediateSize),
		layers: C.int64_t(a.Layers), heads: C.int64_t(a.Heads), kv_heads: C.int64_t(a.KVHeads),
		head_dim: C.int64_t(a.HeadDim), rms_norm_eps: C.double(a.RMSNormEps),
		qkv_bias: cBool(a.QKVBias), output_bias: cBool(a.OutputBias), mlp_bias: cBool(a.MLPBias),
		qk_norm: cBool(a.QKNorm), tied_embeddings: cBool(a.TiedEmbeddings),
		inverse_frequencies: (*C.float)(inC), trainable: cBool(o.Trainable),
		checkpointing: checkpointing, optimizer_on_host: onHost,
		groups: C.int64_t(groups), adapters: adapters,
	}
	if dtype == bfloat16Name {
		config.compute_dtype = C.MEMPO_BFLOAT16
	}
	c, free := cString(device)
	defer free()
	var e C.mempo_error
	var handle modelHandle
	err = check(C.mempo_model_new(&config, c, &handle, &e), &e)
	return handle, err
}

func modelFree(m modelHandle) { C.mempo_model_free(m) }

// modelSetWeight hands over a tensor; `tensor` is an at::Tensor*.
func modelSetWeight(m modelHandle, name string, tensor unsafe.Pointer) error {
	c, free := cString(name)
	defer free()
	var e C.mempo_error
	return check(C.mempo_model_set_weight(m, c, tensor, &e), &e)
}

// modelFill sets a weight to draws of a normal distribution.
func modelFill(m modelHandle, name string, mean, deviation float64, seed uint64) error {
	c, free := cString(name)
	defer free()
	var e C.mempo_error
	return check(C.mempo_model_fill(m, c, C.double(mean), C.double(deviation), C.uint64_t(seed), &e), &e)
}

// What a model carries beside the kinds of tensor of package model.
const gradient model.TensorKind = "gradient"

func kindOf(kind model.TensorKind) (C.mempo_kind, error) {
	switch kind {
	case model.Master:
		return C.MEMPO_MASTER, nil
	case model.FirstMoment:
		return C.MEMPO_FIRST_MOMENT, nil
	case model.SecondMoment:
		return C.MEMPO_SECOND_MOMENT, nil
	case model.Merged:
		return C.MEMPO_MERGED, nil
	case gradient:
		return C.MEMPO_GRADIENT, nil
	}
	return 0, fmt.Errorf("engine: unknown kind of tensor %q", kind)
}

func modelRead(m modelHandle, kind model.TensorKind, name string, out []float32) error {
	k, err := kindOf(kind)
	if err != nil {
		return err
	}
	c, free := cString(name)
	defer free()
	var e C.mempo_error
	return check(C.mempo_model_read(m, k, c, cFloats(out), C.int64_t(len(out)), &e), &e)
}

func modelWrite(m modelHandle, kind model.TensorKind, name string, data []float32) error {
	k, err := kindOf(kind)
	if err != nil {
		return err
	}
	c, free := cString(name)
	defer free()
	var e C.mempo_error
	return check(C.mempo_model_write(m, k, c, cFloats(data), C.int64_t(len(data)), &e), &e)
}

func modelUpdateCount(m modelHandle) int64 { return int64(C.mempo_model_update_count(m)) }

func modelSetUpdateCount(m modelHandle, n int64) { C.mempo_model_set_update_count(m, C.int64_t(n)) }
