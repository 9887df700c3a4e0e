package engine

import "testing"

// A product of 256³ takes 34 million operations: no device does them in less than a nanosecond or
// needs a second.
func TestMatrixRate(t *testing.T) {
	for _, dtype := range []string{"auto", bfloat16Name} {
		rate, err := device.MatrixRate(dtype, 256, 256, 256)
		if err != nil || rate < 3e7 || rate > 4e16 {
			t.Errorf("%s: %g operations a second, %v", dtype, rate, err)
		}
	}
	if _, err := device.MatrixRate("float8", 2, 2, 2); err == nil {
		t.Error("float8 has a rate")
	}
	if _, err := device.MatrixRate("auto", 2, 0, 2); err == nil {
		t.Error("a product of nothing has a rate")
	}
	if _, err := device.MatrixRate("auto", 1<<28, 1<<28, 1); err == nil {
		t.Error("a product that fits no memory has a rate")
	}
}
