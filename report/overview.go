package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/trainer/metrics"
)

// overview is everything in the page but the trajectories.
type overview struct {
	Name      string        `json:"name"`
	Written   string        `json:"written"` // when this page was
	Dates     string        `json:"dates,omitempty"`
	Settings  []setting     `json:"settings,omitempty"`
	Config    string        `json:"config,omitempty"`
	Headlines []headline    `json:"headlines,omitempty"`
	Notes     []string      `json:"notes,omitempty"`
	Steps     []int64       `json:"steps"` // of the curves
	Charts    []*chart      `json:"charts"`
	Events    []event       `json:"events,omitempty"`
	Results   *eval.Results `json:"results,omitempty"`
}

// setting is one key setting, in words.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// headline is a figure as it was first and last measured.
type headline struct {
	Name  string `json:"name"`
	First short  `json:"first"`
	Last  short  `json:"last"`
	From  int64  `json:"from"` // steps; 0 for a figure of no step
	To    int64  `json:"to"`
	Unit  unit   `json:"unit,omitempty"`
}

// keySettings are the settings that tell runs apart; a run has those of its kind.
var keySettings = []setting{
	{"model", "model.path"},
	{"data", "data.train"},
	{"evaluated on", "data.eval"},
	{"steps", "run.steps"},
	{"seed", "run.seed"},
	{"questions a step", "rollout.questions_per_step"},
	{"trajectories of each", "rollout.group_size"},
	{"demonstrations a step", "sft.demonstrations_per_step"},
	{"context", "rollout.context"},
	{"contexts of evaluation", "eval.context"},
	{"turns at most", "rollout.max_turns"},
	{"format", "reward.format_reward"},
	{"memory reward", "reward.memory_reward"},
	{"memory weight", "advantage.memory_weight"},
	{"memory pool", "advantage.memory.pool"},
	{"floor of memory deviation", "advantage.memory.min_std"},
	{"learning rate", "optimizer.learning_rate"},
	{"schedule", "optimizer.schedule"},
	{"KL coefficient", "loss.kl_coef"},
}

// headlines are the figures at the top of the page, in the order in which they matter.
var headlines = []struct {
	name   string
	metric string
	unit   unit
}{
	{"exact match, limited context", metrics.Eval("limited/em"), share},
	{"exact match, full context", metrics.Eval("full/em"), share},
	{"loss on demonstrations", metrics.LossNLL, plain},
	{"loss on other demonstrations", metrics.Eval("nll"), plain},
	{"exact match in training", metrics.ScoreEM, share},
	{"format kept", metrics.ScoreFormat, share},
	{"P(answer | memory)", metrics.MemoryPMem, share},
	{"P(answer | history)", metrics.MemoryPFull, share},
	{"tokens of a response", metrics.RolloutResponseTokens, plain},
	{"tokens of a memory", metrics.MemoryTokens, plain},
}

func (f *folder) overview() *overview {
	if len(f.measured) == 0 && f.results == nil {
		f.note("metrics.jsonl is missing or empty: there are no curves.")
	}
	o := &overview{
		Name: f.name(), Written: readable(time.Now()), Dates: f.dates(), Settings: f.keySettings(), Config: f.configText,
		Headlines: f.headlines(), Notes: f.notes, Charts: f.charts(), Events: f.warnings(), Results: f.results, Steps: []int64{},
	}
	for _, m := range f.measured {
		o.Steps = append(o.Steps, m.step)
	}
	return o
}

// name is the folder's own name, however the path to it was given.
func (f *folder) name() string {
	if path, err := filepath.Abs(f.path); err == nil {
		return filepath.Base(path)
	}
	return f.path
}

func readable(t time.Time) string { return t.Format("2 January 2006, 15:04") }

// dates tells when the run worked, by its log.
func (f *folder) dates() string {
	if len(f.events) == 0 {
		return ""
	}
	first, last := f.events[0].time(), f.events[len(f.events)-1].time()
	if first.Format(time.DateOnly) == last.Format(time.DateOnly) {
		return fmt.Sprintf("%s to %s", readable(first), last.Format("15:04"))
	}
	return fmt.Sprintf("%s to %s", readable(first), readable(last))
}

func (f *folder) keySettings() []setting {
	var known []setting
	for _, key := range keySettings {
		if value := f.setting(key.Value); value != nil {
			if text := inWords(value); text != "" {
				known = append(known, setting{key.Name, text})
			}
		}
	}
	return known
}

// inWords is a value of TOML without its quotes and brackets.
func inWords(value any) string {
	list, isList := value.([]any)
	if !isList {
		return fmt.Sprint(value)
	}
	words := make([]string, len(list))
	for k, element := range list {
		words[k] = inWords(element)
	}
	return strings.Join(words, ", ")
}

func (f *folder) headlines() []headline {
	var known []headline
	if f.results != nil {
		for _, result := range f.results.Contexts {
			em := short(result.Overall.EM)
			known = append(known, headline{Name: fmt.Sprintf("exact match, %s context", result.Context), Unit: share, First: em, Last: em})
		}
	}
	for _, h := range headlines {
		points := f.points(h.metric)
		points = slices.DeleteFunc(points, func(p point) bool { return p.value == nil })
		if len(points) == 0 {
			continue
		}
		first, last := points[0], points[len(points)-1]
		known = append(known, headline{
			Name: h.name, Unit: h.unit, First: short(*first.value), Last: short(*last.value),
			From: f.measured[first.at].step, To: f.measured[last.at].step,
		})
	}
	return known
}

// warnings are the newest events that a person should know of.
func (f *folder) warnings() []event {
	const most = 100
	var all []event
	for _, e := range f.events {
		if e.Level != "info" && e.Level != "debug" {
			all = append(all, e)
		}
	}
	if left := len(all) - most; left > 0 {
		f.note("The log has %d more warnings before those that are shown.", left)
		all = all[left:]
	}
	return all
}
