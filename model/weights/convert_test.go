package weights

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// halfFormats are the 16-bit formats with their exponent bits and bias.
var halfFormats = []struct {
	dtype         string
	fractionBits  int
	bias          int
	infinity      uint16
	firstInfinite float32 // the smallest magnitude that rounds to infinity
}{
	{F16, 10, 15, 0x7c00, 65520},
	{BF16, 7, 127, 0x7f80, 0x1.ffp127},
}

// valueOf decodes a finite 16-bit number by the definition of the format, in float64.
func valueOf(bits uint16, fractionBits, bias int) float64 {
	fraction := float64(bits & (1<<fractionBits - 1))
	exponent := int(bits&0x7fff) >> fractionBits
	if exponent == 0 {
		return math.Ldexp(fraction, 1-bias-fractionBits)
	}
	return math.Ldexp(fraction+float64(uint(1)<<fractionBits), exponent-bias-fractionBits)
}

func encodeOne(t *testing.T, dtype string, value float32) uint16 {
	t.Helper()
	data, err := EncodeFloat32(dtype, []float32{value})
	if err != nil {
		t.Fatalf("%s of %v: %v", dtype, value, err)
	}
	return binary.LittleEndian.Uint16(data)
}

func TestEvery16BitNumberDecodesByDefinitionAndEncodesBack(t *testing.T) {
	for _, format := range halfFormats {
		for bits := range 1 << 16 {
			half := uint16(bits)
			values, err := DecodeFloat32(format.dtype, binary.LittleEndian.AppendUint16(nil, half))
			if err != nil {
				t.Fatal(err)
			}
			value := float64(values[0])
			magnitude := half & 0x7fff
			switch {
			case magnitude > format.infinity:
				if !math.IsNaN(value) || encodeOne(t, format.dtype, values[0])&0x7fff <= format.infinity {
					t.Fatalf("%s %#04x: %v does not stay NaN", format.dtype, half, value)
				}
				continue
			case magnitude == format.infinity:
				if !math.IsInf(value, 0) {
					t.Fatalf("%s %#04x: %v is not infinite", format.dtype, half, value)
				}
			case math.Abs(value) != valueOf(half, format.fractionBits, format.bias):
				t.Fatalf("%s %#04x decodes to %v, want ±%v", format.dtype, half, value, valueOf(half, format.fractionBits, format.bias))
			}
			if math.Signbit(value) != (half >= 0x8000) {
				t.Fatalf("%s %#04x: sign of %v", format.dtype, half, value)
			}
			if back := encodeOne(t, format.dtype, values[0]); back != half {
				t.Fatalf("%s %#04x encodes back to %#04x", format.dtype, half, back)
			}
		}
	}
}

func TestEveryMidpointRoundsToEven(t *testing.T) {
	for _, format := range halfFormats {
		for low := range format.infinity - 1 {
			high := low + 1
			middle := float32((valueOf(low, format.fractionBits, format.bias) + valueOf(high, format.fractionBits, format.bias)) / 2)
			even := low + low&1
			tests := []struct {
				value float32
				want  uint16
			}{
				{middle, even},
				{math.Nextafter32(middle, 0), low},
				{math.Nextafter32(middle, float32(math.Inf(1))), high},
				{-middle, even | 0x8000},
			}
			for _, test := range tests {
				if got := encodeOne(t, format.dtype, test.value); got != test.want {
					t.Fatalf("%s: %v encodes to %#04x, want %#04x", format.dtype, test.value, got, test.want)
				}
			}
		}
	}
}

func TestEncodeRefusesWhatBecomesInfinite(t *testing.T) {
	for _, format := range halfFormats {
		beyond := format.firstInfinite
		if _, err := EncodeFloat32(format.dtype, []float32{1, -beyond}); err == nil || !strings.Contains(err.Error(), "element 1") {
			t.Errorf("%s of %v: %v", format.dtype, -beyond, err)
		}
		below := math.Nextafter32(beyond, 0)
		if got := encodeOne(t, format.dtype, below); got != format.infinity-1 {
			t.Errorf("%s of %v: %#04x, want the largest", format.dtype, below, got)
		}
		if got := encodeOne(t, format.dtype, float32(math.Inf(1))); got != format.infinity {
			t.Errorf("%s of infinity: %#04x", format.dtype, got)
		}
	}
}

func TestFloat32IsKeptBitForBit(t *testing.T) {
	values := []float32{0, float32(math.Copysign(0, -1)), 1, -1e-45, 3.4e38, float32(math.Inf(-1))}
	data, err := EncodeFloat32(F32, values)
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeFloat32(F32, data)
	if err != nil {
		t.Fatal(err)
	}
	for k := range values {
		if math.Float32bits(back[k]) != math.Float32bits(values[k]) {
			t.Errorf("%v came back as %v", values[k], back[k])
		}
	}
}

func TestConversionsRefuseOtherData(t *testing.T) {
	if _, err := DecodeFloat32("I32", make([]byte, 4)); err == nil || !strings.Contains(err.Error(), "I32") {
		t.Errorf("I32: %v", err)
	}
	if _, err := DecodeFloat32(BF16, make([]byte, 3)); err == nil || !strings.Contains(err.Error(), "3 bytes") {
		t.Errorf("3 bytes: %v", err)
	}
	if _, err := EncodeFloat32("F64", nil); err == nil || !strings.Contains(err.Error(), "F64") {
		t.Errorf("F64: %v", err)
	}
}

// Adding a small number many times shows why updates need a float32 copy of the weights.
func TestSmallUpdatesSurviveInFloat32Only(t *testing.T) {
	master, brain := float32(1), float32(1)
	for range 10000 {
		master -= 1e-6
		brain = math.Float32frombits(uint32(encodeOne(t, BF16, brain-1e-6)) << 16)
	}
	if math.Abs(float64(master)-0.99) > 1e-3 || brain != 1 {
		t.Errorf("master %v, pure bfloat16 %v", master, brain)
	}
	if got := encodeOne(t, BF16, master); math.Float32frombits(uint32(got)<<16) != 0.98828125 {
		t.Errorf("bfloat16 of %v is %#04x", master, got)
	}
}
