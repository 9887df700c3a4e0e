package weights

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The data types of a model's weights, as safetensors names them.
const (
	F32  = "F32"
	F16  = "F16"
	BF16 = "BF16"
)

// elementBytes is the size of one element, 0 for a data type that is no weight's.
func elementBytes(dtype string) int {
	switch dtype {
	case F32:
		return 4
	case F16, BF16:
		return 2
	}
	return 0
}

// DecodeFloat32 converts little-endian elements of dtype F32, F16 or BF16. Every value is kept
// exactly.
func DecodeFloat32(dtype string, data []byte) ([]float32, error) {
	size := elementBytes(dtype)
	if size == 0 || len(data)%size != 0 {
		return nil, fmt.Errorf("%d bytes of data type %s cannot be read, allowed are whole elements of F32, F16 or BF16", len(data), dtype)
	}
	values := make([]float32, len(data)/size)
	switch dtype {
	case F32:
		for k := range values {
			values[k] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:]))
		}
	case F16:
		for k := range values {
			values[k] = fromHalf(binary.LittleEndian.Uint16(data[2*k:]))
		}
	case BF16:
		for k := range values {
			values[k] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*k:])) << 16)
		}
	}
	return values, nil
}

// EncodeFloat32 converts to little-endian elements of dtype F32, F16 or BF16, rounding to nearest
// and ties to even. A finite value that is too large for dtype is an error that names its index.
func EncodeFloat32(dtype string, values []float32) ([]byte, error) {
	size := elementBytes(dtype)
	if size == 0 {
		return nil, fmt.Errorf("data type %s cannot be written, allowed are F32, F16 and BF16", dtype)
	}
	data := make([]byte, size*len(values))
	switch dtype {
	case F32:
		for k, value := range values {
			binary.LittleEndian.PutUint32(data[4*k:], math.Float32bits(value))
		}
	case F16:
		return data, encode16(dtype, data, values, toHalf, halfInfinity)
	case BF16:
		return data, encode16(dtype, data, values, toBrain, brainInfinity)
	}
	return data, nil
}

// The bits of infinity, which are those of the exponent.
const (
	halfInfinity  = 0x7c00
	brainInfinity = 0x7f80
)

// encode16 rounds to a 16-bit format; a finite value that becomes infinite is an error.
func encode16(dtype string, data []byte, values []float32, round func(float32) uint16, infinity uint16) error {
	for k, value := range values {
		bits := round(value)
		if bits&infinity == infinity && Finite(value) {
			return fmt.Errorf("element %d is %v, too large for data type %s", k, value, dtype)
		}
		binary.LittleEndian.PutUint16(data[2*k:], bits)
	}
	return nil
}

// Finite reports whether v is neither infinite nor NaN.
func Finite(v float32) bool {
	return math.Float32bits(v)&0x7f800000 != 0x7f800000
}

// toBrain rounds to bfloat16: the upper half of a float32.
func toBrain(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 0x40 // stays a NaN whatever the lower half held
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// toHalf rounds to IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits.
func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(magnitude>>13&0x3ff)
	case magnitude >= 0x47800000: // 65536 and above
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2⁻¹⁴: subnormal, a whole number of 2⁻²⁴
		return sign | uint16(math.RoundToEven(math.Abs(float64(v))*(1<<24)))
	}
	// Rebias the exponent from 127 to 15; a carry out of the fraction moves into the exponent, and
	// from the largest exponent to infinity.
	magnitude -= (127 - 15) << 23
	return sign | uint16((magnitude+0xfff+magnitude>>13&1)>>13)
}

// fromHalf widens an IEEE 754 binary16.
func fromHalf(bits uint16) float32 {
	sign := uint32(bits&0x8000) << 16
	exponent, fraction := uint32(bits>>10&0x1f), uint32(bits&0x3ff)
	switch exponent {
	case 0:
		value := math.Float32bits(float32(fraction) / (1 << 24))
		return math.Float32frombits(sign | value)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
