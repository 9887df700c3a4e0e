package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer"
)

// Options say what is timed and how.
type Options struct {
	Shape   Shape
	Repeats int // of each stage
	// ElementBytes is the size of one number of the model's compute dtype.
	ElementBytes int
	// Trainer are the constants of the step. Texts, limits, context and tools of its rollouts, and the
	// length of the context, are the script's.
	Trainer trainer.Options
	Frozen  bool // the model's weights: adapters are trained
	// Progress is called when a stage begins, and what it returns when the stage ends.
	Progress func(stage string) (done func())
}

// Bench is a model and the made-up trajectories of one step.
type Bench struct {
	Options
	architecture model.Architecture
	actor        trainer.Actor
	reference    trainer.Reference // nil where nothing that is timed needs one

	script       *script
	trajectories []*rollout.Trajectory // question by question
	meter        *meter                // of the stage that runs
}

// New makes up a step for a model. reference may be nil where neither its stage nor a step with a KL
// term is timed.
func New(a model.Architecture, actor trainer.Actor, reference trainer.Reference, o Options) (*Bench, error) {
	if err := o.Shape.Fits(a); err != nil {
		return nil, err
	}
	seed := o.Trainer.Rollout.Seed
	s, err := newScript(o.Shape, a.VocabSize, seed)
	if err != nil {
		return nil, err
	}
	b := &Bench{Options: o, architecture: a, actor: actor, reference: reference, script: s, meter: &meter{}}
	b.trajectories = s.trajectories(seed)
	return b, nil
}

// timing is a stage, or a part of it that is named behind a slash. Of a part that is known by its time
// alone there are no operations.
type timing struct {
	name       string
	tokens     int // computed
	sampled    int // by rollouts
	operations float64
	bytes      float64 // read by forward passes; 0 where they are not known
	took       time.Duration
}

// stage is one form of a stage. What is done once before it is timed is warm, and once behind it
// close; either may be nil.
type stage struct {
	name  string
	naive int // tokens that the naive form computes
	warm  func(context.Context) error
	run   func(context.Context) ([]timing, error)
	close func() error
}

// Error is the failure of a stage.
type Error struct {
	Stage string
	Err   error
}

func (e *Error) Error() string { return fmt.Sprintf("stage %s: %v", e.Stage, e.Err) }

// Unwrap is the failure itself.
func (e *Error) Unwrap() error { return e.Err }

// Measure times the stages that are named, or whose family is: the part of a name before a slash. The
// forms of a stage run in turns, so that all see the same load of the machine. Errors hold an
// *Error for each stage that failed.
func (b *Bench) Measure(ctx context.Context, names []string) ([]Result, error) {
	var results []Result
	for _, forms := range b.stages() {
		chosen := slices.DeleteFunc(forms, func(s stage) bool { return !Selected(names, s.name) })
		more, err := b.measure(ctx, chosen)
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	return results, nil
}

// Selected reports whether a list holds a stage's name, or its family.
func Selected(list []string, stage string) bool {
	family, _, _ := strings.Cut(stage, "/")
	return slices.Contains(list, stage) || slices.Contains(list, family)
}

// measure repeats the forms of a stage, in turns.
func (b *Bench) measure(ctx context.Context, forms []stage) (results []Result, err error) {
	measured := make([][]Result, len(forms))
	for _, s := range forms {
		if s.close != nil {
			defer func() {
				if failed := s.close(); failed != nil {
					err = errors.Join(err, &Error{s.name, failed})
				}
			}()
		}
		if s.warm != nil {
			if err := s.warm(ctx); err != nil {
				return nil, &Error{s.name, err}
			}
		}
	}
	for range b.Repeats {
		for k, s := range forms {
			if measured[k], err = b.once(ctx, s, measured[k]); err != nil {
				return nil, &Error{s.name, err}
			}
		}
	}
	for _, parts := range measured {
		for k := range parts {
			parts[k].sum()
		}
		results = append(results, parts...)
	}
	return results, nil
}

// once runs a stage and adds its timings to those of earlier repeats.
func (b *Bench) once(ctx context.Context, s stage, results []Result) ([]Result, error) {
	defer b.Progress(s.name)()
	if err := b.actor.ResetPeak(); err != nil {
		return nil, err
	}
	timings, err := s.run(ctx)
	if err != nil {
		return nil, err
	}
	usage, err := b.actor.MemoryUsage()
	if err != nil {
		return nil, err
	}
	for k, t := range timings {
		if len(results) == k {
			results = append(results, Result{Stage: t.name, Tokens: t.tokens, SampledTokens: t.sampled, Operations: t.operations, BytesRead: t.bytes})
		}
		results[k].Seconds = append(results[k].Seconds, t.took.Seconds())
		results[k].PeakMemoryBytes = max(results[k].PeakMemoryBytes, usage.Peak)
	}
	results[0].NaiveTokens = s.naive
	return results, nil
}

// timed runs the whole of a stage and takes its work from the meter.
func (b *Bench) timed(name string, run func() error) ([]timing, error) {
	*b.meter = meter{}
	begun := time.Now()
	err := run()
	return []timing{b.timing(name, b.meter, time.Since(begun))}, err
}

// timing sums up what a meter counted.
func (b *Bench) timing(name string, m *meter, took time.Duration) timing {
	work := m.work()
	return timing{
		name: name, tokens: work.Tokens + m.learned, took: took,
		operations: work.Forward(b.architecture) + m.trained.Training(b.architecture, b.Frozen),
	}
}
