// Package command has answers graded by a program of the user's: a child process that reads one
// line of JSON for each answer and writes one line {"score": x} for it.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/reward"
)

const (
	// maxDeaths in a row, without an answer in between, end the attempts to start the program again.
	maxDeaths    = 10
	firstBackoff = 100 * time.Millisecond // before the second start in a row, doubled for each further one
	maxBackoff   = 5 * time.Second
)

// Options say how the program is run.
type Options struct {
	Command []string      // the program and its arguments
	Timeout time.Duration // for one answer
	Workers int           // processes, each of which grades one answer at a time
	Logger  *zap.Logger   // gets what the program writes to its standard error
}

// Grader is a reward.Grader. Processes are started when they are needed first, and again after they
// died or took too long.
type Grader struct {
	options Options
	workers chan *worker // those that are free
	closing sync.Once
}

// New makes a grader; it starts nothing.
func New(options Options) (*Grader, error) {
	if len(options.Command) == 0 || options.Command[0] == "" {
		return nil, errors.New("no command")
	}
	if options.Timeout <= 0 || options.Workers < 1 {
		return nil, fmt.Errorf("time-out %s, %d workers: both must be above 0", options.Timeout, options.Workers)
	}
	g := &Grader{options: options, workers: make(chan *worker, options.Workers)}
	for range options.Workers {
		g.workers <- &worker{options: &g.options}
	}
	return g, nil
}

// Grade has one answer graded when a process is free.
func (g *Grader) Grade(ctx context.Context, a reward.Answered) (float64, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(a); err != nil {
		return 0, err
	}
	select {
	case w := <-g.workers:
		defer func() { g.workers <- w }()
		score, err := w.grade(ctx, line.Bytes())
		if err != nil {
			err = fmt.Errorf("reward command %q: %w", strings.Join(g.options.Command, " "), err)
			g.options.Logger.Warn("reward command failed", zap.String("id", a.ID), zap.Error(err))
		}
		return score, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// Close ends the processes: their input ends, then they get SIGTERM, then SIGKILL. No Grade may run or
// follow. To close again does nothing.
func (g *Grader) Close() { g.closing.Do(g.end) }

func (g *Grader) end() {
	done := make(chan struct{})
	for range g.options.Workers {
		w := <-g.workers
		go func() {
			w.end()
			done <- struct{}{}
		}()
	}
	for range g.options.Workers {
		<-done
	}
}

// worker is one process, over all its lives.
type worker struct {
	options *Options
	process *process // nil while there is none
	deaths  int      // since the last answer
}

func (w *worker) grade(ctx context.Context, line []byte) (float64, error) {
	if err := w.ready(ctx); err != nil {
		return 0, err
	}
	timed, cancel := context.WithTimeout(ctx, w.options.Timeout)
	defer cancel()
	reply, err := w.process.ask(timed, line)
	if err != nil {
		w.process.kill() // whatever it still writes would be taken for the next answer
		w.process = nil
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		w.deaths++
		if timed.Err() != nil {
			return 0, fmt.Errorf("no answer within %s", w.options.Timeout)
		}
		return 0, err
	}
	w.deaths = 0
	return parseScore(reply)
}

// ready starts a process where there is none, with a wait after deaths in a row.
func (w *worker) ready(ctx context.Context) (err error) {
	if w.process != nil && w.process.silent() {
		return nil
	}
	if w.process != nil {
		w.process.kill() // it died, or wrote something without being asked
		w.process = nil
		w.deaths++
	}
	if w.deaths >= maxDeaths {
		return fmt.Errorf("it died or gave no answer %d times in a row and is not started again", w.deaths)
	}
	if w.deaths > 0 {
		select {
		case <-time.After(min(firstBackoff<<(w.deaths-1), maxBackoff)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if w.process, err = start(w.options.Command, w.options.Logger); err != nil {
		w.process, w.deaths = nil, w.deaths+1
	}
	return err
}

func (w *worker) end() {
	if w.process != nil {
		w.process.end()
		w.process = nil
	}
}

// parseScore reads {"score": x}; other members are let pass.
func parseScore(line []byte) (float64, error) {
	var reply struct {
		Score *float64 `json:"score"`
	}
	shown := line[:min(len(line), 200)]
	if err := json.Unmarshal(line, &reply); err != nil {
		return 0, fmt.Errorf(`it answered %q, want {"score": a number}: %w`, shown, err)
	}
	if reply.Score == nil || math.IsNaN(*reply.Score) || math.IsInf(*reply.Score, 0) {
		return 0, fmt.Errorf(`it answered %q, want {"score": a number}`, shown)
	}
	return *reply.Score, nil
}
