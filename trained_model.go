package main

import (
	"fmt"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer"
)

// adaptersOf are those that a config asks for.
func adaptersOf(l config.LoRA) model.Adapters {
	if l.Rank == 0 {
		return model.Adapters{}
	}
	return model.Adapters{Rank: l.Rank, Alpha: l.Alpha, Targets: l.Targets}
}

// trainedShare tells which part of a model is trained; "" where it is all of it.
func trainedShare(a model.Architecture, l config.LoRA) string {
	adapters := adaptersOf(l)
	if adapters.Rank == 0 {
		return ""
	}
	trained := elementCount(a.Trained(adapters))
	return fmt.Sprintf("trained are %s: %d parameters, %.2f %% of the model's", adapters, trained, 100*float64(trained)/float64(parameterCount(a)))
}

// trainedOptions say how a model to be trained is loaded. The seed is that of the adapters' first values.
func trainedOptions(m config.Model, l config.LoRA, seed int64) engine.Options {
	return engine.Options{
		DType: m.DType, Trainable: true, ActivationCheckpointing: m.ActivationCheckpointing, OptimizerOffload: m.OptimizerOffload,
		Adapters: adaptersOf(l), Seed: uint64(seed),
	}
}

// trainedModel is the model of a run and the one that it is held against.
type trainedModel struct {
	actor     *engine.Model
	reference trainer.Reference // nil where there is none
	second    *engine.Model     // the reference, if it has weights of its own
}

// load loads both, with the options of the one that is trained; what was loaded before an error is to be closed, too.
func (t *trainedModel) load(runtime *engine.Runtime, path string, o engine.Options, withReference bool) (err error) {
	if t.actor, err = runtime.Load(path, o); err != nil || !withReference {
		return err
	}
	if o.Adapters.Rank > 0 {
		t.reference = t.actor.Base()
		return nil
	}
	if t.second, err = runtime.Load(path, engine.Options{DType: o.DType, RandomWeights: o.RandomWeights, Seed: o.Seed}); err == nil {
		t.reference = t.second
	}
	return err
}

func (t *trainedModel) close() (err error) {
	for _, m := range []*engine.Model{t.actor, t.second} {
		if m != nil {
			err = firstError(err, m.Close())
		}
	}
	return err
}
