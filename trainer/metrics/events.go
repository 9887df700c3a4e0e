package metrics

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// eventsName is the name of a file of TensorBoard events by the second it was begun; TensorBoard
// looks for the middle part, and reads the files of a folder in the order of their names.
const eventsName = "events.out.tfevents.%010d.mempo-train"

// events mirrors metrics.jsonl for TensorBoard, which has no other way to read it: a file of
// records, each an Event message of protocol buffers. It is made anew from metrics.jsonl whenever
// a run opens, so that it has the same steps, and is not synced: what a crash takes from it comes
// back.
type events struct{ file *os.File }

// openEvents replaces the event files in dir by one that has the given lines of metrics.jsonl.
// written is when the last of them was.
func openEvents(dir string, lines []byte, written time.Time) (*events, error) {
	path := filepath.Join(dir, fmt.Sprintf(eventsName, time.Now().Unix()))
	err := durable.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(eventsOf(lines, written))
		return err
	})
	if err != nil {
		return nil, fault.Environment(err)
	}
	earlier, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*.mempo-train*"))
	if err != nil {
		return nil, err
	}
	for _, other := range earlier {
		if other == path {
			continue
		}
		if err := os.Remove(other); err != nil {
			return nil, fault.Environment(fmt.Errorf("cannot remove earlier events: %w", err))
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fault.Environment(fmt.Errorf("cannot write events: %w", err))
	}
	return &events{file}, nil
}

// eventsOf is the content of a file for the given lines of metrics.jsonl, which have no clock time
// of their own: theirs is reckoned back from the last one by what the steps took.
func eventsOf(lines []byte, written time.Time) []byte {
	var entries []map[string]*float64
	for line := range bytes.Lines(lines) {
		entry := map[string]*float64{}
		if err := json.Unmarshal(line, &entry); err == nil && entry["step"] != nil { // else no line of this program
			entries = append(entries, entry)
		}
	}
	times := make([]time.Time, len(entries))
	for k := len(entries) - 1; k >= 0; k-- {
		times[k] = written
		if took := entries[k][Time("step")]; took != nil {
			written = written.Add(-time.Duration(*took * float64(time.Second)))
		}
	}
	// A program that shows an earlier file of this run already drops its points when it comes to the
	// start of a session.
	content := append(framed(versionEvent(written)), framed(startEvent(written))...)
	for k, entry := range entries {
		values := map[string]float64{}
		for name, value := range entry {
			if value != nil && name != "step" {
				values[name] = *value
			}
		}
		content = append(content, framed(scalarsEvent(times[k], int64(*entry["step"]), values))...)
	}
	return content
}

func (e *events) write(step int64, values map[string]float64) error {
	if _, err := e.file.Write(framed(scalarsEvent(time.Now(), step, values))); err != nil {
		return fmt.Errorf("cannot write events: %w", err)
	}
	return nil
}

// castagnoli is the polynomial of the checksums of a TFRecord file.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// framed is a record of a TFRecord file: the length of the data, the masked checksum of the
// length, the data, the masked checksum of the data; all little-endian.
func framed(data []byte) []byte {
	record := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	record = binary.LittleEndian.AppendUint32(record, maskedCRC(record))
	record = append(record, data...)
	return binary.LittleEndian.AppendUint32(record, maskedCRC(data))
}

// maskedCRC is rotated and shifted, as the format wants it: a checksum of data that holds its own
// checksum would be the same for all data.
func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// The messages, with TensorFlow's field numbers:
//
//	Event      1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary, 7 session_log SessionLog
//	Summary    1 value repeated Value
//	Value      1 tag string, 2 simple_value float
//	SessionLog 1 status enum (1 is START)
func versionEvent(at time.Time) []byte {
	return appendBytes(eventAt(at), 3, []byte("brain.Event:2"))
}

func startEvent(at time.Time) []byte {
	return appendBytes(appendInt(eventAt(at), 2, 1), 7, appendInt(nil, 1, 1))
}

// scalarsEvent leaves out what could not be measured.
func scalarsEvent(at time.Time, step int64, values map[string]float64) []byte {
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		scalar := appendBytes(nil, 1, []byte(name))
		scalar = binary.LittleEndian.AppendUint32(append(scalar, 2<<3|5), math.Float32bits(float32(value)))
		summary = appendBytes(summary, 1, scalar)
	}
	return appendBytes(appendInt(eventAt(at), 2, uint64(step)), 5, summary)
}

// eventAt begins an Event with its clock time, in seconds since 1970.
func eventAt(at time.Time) []byte {
	return binary.LittleEndian.AppendUint64([]byte{1<<3 | 1}, math.Float64bits(float64(at.UnixMicro())/1e6))
}

// appendInt appends a field whose wire type is a varint.
func appendInt(message []byte, field byte, value uint64) []byte {
	return binary.AppendUvarint(append(message, field<<3), value)
}

// appendBytes appends a field whose wire type is a length and that many bytes.
func appendBytes(message []byte, field byte, data []byte) []byte {
	return append(binary.AppendUvarint(append(message, field<<3|2), uint64(len(data))), data...)
}
