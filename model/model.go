// Package model says what a language model is to the rest of the program: something that
// continues token sequences (Policy), tells how likely given tokens are (Scorer), and learns
// from a weighted loss (Learner). Everything above the engine meets the device only here.
//
// Token ids are int32, log-probabilities are natural and float32. Methods are safe to call from
// several goroutines: an implementation runs them one after the other on its device.
package model

import "errors"

// ErrOutOfMemory marks the only device error after which a call may be repeated with less work.
var ErrOutOfMemory = errors.New("out of device memory")

// Sampling says how the next token is chosen from the model's distribution.
type Sampling struct {
	Temperature float64 // divides the logits; 0 takes the likeliest token
	TopK        int     // keep the k likeliest ids; 0 keeps all
	TopP        float64 // then keep the smallest set of ids of at least this mass; 0 or 1 keeps all
}

// Policy generates tokens.
type Policy interface {
	// NewSession opens an empty set of rows.
	NewSession(options SessionOptions) (Session, error)
}

// SessionOptions bound what a session does.
type SessionOptions struct {
	// Valid tells which ids may be sampled; another is redrawn, and counted in Sampled.Redraws. nil
	// allows every id.
	Valid []bool
	// CacheTokens bounds the tokens whose keys and values the session holds at a time, shared ones
	// counted once; it is rounded up to whole pages. 0 is no bound.
	CacheTokens int
	// Base leaves adapters out: the rows are those of the model that they were added to.
	Base bool
}

// Session holds the key/value caches of sequences ("rows"), in pages of a fixed number of tokens.
// Rows that begin alike may share pages.
type Session interface {
	// Open adds an empty row.
	Open() (row int, err error)
	// Fork adds a row that begins with the first length tokens of another row. Whole pages are
	// shared; of a page that is shared in part the new row gets a copy.
	Fork(row, length int) (forked int, err error)
	// Step appends each input's tokens to its row in one forward pass over the packed tokens of
	// all inputs, and samples one token for each input that asks for it; results are in the order
	// of the inputs. A row may occur once. The sampled token is not appended.
	Step(inputs []RowInput) ([]Sampled, error)
	// Score runs stretches of tokens, each behind a beginning of a row, in one forward pass and
	// tells how likely their tokens are; results are in the order of the pieces.
	Score(pieces []Piece) ([]RowScores, error)
	// Release frees a row; pages that no other row shares become free.
	Release(row int) error
	// Usage tells how many pages are in use.
	Usage() CacheUsage
	// Close frees the session and all its rows.
	Close() error
}

// CacheUsage is the state of a session's pages. A row of n tokens that shares s of them with the
// row it was forked from has ceil(n / PageTokens) − floor(s / PageTokens) pages of its own.
// A call that would need more than Limit pages is ErrOutOfMemory and changes nothing.
type CacheUsage struct {
	PageTokens int // tokens of a page
	Pages      int // in use
	Limit      int // 0 is no bound
}

// Piece is a stretch of tokens behind the first Length tokens of a row. Several pieces of a call
// may stand behind the same row, as long as none of them is kept in it.
type Piece struct {
	Row         int
	Length      int     // of the row's beginning; with Keep its whole length
	IDs         []int32 // at least one token
	Positions   []int32 // in IDs, ascending, each ≥ 1: token IDs[p] is scored given all before it
	Temperature float64 // divides the logits; above 0
	Keep        bool    // append the tokens to the row
}

// RowInput is one row's share of a Step.
type RowInput struct {
	Row    int
	IDs    []int32 // at least one token, appended to the row's cache
	Sample bool    // sample the token that follows the last of IDs
	Sampling
	Seed uint64 // of this one draw
}

// Sampled is one sampled token. For an input that did not ask for one, ID is −1.
type Sampled struct {
	ID      int32
	LogProb float32 // at the sampling temperature (1 for greedy), over all ids, before top-k and top-p
	Redraws int
}

// ScoreRow is a sequence of which some tokens are scored.
type ScoreRow struct {
	IDs       []int32
	Positions []int32 // ascending, each ≥ 1: token IDs[p] is scored given IDs[:p]
}

// RowScores are aligned with the Positions of a ScoreRow or a Piece.
type RowScores struct {
	LogProbs []float32 // log p(IDs[p] | IDs[:p])
	Entropy  []float32 // nats, of the distribution that token p was scored under
}

// Scorer computes log-probabilities without gradient, in one packed forward pass per call.
type Scorer interface {
	Score(rows []ScoreRow, temperature float64) ([]RowScores, error)
}

// LossKind is what a token's loss is.
type LossKind int

// The kinds of loss. PolicyLoss is the clipped PPO loss with a KL term. NegativeLogLikelihood is
// −log p of the token: of the options it reads the temperature, of the rows IDs, Positions and
// Weights; the others may be left out.
const (
	PolicyLoss LossKind = iota
	NegativeLogLikelihood
)

// LossOptions are the constants of the loss.
type LossOptions struct {
	Kind              LossKind
	ClipLow, ClipHigh float64
	DualClip          float64 // lower bound c·A for negative A; 0 = off
	KLEstimator       string  // k1, abs, k2, k3, low_var_kl
	KLCoef            float64
	Temperature       float64 // of the rollout
}

// TrainRow is a sequence with what the loss needs at each trained position. All slices but IDs
// are aligned with Positions.
type TrainRow struct {
	IDs         []int32
	Positions   []int32
	OldLogProbs []float32
	RefLogProbs []float32
	Advantages  []float32
	// Weights carry the aggregation: the loss is the sum over tokens of weight × token loss, so
	// that any split of a mini-batch into calls adds up to the same gradient.
	Weights []float32
}

// LossStats are sums over the tokens of one or more calls; Add accumulates them. Those that do not
// belong to the kind of loss are 0.
type LossStats struct {
	Policy      float64 // weighted sum
	KL          float64 // weighted sum, coefficient included
	Clipped     float64 // tokens whose clipped term is strictly the larger loss
	Tokens      float64
	Computed    float64 // tokens that went through the model: a beginning that rows of a call have in common may count once
	MaxLogRatio float64 // largest |new − old|

	NegativeLogLikelihood float64 // weighted sum, nats
}

// Add accumulates the statistics of another call.
func (s *LossStats) Add(o LossStats) {
	s.Policy += o.Policy
	s.KL += o.KL
	s.Clipped += o.Clipped
	s.Tokens += o.Tokens
	s.Computed += o.Computed
	s.MaxLogRatio = max(s.MaxLogRatio, o.MaxLogRatio)
	s.NegativeLogLikelihood += o.NegativeLogLikelihood
}

// Loss is the number whose gradient was taken.
func (s LossStats) Loss() float64 { return s.Policy + s.KL + s.NegativeLogLikelihood }

// OptimizerOptions are AdamW's constants.
type OptimizerOptions struct {
	Beta1, Beta2, Eps, WeightDecay float64
	ClipNorm                       float64 // global L2 norm; 0 = no clipping
}

// UpdateStats tells what one optimiser step did.
type UpdateStats struct {
	GradNorm float64 // before clipping
	Skipped  bool    // the gradient was not finite: weights and moments are as before
}

// Learner accumulates gradients and updates the weights.
type Learner interface {
	// ForwardBackward adds the gradient of one micro-batch's loss.
	ForwardBackward(rows []TrainRow, loss LossOptions) (LossStats, error)
	// Update clips the accumulated gradient, takes one AdamW step and clears the gradient.
	Update(learningRate float64, options OptimizerOptions) (UpdateStats, error)
	// DropGradient clears the accumulated gradient without a step.
	DropGradient() error
}

// TensorKind names what a StateTensor belongs to.
type TensorKind string

// The kinds of tensor a learner carries for each of its parameters. Master is the float32 weight,
// FirstMoment and SecondMoment are AdamW's, float32.
const (
	Master       TensorKind = "master"
	FirstMoment  TensorKind = "exp_avg"
	SecondMoment TensorKind = "exp_avg_sq"
)

// Merged is a weight of the model as it computes, float32, with what its adapter adds to it. It can
// be read only, of every weight of the model's own files, whether it is trained or not.
const Merged TensorKind = "merged"

// State gives access to the tensors of a model that is being trained, for checkpoints. Parameter
// names are those of the model's own safetensors files, or of Architecture.AdapterParameters; tied
// parameters occur once.
type State interface {
	// Parameters lists what is trained, names with shapes, in a fixed order.
	Parameters() []Parameter
	// Adapters says which adapters are trained; none where every weight is.
	Adapters() Adapters
	// ReadFloat32 copies a tensor out; moments are all zero before the first Update.
	ReadFloat32(kind TensorKind, name string) ([]float32, error)
	// WriteFloat32 sets a tensor, of which data holds every element in row-major order.
	WriteFloat32(kind TensorKind, name string, data []float32) error
	// UpdateCount is the number of optimiser steps taken; SetUpdateCount restores it.
	UpdateCount() int64
	SetUpdateCount(n int64)
}

// Parameter is the name and shape of one weight.
type Parameter struct {
	Name  string
	Shape []int64
}

// MemoryUsage is the memory of the device (the process's resident set on a CPU), in bytes.
type MemoryUsage struct {
	Current, Peak int64
}

// Memory reports memory use; ResetPeak starts a new peak.
type Memory interface {
	MemoryUsage() (MemoryUsage, error)
	ResetPeak() error
}
