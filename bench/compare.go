package bench

import (
	"encoding/json"
	"fmt"
	"io"
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

// ReadOthers reads {"stages":[{"stage":…,"median_seconds":…,"peak_memory_bytes":…}, …]}. Other keys are
// left alone, so that a Report is such a file.
func ReadOthers(path string) ([]Other, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("file to compare with: %s: %w", path, durable.Bare(err))
	}
	var file struct {
		Stages []Other `json:"stages"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf(`%s is no JSON object {"stages":[{"stage":"…","median_seconds":1.5,"peak_memory_bytes":1}]}: %w`, path, err)
	}
	if len(file.Stages) == 0 {
		return nil, fmt.Errorf(`%s has no "stages", at least one is needed`, path)
	}
	seen := map[string]bool{}
	for k, other := range file.Stages {
		switch seconds := other.MedianSeconds; {
		case other.Stage == "":
			return nil, fmt.Errorf(`%s: entry %d of "stages" has no "stage", which names it`, path, k+1)
		case seen[other.Stage]:
			return nil, fmt.Errorf("%s: stage %q occurs twice, allowed is once", path, other.Stage)
		case seconds <= 0 || seconds > mostSeconds:
			return nil, fmt.Errorf(`%s: "median_seconds" of stage %q is %v, allowed is a number above 0, at most %g`, path, other.Stage, seconds, mostSeconds)
		case other.PeakMemoryBytes < 0:
			return nil, fmt.Errorf(`%s: "peak_memory_bytes" of stage %q is %d, allowed is 0 or more`, path, other.Stage, other.PeakMemoryBytes)
		}
		seen[other.Stage] = true
	}
	return file.Stages, nil
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
