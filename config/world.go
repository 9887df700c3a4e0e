package config

import (
	"errors"
	"fmt"
	"io"
)

// World is a made-up encyclopedia with its questions, demonstrations and small model.
type World struct {
	World          WorldSize           `toml:"world"`
	Questions      WorldQuestions      `toml:"questions"`
	Demonstrations WorldDemonstrations `toml:"demonstrations"`
	Model          WorldModel          `toml:"model"`
}

// WorldSize is the encyclopedia.
type WorldSize struct {
	Dir       string  `toml:"dir"`       // folder that is written
	Seed      int64   `toml:"seed"`      // of everything. 0 (own)
	People    int     `toml:"people"`    // 72 (own)
	Towns     int     `toml:"towns"`     // 48 (own)
	Countries int     `toml:"countries"` // 24 (own)
	Companies int     `toml:"companies"` // 32 (own)
	Books     int     `toml:"books"`     // 32 (own)
	HeldOut   float64 `toml:"held_out"`  // share of each kind that only evaluation asks about. 0.3333 (own)
}

// WorldQuestions are the questions about it.
type WorldQuestions struct {
	Train        int                `toml:"train"`         // 2000 (own)
	Eval         int                `toml:"eval"`          // 400 (own)
	Mix          map[string]float64 `toml:"mix"`           // shape → weight; a shape is the hops of each objective, as in "2+1". Empty is DefaultMix. {} (own)
	SystemPrompt string             `toml:"system_prompt"` // of the demonstrations. "Search, remember, answer." (own)
	MaxTurns     int                `toml:"max_turns"`     // a question that needs more is not asked. 5 (own)
}

// WorldDemonstrations show how to answer, and how not to. They come from worlds of their own, with
// the same names and other facts.
type WorldDemonstrations struct {
	Worlds       int     `toml:"worlds"`        // 24 (own)
	Clean        int     `toml:"clean"`         // without flaw, first in the file. 12160 (own)
	Forgetful    int     `toml:"forgetful"`     // then those of which ForgetfulShare mostly lose their memory. 2240 (own)
	Flawed       int     `toml:"flawed"`        // last, with the flaws below. 1920 (own)
	Eval         int     `toml:"eval"`          // clean ones, for the evaluation loss. 256 (own)
	LimitedShare float64 `toml:"limited_share"` // shown as one turn of the limited context. 0.3333 (own)
	AnswerShare  float64 `toml:"answer_share"`  // shown in the two forms that the memory reward scores. 0.2 (own)

	ForgetfulShare float64 `toml:"forgetful_share"` // 0.5 (own)
	MemoryDrop     float64 `toml:"memory_drop"`     // chance that a flawed one drops a known fact from its memory. 0.65 (own)
	WrongQuery     float64 `toml:"wrong_query"`     // chance of a wrong query. 0.12 (own)
	WrongValue     float64 `toml:"wrong_value"`     // chance that an answer takes another value of the same passage. 0.5 (own)
}

// WorldModel is the small model, a Qwen2.
type WorldModel struct {
	Hidden       int     `toml:"hidden"`        // 128 (own)
	Layers       int     `toml:"layers"`        // 3 (own)
	Heads        int     `toml:"heads"`         // 4 (own)
	KVHeads      int     `toml:"kv_heads"`      // 4 (own)
	Intermediate int     `toml:"intermediate"`  // 384 (own)
	RopeTheta    float64 `toml:"rope_theta"`    // 1000 (own)
	MaxPositions int     `toml:"max_positions"` // 1024 (own)
	CopyingStart bool    `toml:"copying_start"` // weights from which copying is learned soon; false: plain random ones. true (own)
}

// DefaultWorld returns settings in which every key that has a default holds it.
func DefaultWorld() *World {
	return &World{
		World: WorldSize{People: 72, Towns: 48, Countries: 24, Companies: 32, Books: 32, HeldOut: 0.3333},
		Questions: WorldQuestions{
			Train: 2000, Eval: 400, MaxTurns: 5, SystemPrompt: "Search, remember, answer.",
			Mix: map[string]float64{},
		},
		Demonstrations: WorldDemonstrations{
			Worlds: 24, Clean: 12160, Forgetful: 2240, Flawed: 1920, Eval: 256, LimitedShare: 0.3333, AnswerShare: 0.2,
			ForgetfulShare: 0.5, MemoryDrop: 0.65, WrongQuery: 0.12, WrongValue: 0.5,
		},
		Model: WorldModel{
			Hidden: 128, Layers: 3, Heads: 4, KVHeads: 4, Intermediate: 384, RopeTheta: 1000, MaxPositions: 1024, CopyingStart: true,
		},
	}
}

// LoadWorld reads the settings of a world, as Load does those of a run.
func LoadWorld(path string, sets []string) (*World, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	w := DefaultWorld()
	if err := fill(w, path, text, sets); err != nil {
		return nil, err
	}
	if len(w.Questions.Mix) == 0 {
		w.Questions.Mix = DefaultMix()
	}
	return w, within(path, w.Validate())
}

// WriteWorld writes every key as TOML that LoadWorld reads back to the same settings.
func WriteWorld(w io.Writer, world *World) error { return write(w, world, nil) }

// DefaultMix is the mix of shapes of a world that states none: mostly two objectives, which is what
// makes memory matter.
func DefaultMix() map[string]float64 {
	return map[string]float64{"1": 0.7, "2": 1.2, "3": 1.2, "1+1": 2, "2+1": 2, "1+2": 2}
}

// Validate checks every value against its rule and reports all violations, one a line.
func (w *World) Validate() error {
	var r rules
	w.World.check(&r)
	w.Questions.check(&r)
	w.Demonstrations.check(&r)
	w.Model.check(&r)
	return errors.Join(r.violations...)
}

// Bounds of what is made in memory.
const (
	mostOfAKind    = 1_000_000
	mostParameters = 1e9
)

func (s WorldSize) check(r *rules) {
	r.given("world.dir", s.Dir, "the folder that the world is written to")
	atLeast(r, "world.seed", s.Seed, 0)
	for _, kind := range []struct {
		key   string
		count int
	}{{"people", s.People}, {"towns", s.Towns}, {"countries", s.Countries}, {"companies", s.Companies}, {"books", s.Books}} {
		between(r, "world."+kind.key, kind.count, 6, mostOfAKind)
	}
	between(r, "world.held_out", s.HeldOut, 0.05, 0.95)
}

func (q WorldQuestions) check(r *rules) {
	atLeast(r, "questions.train", q.Train, 1)
	atLeast(r, "questions.eval", q.Eval, 1)
	total := 0.0
	for shape, weight := range q.Mix {
		atLeast(r, fmt.Sprintf("questions.mix.%q", shape), weight, 0)
		total += weight
	}
	if len(q.Mix) > 0 && total == 0 {
		r.violated("questions.mix", "0 for every shape", "a weight above 0 for one or more")
	}
	atLeast(r, "questions.max_turns", q.MaxTurns, 2)
}

func (d WorldDemonstrations) check(r *rules) {
	atLeast(r, "demonstrations.worlds", d.Worlds, 1)
	for _, part := range []struct {
		key   string
		count int
	}{{"clean", d.Clean}, {"forgetful", d.Forgetful}, {"flawed", d.Flawed}, {"eval", d.Eval}} {
		atLeast(r, "demonstrations."+part.key, part.count, 0)
	}
	for _, part := range []struct {
		key   string
		share float64
	}{
		{"limited_share", d.LimitedShare},
		{"answer_share", d.AnswerShare},
		{"forgetful_share", d.ForgetfulShare},
		{"memory_drop", d.MemoryDrop},
		{"wrong_query", d.WrongQuery},
		{"wrong_value", d.WrongValue},
	} {
		between(r, "demonstrations."+part.key, part.share, 0, 1)
	}
	if sum := d.LimitedShare + d.AnswerShare; sum > 1 {
		r.violated("demonstrations.limited_share + answer_share", sum, "1 at most")
	}
}

func (m WorldModel) check(r *rules) {
	for _, size := range []struct {
		key   string
		value int
	}{
		{"hidden", m.Hidden},
		{"layers", m.Layers},
		{"heads", m.Heads},
		{"kv_heads", m.KVHeads},
		{"intermediate", m.Intermediate},
		{"max_positions", m.MaxPositions},
	} {
		between(r, "model."+size.key, size.value, 1, mostOfAKind)
	}
	if layers := float64(m.Hidden) * (4*float64(m.Hidden) + 3*float64(m.Intermediate)) * float64(m.Layers); layers > mostParameters {
		r.violated("model", fmt.Sprintf("%.3g parameters in its layers", layers), fmt.Sprintf("%.3g at most", mostParameters))
	}
	above(r, "model.rope_theta", m.RopeTheta, 0)
	if m.Heads > 0 && (m.Hidden%m.Heads != 0 || m.Hidden/m.Heads%2 != 0) {
		r.violated("model.hidden", m.Hidden, fmt.Sprintf("an even multiple of model.heads = %d", m.Heads))
	}
	if m.KVHeads > 0 && m.Heads%m.KVHeads != 0 {
		r.violated("model.kv_heads", m.KVHeads, fmt.Sprintf("a divisor of model.heads = %d", m.Heads))
	}
}
