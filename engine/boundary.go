package engine

// One Go function per C function of csrc/mempo.h; nothing else in the program speaks C.

/*
#cgo CPPFLAGS: -I${SRCDIR}/../csrc
#include <stdlib.h>
#include "mempo.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/mempo-train/mempo-train/model"
)

type (
	modelHandle   = *C.mempo_model
	sessionHandle = *C.mempo_session
)

// check turns a return code into an error; out of memory is model.ErrOutOfMemory.
func check(code C.int, failure *C.mempo_error) error {
	message := C.GoString(&failure.message[0])
	switch code {
	case C.MEMPO_OK:
		return nil
	case C.MEMPO_OUT_OF_MEMORY:
		return fmt.Errorf("%w: %s", model.ErrOutOfMemory, message)
	case C.MEMPO_INVALID, C.MEMPO_INTERNAL:
		return fmt.Errorf("engine: %s", message)
	default:
		return fmt.Errorf("device error: %s", message)
	}
}

func cString(text string) (*C.char, func()) {
	c := C.CString(text)
	return c, func() { C.free(unsafe.Pointer(c)) }
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

// first is the address of a slice's data, nil for an empty one.
func first[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}

func cFloats(s []float32) *C.float { return (*C.float)(first(s)) }

func runtimeInit(threads int) error {
	var e C.mempo_error
	return check(C.mempo_runtime_init(C.int(threads), &e), &e)
}

func cudaLoad(path string) error {
	var e C.mempo_error
	if path == "" {
		return check(C.mempo_cuda_load(nil, &e), &e)
	}
	c, free := cString(path)
	defer free()
	return check(C.mempo_cuda_load(c, &e), &e)
}

// cudaDriver tells the newest CUDA that the driver runs, as 13000 for 13.0 (0: no driver can be
// loaded), and how many GPUs it has.
func cudaDriver() (cuda, devices int) {
	var version, count C.int
	C.mempo_cuda_driver(&version, &count)
	return int(version), int(count)
}

// cudaKernelsLoad must not be called before cudaLoad.
func cudaKernelsLoad() error {
	var e C.mempo_error
	return check(C.mempo_cuda_kernels_load(&e), &e)
}

// cudaDeviceCount must not be called before cudaLoad.
func cudaDeviceCount() int { return int(C.mempo_cuda_device_count()) }

func deviceSelect(device string) error {
	c, free := cString(device)
	defer free()
	var e C.mempo_error
	return check(C.mempo_device_select(c, &e), &e)
}

// TorchVersion is the version of the libtorch that is loaded.
func TorchVersion() string { return C.GoString(C.mempo_torch_version()) }

// TorchNeeded is the version of the libtorch that the program was compiled for.
func TorchNeeded() string { return C.GoString(C.mempo_torch_needed()) }

// LiveHandles counts models, sessions, encoders and graphs that were opened and not closed.
func LiveHandles() int64 { return int64(C.mempo_live_handles()) }

func memory(device string) (model.MemoryUsage, error) {
	c, free := cString(device)
	defer free()
	var e C.mempo_error
	var current, peak C.int64_t
	err := check(C.mempo_memory(c, &current, &peak, &e), &e)
	return model.MemoryUsage{Current: int64(current), Peak: int64(peak)}, err
}

func memoryFree(device string) (int64, error) {
	c, free := cString(device)
	defer free()
	var e C.mempo_error
	var bytes C.int64_t
	err := check(C.mempo_memory_free(c, &bytes, &e), &e)
	return int64(bytes), err
}

func memoryResetPeak(device string) error {
	c, free := cString(device)
	defer free()
	var e C.mempo_error
	return check(C.mempo_memory_reset_peak(c, &e), &e)
}

func sessionNew(m modelHandle, o model.SessionOptions) (sessionHandle, error) {
	var e C.mempo_error
	var handle sessionHandle
	bytes := make([]uint8, len(o.Valid))
	for id, ok := range o.Valid {
		if ok {
			bytes[id] = 1
		}
	}
	err := check(C.mempo_session_new(m, (*C.uint8_t)(first(bytes)), C.int64_t(len(bytes)), C.int64_t(o.CacheTokens), cBool(o.Base), &handle, &e), &e)
	return handle, err
}

func sessionFree(s sessionHandle) { C.mempo_session_free(s) }

func sessionOpen(s sessionHandle) (int, error) {
	var e C.mempo_error
	var row C.int64_t
	err := check(C.mempo_session_open(s, &row, &e), &e)
	return int(row), err
}

func sessionFork(s sessionHandle, row, length int) (int, error) {
	var e C.mempo_error
	var forked C.int64_t
	err := check(C.mempo_session_fork(s, C.int64_t(row), C.int64_t(length), &forked, &e), &e)
	return int(forked), err
}

func sessionRelease(s sessionHandle, row int) error {
	var e C.mempo_error
	return check(C.mempo_session_release(s, C.int64_t(row), &e), &e)
}

func sessionStep(s sessionHandle, inputs []model.RowInput) ([]model.Sampled, error) {
	var packed packedRows
	rows := make([]C.mempo_row_input, len(inputs))
	for k, in := range inputs {
		packed.add(in.IDs, nil)
		rows[k] = C.mempo_row_input{
			row: C.int64_t(in.Row), sample: cBool(in.Sample), temperature: C.double(in.Temperature),
			top_p: C.double(in.TopP), top_k: C.int64_t(in.TopK), seed: C.uint64_t(in.Seed),
		}
	}
	out := make([]C.mempo_sampled, len(inputs))
	var e C.mempo_error
	code := C.mempo_session_step(s, C.int64_t(len(rows)), first(rows), (*C.int64_t)(first(packed.allOffsets())),
		(*C.int32_t)(first(packed.ids)), first(out), &e)
	if err := check(code, &e); err != nil {
		return nil, err
	}
	sampled := make([]model.Sampled, len(out))
	for k, o := range out {
		sampled[k] = model.Sampled{ID: int32(o.id), LogProb: float32(o.log_prob), Redraws: int(o.redraws)}
	}
	return sampled, nil
}

func sessionScore(s sessionHandle, pieces []model.Piece) (logProbs, entropies []float32, err error) {
	var packed packedRows
	stretches := make([]C.mempo_piece, len(pieces))
	for k, p := range pieces {
		packed.add(p.IDs, p.Positions)
		stretches[k] = C.mempo_piece{row: C.int64_t(p.Row), length: C.int64_t(p.Length), keep: cBool(p.Keep), temperature: C.double(p.Temperature)}
	}
	logProbs, entropies = make([]float32, len(packed.positions)), make([]float32, len(packed.positions))
	var e C.mempo_error
	code := C.mempo_session_score(s, C.int64_t(len(stretches)), first(stretches), (*C.int64_t)(first(packed.allOffsets())),
		(*C.int32_t)(first(packed.ids)), C.int64_t(len(packed.positions)), (*C.int64_t)(first(packed.positions)), cFloats(logProbs), cFloats(entropies), &e)
	return logProbs, entropies, check(code, &e)
}

func sessionUsage(s sessionHandle) model.CacheUsage {
	var tokens, pages, limit C.int64_t
	C.mempo_session_usage(s, &tokens, &pages, &limit)
	return model.CacheUsage{PageTokens: int(tokens), Pages: int(pages), Limit: int(limit)}
}

func filteredDistribution(logits []float32, s model.Sampling) ([]float32, error) {
	out := make([]float32, len(logits))
	var e C.mempo_error
	err := check(C.mempo_filtered_distribution(cFloats(logits), C.int64_t(len(logits)), C.double(s.Temperature),
		C.int64_t(s.TopK), C.double(s.TopP), cFloats(out), &e), &e)
	return out, err
}

func score(m modelHandle, p *packedRows, temperature float64, base bool) (logProbs, entropies []float32, err error) {
	logProbs, entropies = make([]float32, len(p.positions)), make([]float32, len(p.positions))
	var e C.mempo_error
	code := C.mempo_score(m, C.int64_t(p.rows()), (*C.int64_t)(first(p.allOffsets())), (*C.int32_t)(first(p.ids)),
		C.int64_t(len(p.positions)), (*C.int64_t)(first(p.positions)), C.double(temperature), cBool(base),
		cFloats(logProbs), cFloats(entropies), &e)
	return logProbs, entropies, check(code, &e)
}

func lossOptions(o model.LossOptions) (C.mempo_loss_options, error) {
	if o.Kind == model.NegativeLogLikelihood {
		return C.mempo_loss_options{kind: C.MEMPO_NEGATIVE_LOG_LIKELIHOOD, temperature: C.double(o.Temperature)}, nil
	}
	estimators := map[string]C.mempo_kl_estimator{
		"k1": C.MEMPO_K1, "abs": C.MEMPO_ABS, "k2": C.MEMPO_K2, "k3": C.MEMPO_LOW_VAR_KL, "low_var_kl": C.MEMPO_LOW_VAR_KL,
	}
	estimator, known := estimators[o.KLEstimator]
	if !known {
		return C.mempo_loss_options{}, fmt.Errorf("kl_estimator is %q; allowed are k1, abs, k2, k3, low_var_kl", o.KLEstimator)
	}
	return C.mempo_loss_options{
		kind:     C.MEMPO_POLICY_LOSS,
		clip_low: C.double(o.ClipLow), clip_high: C.double(o.ClipHigh), dual_clip: C.double(o.DualClip),
		kl_estimator: estimator, kl_coef: C.double(o.KLCoef), temperature: C.double(o.Temperature),
	}, nil
}

func lossStats(s C.mempo_loss_stats, tokens int) model.LossStats {
	return model.LossStats{
		Policy: float64(s.policy), KL: float64(s.kl), Clipped: float64(s.clipped),
		MaxLogRatio: float64(s.max_log_ratio), NegativeLogLikelihood: float64(s.negative_log_likelihood), Tokens: float64(tokens),
	}
}

// inC holds copies of Go slices in C memory, for structs that carry pointers.
type inC struct{ blocks []unsafe.Pointer }

// floats is NULL for an empty slice.
func (c *inC) floats(s []float32) *C.float {
	if len(s) == 0 {
		return nil
	}
	block := C.CBytes(unsafe.Slice((*byte)(unsafe.Pointer(first(s))), 4*len(s)))
	c.blocks = append(c.blocks, block)
	return (*C.float)(block)
}

func (c *inC) free() {
	for _, block := range c.blocks {
		C.free(block)
	}
}

func (c *inC) lossInputs(l *lossColumns) C.mempo_loss_inputs {
	return C.mempo_loss_inputs{
		old_log_probs: c.floats(l.old), ref_log_probs: c.floats(l.ref),
		advantages: c.floats(l.advantages), weights: c.floats(l.weights),
	}
}

func tokenLoss(newLogProbs []float32, l *lossColumns, o model.LossOptions) (model.LossStats, []float32, error) {
	options, err := lossOptions(o)
	if err != nil || len(newLogProbs) == 0 {
		return model.LossStats{}, nil, err
	}
	var copies inC
	defer copies.free()
	inputs := copies.lossInputs(l)
	gradient := make([]float32, len(newLogProbs))
	var stats C.mempo_loss_stats
	var e C.mempo_error
	code := C.mempo_token_loss(C.int64_t(len(newLogProbs)), cFloats(newLogProbs), &inputs, &options, &stats, cFloats(gradient), &e)
	return lossStats(stats, len(newLogProbs)), gradient, check(code, &e)
}

func forwardBackward(m modelHandle, p *packedRows, l *lossColumns, o model.LossOptions) (model.LossStats, error) {
	options, err := lossOptions(o)
	if err != nil {
		return model.LossStats{}, err
	}
	var copies inC
	defer copies.free()
	inputs := copies.lossInputs(l)
	var stats C.mempo_loss_stats
	var e C.mempo_error
	code := C.mempo_forward_backward(m, C.int64_t(p.rows()), (*C.int64_t)(first(p.allOffsets())),
		(*C.int32_t)(first(p.ids)), (*C.int64_t)(first(p.parents)), (*C.int64_t)(first(p.shared)),
		C.int64_t(len(p.groups)), (*C.int64_t)(first(p.groups)), C.int64_t(len(p.positions)), (*C.int64_t)(first(p.positions)), &inputs, &options, &stats, &e)
	return lossStats(stats, len(p.positions)), check(code, &e)
}

func update(m modelHandle, learningRate float64, o model.OptimizerOptions) (model.UpdateStats, error) {
	options := C.mempo_update_options{
		learning_rate: C.double(learningRate), beta1: C.double(o.Beta1), beta2: C.double(o.Beta2),
		eps: C.double(o.Eps), weight_decay: C.double(o.WeightDecay), clip_norm: C.double(o.ClipNorm),
	}
	var norm C.double
	var skipped C.int
	var e C.mempo_error
	code := C.mempo_update(m, &options, &norm, &skipped, &e)
	return model.UpdateStats{GradNorm: float64(norm), Skipped: skipped != 0}, check(code, &e)
}

func dropGradient(m modelHandle) error {
	var e C.mempo_error
	return check(C.mempo_drop_gradient(m, &e), &e)
}
