package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Report is what was measured, and on what.
type Report struct {
	Model    string   `json:"model"`
	Device   string   `json:"device"`
	DType    string   `json:"dtype"`
	Threads  int      `json:"threads"`
	Schedule string   `json:"schedule"` // of rollouts
	Scoring  string   `json:"scoring"`  // form of the memory reward in a step
	Shape    Shape    `json:"shape"`
	Stages   []Result `json:"stages"`
	// MatrixRate is that of the device, in floating point operations a second.
	MatrixRate float64 `json:"matrix_rate"`
	// MemoryShare is the part of a step's time that measuring memories took; 0 where no step was timed.
	MemoryShare float64 `json:"memory_share,omitempty"`
}

// Result is one stage, or a part of it that is named behind a slash.
type Result struct {
	Stage           string    `json:"stage"`
	Tokens          int       `json:"tokens"`                   // that were computed
	NaiveTokens     int       `json:"naive_tokens,omitempty"`   // that the naive form computes
	SampledTokens   int       `json:"sampled_tokens,omitempty"` // by rollouts
	Operations      float64   `json:"operations,omitempty"`     // by Work.Forward and Work.Training; 0 where they are not known
	Seconds         []float64 `json:"seconds"`                  // one for each repeat
	MedianSeconds   float64   `json:"median_seconds"`
	MinSeconds      float64   `json:"min_seconds"`
	TokensPerSecond float64   `json:"tokens_per_second"`    // at the median
	Rate            float64   `json:"rate,omitempty"`       // operations a second at the median
	BytesRead       float64   `json:"bytes_read,omitempty"` // by Work.Bytes, of decoding
	Bandwidth       float64   `json:"bandwidth,omitempty"`  // bytes read a second at the median
	// PeakMemoryBytes is everything that the device (on a CPU, the process) holds at a time during the
	// whole stage.
	PeakMemoryBytes int64  `json:"peak_memory_bytes"`
	Other           *Other `json:"other,omitempty"` // the same stage of another program
}

// sum computes the figures that follow from the repeats.
func (r *Result) sum() {
	sorted := slices.Sorted(slices.Values(r.Seconds))
	n := len(sorted)
	r.MinSeconds, r.MedianSeconds = sorted[0], (sorted[(n-1)/2]+sorted[n/2])/2
	if r.MedianSeconds > 0 {
		r.TokensPerSecond = float64(r.Tokens) / r.MedianSeconds
		r.Rate = r.Operations / r.MedianSeconds
		r.Bandwidth = r.BytesRead / r.MedianSeconds
	}
}

// Sum computes the figures that follow from several stages.
func (r *Report) Sum() {
	var step, memory float64
	for _, stage := range r.Stages {
		switch stage.Stage {
		case stageStep:
			step = stage.MedianSeconds
		case stageStep + "/" + partMemory:
			memory = stage.MedianSeconds
		}
	}
	if step > 0 {
		r.MemoryShare = memory / step
	}
}

// Print writes the report as a table for people.
func (r *Report) Print(out io.Writer) error {
	s := r.Shape
	fmt.Fprintf(out, "%s, %s on %s, CPU threads: %d, matrix products: %.0f GFLOP/s\n", r.Model, r.DType, r.Device, r.Threads, r.MatrixRate/1e9)
	fmt.Fprintf(out, "%d questions × %d trajectories of %d tokens: prompt %d, %d turns of %d and results of %d between them\n",
		s.Questions, s.GroupSize, s.TrajectoryTokens(), s.PromptTokens, s.Turns, s.TurnTokens, s.ToolTokens)
	fmt.Fprintf(out, "memories of %d tokens, answers of %d, micro-batches of up to %d; schedule %q, scoring %q\n\n",
		s.MemoryTokens, s.AnswerTokens, s.MicroBatchTokens, r.Schedule, r.Scoring)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "stage\ttokens\tnaive\tmedian s\tmin s\ttokens/s\tGFLOP/s\tof matrix\tpeak MiB\t")
	compared := slices.ContainsFunc(r.Stages, func(stage Result) bool { return stage.Other != nil })
	if compared {
		fmt.Fprint(table, "other s\tother/ours\tother MiB\t")
	}
	fmt.Fprintln(table)
	for _, stage := range r.Stages {
		fmt.Fprintf(table, "%s\t%d\t%s\t%.3f\t%.3f\t%.0f\t%s\t%s\t%d\t",
			stage.Stage, stage.Tokens, known(stage.NaiveTokens > 0, strconv.Itoa(stage.NaiveTokens)), stage.MedianSeconds, stage.MinSeconds, stage.TokensPerSecond,
			known(stage.Rate > 0, fmt.Sprintf("%.1f", stage.Rate/1e9)), known(stage.Rate > 0, fmt.Sprintf("%.0f %%", 100*stage.Rate/r.MatrixRate)),
			stage.PeakMemoryBytes>>20)
		if compared {
			stage.Other.print(table)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return r.printShares(out)
}

// known is a figure, or a dash where there is none.
func known(there bool, figure string) string {
	if there {
		return figure
	}
	return "–"
}

// printShares writes what a reader would else compute.
func (r *Report) printShares(out io.Writer) error {
	for _, stage := range r.Stages {
		if stage.SampledTokens > 0 && stage.MedianSeconds > 0 {
			fmt.Fprintf(out, "\n%s samples %d tokens, %.1f a second", stage.Stage, stage.SampledTokens, float64(stage.SampledTokens)/stage.MedianSeconds)
		}
	}
	for _, stage := range r.Stages {
		if stage.Bandwidth > 0 {
			fmt.Fprintf(out, "\n%s reads weights, keys and values at %.1f GB/s", stage.Stage, stage.Bandwidth/1e9)
		}
	}
	if r.MemoryShare > 0 {
		fmt.Fprintf(out, "\nmeasuring memories takes %.1f %% of a step", 100*r.MemoryShare)
	}
	_, err := fmt.Fprintln(out)
	return err
}
