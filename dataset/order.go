package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Order hands out the places of a set epoch by epoch. The order of an epoch is a function of the
// stream's name, the seed, the number of the epoch and the size of the set alone, so that the
// position says everything about what comes next. Not safe for concurrent use.
type Order struct {
	stream  string
	size    uint64
	seed    uint64
	shuffle bool
	drawn   uint64
	epoch   uint64 // that order belongs to
	order   []int
}

// OrderState is the position of an order, for checkpoints.
type OrderState struct {
	Drawn uint64       `json:"drawn"`           // places handed out since the start of the run
	Size  int          `json:"size"`            // of the set
	Parts []OrderState `json:"parts,omitempty"` // of a Sampler of several sources: their positions
}

// NewOrder starts at the first place of the first epoch of a set of size members, at least one.
// Orders of different streams have nothing to do with each other, whatever the seed. Without
// shuffle every epoch counts up.
func NewOrder(stream string, size int, seed uint64, shuffle bool) (*Order, error) {
	if size < 1 {
		return nil, fmt.Errorf("a set of %d has nothing to draw", size)
	}
	o := &Order{stream: stream, size: uint64(size), seed: seed, shuffle: shuffle}
	o.order = o.epochOrder(0)
	return o, nil
}

// Next draws the next n places. Every place comes once in an epoch; a draw that reaches the end of
// one goes on with the next, and may then hold a place twice.
func (o *Order) Next(n int) []int {
	places := make([]int, 0, max(n, 0))
	for range n {
		if epoch := o.Epoch(); epoch != o.epoch {
			o.epoch, o.order = epoch, o.epochOrder(epoch)
		}
		places = append(places, o.order[o.drawn%o.size])
		o.drawn++
	}
	return places
}

// State is the position from which an order of the same stream, size, seed and shuffle continues.
func (o *Order) State() OrderState { return OrderState{Drawn: o.drawn, Size: int(o.size)} }

// Restore goes to a saved position. A position in a set of another size is refused.
func (o *Order) Restore(state OrderState) error {
	if state.Size != int(o.size) {
		return fmt.Errorf("the saved position lies in a set of %d members, this one has %d", state.Size, o.size)
	}
	o.drawn = state.Drawn // the next draw sees whether the order is another epoch's
	return nil
}

// Epoch is the number, from 0, of the epoch that the next place belongs to.
func (o *Order) Epoch() uint64 { return o.drawn / o.size }

// epochOrder is the order of one epoch: Fisher-Yates from a generator keyed by stream, seed and epoch.
func (o *Order) epochOrder(epoch uint64) []int {
	order := make([]int, o.size)
	for k := range order {
		order[k] = k
	}
	if !o.shuffle {
		return order
	}
	label := binary.LittleEndian.AppendUint64([]byte(o.stream), o.seed)
	key := sha256.Sum256(binary.LittleEndian.AppendUint64(label, epoch))
	generator := rand.New(rand.NewChaCha8(key))
	for k := len(order) - 1; k > 0; k-- {
		other := generator.Uint64N(uint64(k) + 1)
		order[k], order[other] = order[other], order[k]
	}
	return order
}
