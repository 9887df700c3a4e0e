package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/mempo-train/mempo-train/internal/durable"
)

// Other is a stage as another program measured it.
type Other struct {
	Stage           string  `json:"stage"`
	MedianSeconds   float64 `json:"median_seconds"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"` // 0 is not measured
	// Ratio is the other program's median time over ours: above 1 ours is faster.
	Ratio float64 `json:"ratio,omitempty"`
}

// mostSeconds bounds the time of a stage, some thirty years: ratios beyond it are no numbers any more.
const mostSeconds = 1e9

// maxOtherBytes bounds a file to compare with; a report has some kilobytes.
const maxOtherBytes = 4 << 20

const otherExample = `{"stage":"…","median_seconds":1.5,"peak_memory_bytes":1}`

// ReadOthers reads {"stages":[{"stage":…,"median_seconds":…,"peak_memory_bytes":…}, …]}. Other keys are
// left alone, so that a Report is such a file.
func ReadOthers(path string) ([]Other, error) {
	data, err := readRegular(path)
	if err != nil {
		return nil, err
	}
	others, err := parseOthers(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return others, nil
}

// readRegular reads a regular file of at most maxOtherBytes.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("file to compare with: %s: %w", path, durable.Bare(err))
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait
		return nil, fmt.Errorf("file to compare with: %s is %s, allowed is a regular file", path, kindOf(info.Mode()))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("file to compare with: %s: %w", path, durable.Bare(err))
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxOtherBytes+1))
	if err != nil {
		return nil, fmt.Errorf("file to compare with: %s: %w", path, durable.Bare(err))
	}
	if len(data) > maxOtherBytes {
		return nil, fmt.Errorf("file to compare with: %s has more than %d bytes, the most that is allowed", path, maxOtherBytes)
	}
	return data, nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

func parseOthers(data []byte) ([]Other, error) {
	var file struct {
		Stages json.RawMessage `json:"stages"`
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &file); errors.As(err, &wrong) {
		return nil, fmt.Errorf(`found %s, allowed is a JSON object {"stages":[%s]}`, shown(data), otherExample)
	} else if err != nil {
		return nil, fmt.Errorf("broken JSON: %w", err)
	}
	var entries []json.RawMessage
	if given(file.Stages) && json.Unmarshal(file.Stages, &entries) != nil {
		return nil, fmt.Errorf(`"stages" is %s, allowed is a list [%s]`, shown(file.Stages), otherExample)
	}
	if len(entries) == 0 {
		return nil, errors.New(`there are no "stages", at least one is needed`)
	}
	var others []Other
	seen := map[string]bool{}
	for k, entry := range entries {
		other, err := parseOther(k+1, entry)
		if err != nil {
			return nil, err
		}
		if seen[other.Stage] {
			return nil, fmt.Errorf("stage %.60q occurs twice, allowed is once", other.Stage)
		}
		seen[other.Stage] = true
		others = append(others, other)
	}
	return others, nil
}

// parseOther reads each key by itself, so that an error can name the stage and show the value.
func parseOther(number int, entry json.RawMessage) (o Other, err error) {
	var keys struct {
		Stage           json.RawMessage `json:"stage"`
		MedianSeconds   json.RawMessage `json:"median_seconds"`
		PeakMemoryBytes json.RawMessage `json:"peak_memory_bytes"`
	}
	if json.Unmarshal(entry, &keys) != nil {
		return o, fmt.Errorf(`entry %d of "stages" is %s, allowed is an object %s`, number, shown(entry), otherExample)
	}
	if !given(keys.Stage) {
		return o, fmt.Errorf(`entry %d of "stages" has no "stage", which names it`, number)
	}
	if json.Unmarshal(keys.Stage, &o.Stage) != nil || o.Stage == "" {
		return o, fmt.Errorf(`"stage" of entry %d of "stages" is %s, allowed is a name`, number, shown(keys.Stage))
	}
	if !given(keys.MedianSeconds) {
		return o, fmt.Errorf(`"median_seconds" of stage %.60q is missing, needed is a number above 0, at most %g`, o.Stage, mostSeconds)
	}
	if json.Unmarshal(keys.MedianSeconds, &o.MedianSeconds) != nil || o.MedianSeconds <= 0 || o.MedianSeconds > mostSeconds {
		return o, fmt.Errorf(`"median_seconds" of stage %.60q is %s, allowed is a number above 0, at most %g`, o.Stage, shown(keys.MedianSeconds), mostSeconds)
	}
	if given(keys.PeakMemoryBytes) && (json.Unmarshal(keys.PeakMemoryBytes, &o.PeakMemoryBytes) != nil || o.PeakMemoryBytes < 0) {
		return o, fmt.Errorf(`"peak_memory_bytes" of stage %.60q is %s, allowed is a whole number from 0 to %d, in digits only`,
			o.Stage, shown(keys.PeakMemoryBytes), math.MaxInt64)
	}
	return o, nil
}

// given reports whether a key is there with another value than null.
func given(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// shown is a JSON value as it appears in an error, cut to a readable length.
func shown(value json.RawMessage) string {
	const limit = 60
	var line bytes.Buffer
	if json.Compact(&line, value) != nil || line.Len() <= limit {
		return line.String()
	}
	return strings.ToValidUTF8(line.String()[:limit], "") + "…"
}

// CheckOthers refuses stages of another program of which none is to be measured.
func CheckOthers(path string, others []Other, names []string) error {
	var there []string
	for _, other := range others {
		if Selected(names, other.Stage) {
			return nil
		}
		there = append(there, fmt.Sprintf("%.60q", other.Stage)) // whatever another program wrote
	}
	const shown = 10
	if more := len(there) - shown; more > 0 {
		there = append(there[:shown], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%s has no stage that is measured here: it has %s, measured are %s", path, strings.Join(there, ", "), strings.Join(names, ", "))
}

// Compare puts the stages of another program beside those of the same name.
func (r *Report) Compare(others []Other) {
	for k := range r.Stages {
		ours := &r.Stages[k]
		for _, other := range others {
			if other.Stage == ours.Stage && ours.MedianSeconds > 0 {
				other.Ratio = other.MedianSeconds / ours.MedianSeconds
				ours.Other = &other
			}
		}
	}
}

// print writes the columns of a comparison; those of a stage without one are dashes.
func (o *Other) print(out io.Writer) {
	if o == nil {
		fmt.Fprint(out, "–\t–\t–\t")
		return
	}
	fmt.Fprintf(out, "%.3f\t%.2f\t%s\t", o.MedianSeconds, o.Ratio, known(o.PeakMemoryBytes > 0, fmt.Sprint(o.PeakMemoryBytes>>20)))
}
