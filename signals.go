package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// The exit codes of a run that a signal ended, as shells count them.
const (
	codeInterrupted = 130
	codeTerminated  = 143
)

// graceOnTermination is how long a run may take to drop its step before the process ends anyway.
const graceOnTermination = 4 * time.Second

// The ends of work that a signal stopped before it was through.
var (
	errInterrupted = errors.New("ended by SIGINT")
	errTerminated  = errors.New("ended by SIGTERM")
)

// ending is what people are told when a signal stops work.
type ending struct {
	stopping string // on the first SIGINT
	left     string // what is there after SIGTERM
}

var (
	endOfRun        = ending{"finishing the step", "the last checkpoint stands"}
	endOfEvaluation = ending{"ending the evaluation", "no results were written"}
)

// underSignals runs work until it ends. The first SIGINT closes stop, on which work is to end in
// good order; a second one ends the process. SIGTERM ends ctx, and the process if work takes too
// long over it.
func underSignals(ctx context.Context, errs io.Writer, e ending, work func(ctx context.Context, stop <-chan struct{}) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals, stop := make(chan os.Signal, 4), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	var terminated atomic.Bool
	go func() {
		interrupted := false
		for {
			select {
			case <-ctx.Done():
				return
			case got := <-signals:
				switch {
				case got == syscall.SIGTERM:
					terminated.Store(true)
					time.AfterFunc(graceOnTermination, func() { os.Exit(codeTerminated) })
					cancel()
				case interrupted:
					os.Exit(codeInterrupted)
				default:
					interrupted = true
					fmt.Fprintf(errs, "mempo-train: %s; interrupt again to end at once\n", e.stopping)
					close(stop)
				}
			}
		}
	}()
	err := work(ctx, stop)
	if terminated.Load() {
		return fmt.Errorf("%w; %s", errTerminated, e.left)
	}
	return err
}
