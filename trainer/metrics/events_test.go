package metrics

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Vectors of RFC 3720, appendix B.4, masked by hand: (crc rotated right by 15 bits) + a282ead8.
func TestMaskedCRC(t *testing.T) {
	ascending := make([]byte, 32)
	for k := range ascending {
		ascending[k] = byte(k)
	}
	for _, test := range []struct {
		data []byte
		crc  uint32
	}{
		{make([]byte, 32), 0x8a9136aa},
		{ascending, 0x46dd794e},
		{[]byte("123456789"), 0xe3069283},
	} {
		want := uint32((uint64(test.crc>>15|test.crc<<17) + 0xa282ead8) % (1 << 32))
		if got := maskedCRC(test.data); got != want {
			t.Errorf("maskedCRC(%x) = %08x, want %08x", test.data, got, want)
		}
	}
	if got := maskedCRC([]byte("123456789")); got != 0xc78ab0e5 {
		t.Errorf("got %08x", got)
	}
}

// point is a figure as a reader of events sees it.
type point struct {
	step  int64
	wall  float64
	value float32
}

// seen is what a reader of events knows at the end.
type seen struct {
	version string
	series  map[string][]point
}

// readEvents reads event files one after the other as TensorBoard does: the start of a session
// drops what was there at its step and after. Checksums are computed bit by bit.
func readEvents(t *testing.T, paths ...string) seen {
	t.Helper()
	all := seen{series: map[string][]point{}}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for len(data) > 0 {
			length := binary.LittleEndian.Uint64(data)
			checkCRC(t, data[:8], data[8:])
			checkCRC(t, data[12:12+length], data[12+length:])
			all.take(t, fields(t, data[12:12+length]))
			data = data[16+length:]
		}
	}
	return all
}

func checkCRC(t *testing.T, data, stored []byte) {
	t.Helper()
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78*(crc&1)
		}
	}
	crc = ^crc
	if want := (crc>>15 | crc<<17) + 0xa282ead8; binary.LittleEndian.Uint32(stored) != want {
		t.Fatalf("checksum of %x is stored as %x, want %08x", data, stored[:4], want)
	}
}

// field is one field of a message: a number, or bytes.
type field struct {
	number uint64
	value  uint64
	data   []byte
}

func fields(t *testing.T, message []byte) (all []field) {
	t.Helper()
	varint := func() uint64 {
		value, n := binary.Uvarint(message)
		if n <= 0 {
			t.Fatalf("no varint at %x", message)
		}
		message = message[n:]
		return value
	}
	for len(message) > 0 {
		tag := varint()
		f := field{number: tag >> 3}
		switch tag & 7 {
		case 0:
			f.value = varint()
		case 1:
			f.value, message = binary.LittleEndian.Uint64(message), message[8:]
		case 2:
			length := varint()
			f.data, message = message[:length], message[length:]
		case 5:
			f.value, message = uint64(binary.LittleEndian.Uint32(message)), message[4:]
		default:
			t.Fatalf("wire type %d", tag&7)
		}
		all = append(all, f)
	}
	return all
}

func (s *seen) take(t *testing.T, event []field) {
	t.Helper()
	var at point
	for _, f := range event {
		switch f.number {
		case 1:
			at.wall = math.Float64frombits(f.value)
		case 2:
			at.step = int64(f.value)
		case 3:
			s.version = string(f.data)
		case 5:
			for _, value := range fields(t, f.data) {
				scalar := fields(t, value.data)
				at.value = math.Float32frombits(uint32(scalar[1].value))
				name := string(scalar[0].data)
				s.series[name] = append(s.series[name], at)
			}
		case 7:
			if status := fields(t, f.data)[0]; status.number != 1 || status.value != 1 {
				t.Fatalf("session log %v", status)
			}
			for name, points := range s.series {
				s.series[name] = slices.DeleteFunc(points, func(p point) bool { return p.step >= at.step })
			}
		default:
			t.Fatalf("field %d of an event", f.number)
		}
	}
}

func eventFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestEventsAreTheMetrics(t *testing.T) {
	dir := t.TempDir()
	writer, err := Open(filepath.Join(dir, "metrics.jsonl"), 0)
	if err != nil {
		t.Fatal(err)
	}
	before := float64(time.Now().Unix())
	for step := int64(1); step <= 300; step++ { // steps beyond one byte of a varint
		values := map[string]float64{ScoreEM: float64(step) / 512, LossKL: -1e-9, MemoryBytesPeak: 5e11, MemoryReward: math.NaN(), LossGradNorm: math.Inf(1)}
		if err := writer.Write(step, values); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	got := readEvents(t, eventFiles(t, dir)...)
	if got.version != "brain.Event:2" {
		t.Errorf("version %q", got.version)
	}
	if names := slices.Sorted(maps.Keys(got.series)); !slices.Equal(names, []string{LossKL, MemoryBytesPeak, ScoreEM}) {
		t.Errorf("series %v", names)
	}
	for k, p := range got.series[ScoreEM] {
		if p.step != int64(k+1) || p.value != float32(k+1)/512 || p.wall < before || p.wall > before+600 {
			t.Fatalf("point %d is %+v", k, p)
		}
	}
	if n := len(got.series[ScoreEM]); n != 300 {
		t.Errorf("%d points", n)
	}
	if p := got.series[MemoryBytesPeak][299]; p.value != 5e11 || got.series[LossKL][0].value != -1e-9 {
		t.Errorf("values %v and %v", p, got.series[LossKL][0])
	}
}

// However a run was broken off, every series has each step once after it went on: in what a folder
// holds, and for a reader that had shown the files of before.
func TestEventsOfAResumedRunHaveEveryStepOnce(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"whole":          func(*testing.T, string) {},
		"cut off":        func(t *testing.T, path string) { truncate(t, path, -5) },
		"empty":          func(t *testing.T, path string) { truncate(t, path, 0) },
		"gone":           func(t *testing.T, path string) { remove(t, path) },
		"of an hour ago": func(t *testing.T, path string) { rename(t, path, -3600) },
		"half written":   func(t *testing.T, path string) { writeText(t, path+".tmp", "x") },
		"of the future":  func(t *testing.T, path string) { rename(t, path, 3600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			metrics := filepath.Join(dir, "metrics.jsonl")
			writeSteps(t, metrics, 0, 8)
			shown := filepath.Join(t.TempDir(), "shown")
			content, err := os.ReadFile(eventFiles(t, dir)[0])
			if err != nil {
				t.Fatal(err)
			}
			writeText(t, shown, string(content))
			spoil(t, eventFiles(t, dir)[0])
			writeSteps(t, metrics, 6, 10)
			files := eventFiles(t, dir)
			if len(files) != 1 {
				t.Fatalf("the folder has %v", files)
			}
			for reader, paths := range map[string][]string{"a new": files, "an old": {shown, files[0]}} {
				points := readEvents(t, paths...).series[TrainOptimizerSteps]
				for k, p := range points {
					if p.step != int64(k+1) || p.value != float32(2*(k+1)) {
						t.Errorf("%s reader: point %d is %+v", reader, k, p)
					}
				}
				if len(points) != 10 {
					t.Errorf("%s reader: %d points, want 10", reader, len(points))
				}
			}
		})
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if size < 0 {
		size += info.Size()
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, path string, seconds int64) {
	t.Helper()
	to := filepath.Join(filepath.Dir(path), fmt.Sprintf(eventsName, time.Now().Unix()+seconds))
	if err := os.Rename(path, to); err != nil {
		t.Fatal(err)
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Lines have no clock time: that of a step before the run went on is reckoned from the last line.
func TestEventsOfEarlierStepsHaveTheirTimes(t *testing.T) {
	const lines = `{"step":1,"time/step_s":2.5,"score/em":0.5}
{"step":2,"time/step_s":1.5,"score/em":null}
{"step":3,"time/step_s":4,"score/em":1}
`
	path := filepath.Join(t.TempDir(), "events")
	writeText(t, path, string(eventsOf([]byte(lines), time.Unix(1000, 0))))
	got := readEvents(t, path)
	if want := []point{{1, 994.5, 0.5}, {3, 1000, 1}}; !slices.Equal(got.series[ScoreEM], want) {
		t.Errorf("got %v, want %v", got.series[ScoreEM], want)
	}
}
