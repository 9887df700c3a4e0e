package engine

import (
	"fmt"
	"runtime"
	"time"

	"github.com/wangkuiyi/gotorch"
)

// How MatrixRate measures: the best of rateBursts, each of as many products as last about burstTime, but
// at most burstProducts, since their results exist at the same time.
const (
	rateBursts    = 5
	burstTime     = 50 * time.Millisecond
	burstProducts = 16
)

// MatrixRate is the rate at which the device multiplies a matrix of rows × inner by one of
// inner × columns in a compute dtype ("auto", "float32", "bfloat16"), in floating point operations a
// second: two for each of the rows · inner · columns products. It is the best of several bursts, so that
// what else runs on the machine counts little.
func (r *Runtime) MatrixRate(dtype string, rows, inner, columns int) (rate float64, err error) {
	if rows < 1 || inner < 1 || columns < 1 {
		return 0, fmt.Errorf("a matrix product of %d × %d × %d has no rate", rows, inner, columns)
	}
	name, err := computeDType(dtype, r.device)
	if err != nil {
		return 0, err
	}
	err = r.do(func() (err error) {
		defer func() { // gotorch panics where torch throws
			if problem := recover(); problem != nil {
				err = fmt.Errorf("the rate of matrix products cannot be measured: %v", problem)
			}
		}()
		p := newProduct(r.device, name, rows, inner, columns)
		best := p.seconds()
		for range rateBursts {
			best = min(best, p.seconds())
		}
		rate = 2 * float64(rows) * float64(inner) * float64(columns) / best
		return nil
	})
	return rate, err
}

// product multiplies two random matrices on a device.
type product struct {
	a, b, one gotorch.Tensor
	count     int // products of the next burst
}

func newProduct(device, dtype string, rows, inner, columns int) *product {
	on := gotorch.NewDevice(device)
	matrix := func(m, n int) gotorch.Tensor {
		return gotorch.RandN([]int64{int64(m), int64(n)}, false).To(on, map[string]int8{float32Name: gotorch.Float, bfloat16Name: gotorch.BFloat16}[dtype])
	}
	return &product{matrix(rows, inner), matrix(inner, columns), gotorch.Full([]int64{1}, 1, false).To(on), 1}
}

// seconds is the time of one product, the mean over a burst; it sets the length of the next one.
func (p *product) seconds() float64 {
	runtime.GC() // gotorch frees the results of the last burst in finalizers only
	begun := time.Now()
	for range p.count {
		gotorch.MM(p.a, p.b)
	}
	p.one.Item() // it waits for all that was queued before
	each := time.Since(begun) / time.Duration(p.count)
	p.count = min(max(int(burstTime/max(each, 1)), 1), burstProducts)
	return each.Seconds()
}
