package config

import (
	"errors"
	"io"
)

// SFT is a supervised start: training on demonstrations.
type SFT struct {
	Run        Run           `toml:"run"`
	Model      Model         `toml:"model"`
	LoRA       LoRA          `toml:"lora"`
	Data       SFTData       `toml:"data"`
	SFT        Supervision   `toml:"sft"`
	Optimizer  SFTOptimizer  `toml:"optimizer"`
	Checkpoint SFTCheckpoint `toml:"checkpoint"`
}

// SFTData are the demonstrations.
type SFTData struct {
	Train      List   `toml:"train"`       // files of demonstrations, read as one set
	Eval       List   `toml:"eval"`        // demonstrations of the evaluation loss. none (own)
	Get        string `toml:"get"`         // what gets the files, a command or a sentence: told when one is missing. "" (own)
	OverLength string `toml:"over_length"` // a demonstration that is too long: "drop" it (counted, shown) or "error". "drop" (own)
	MaxTokens  int    `toml:"max_tokens"`  // longest demonstration; 0 is the model's context. 0 (own)
	Shuffle    bool   `toml:"shuffle"`     // draw the demonstrations in an order seeded anew each pass; false: in file order. true (own)
}

// Supervision is what a step learns from.
type Supervision struct {
	DemonstrationsPerStep int    `toml:"demonstrations_per_step"` // 16 (own)
	Format                string `toml:"format"`                  // of a conversation, as in rollout.format: "chat" or "raw". "chat" (own)
	SystemPrompt          string `toml:"system_prompt"`           // of demonstrations that have none, as in rollout.system_prompt. "" (own)
	EvalEvery             int    `toml:"eval_every"`              // steps between evaluations of the loss; 0 is never. 0 (own)
}

// SFTOptimizer is AdamW and its learning rate.
type SFTOptimizer struct {
	LearningRate     float64    `toml:"learning_rate"`      // 1e-5 (own)
	WarmupSteps      int        `toml:"warmup_steps"`       // step k of w runs at k/w of the rate. 0 (own)
	Schedule         string     `toml:"schedule"`           // behind the warm-up: "constant" or "cosine". "cosine" (own)
	FinalShare       float64    `toml:"final_share"`        // of the rate, which the cosine ends at. 0.1 (own)
	Betas            [2]float64 `toml:"betas"`              // [0.9, 0.999] (own)
	Eps              float64    `toml:"eps"`                // 1e-8 (own)
	WeightDecay      float64    `toml:"weight_decay"`       // 0.01 (own)
	ClipNorm         float64    `toml:"clip_norm"`          // of the whole gradient; 0 is off. 1 (own)
	MicroBatchTokens int        `toml:"micro_batch_tokens"` // of one forward and backward pass; a longer demonstration has one to itself. 8192 (own)
	MaxNonfinite     int        `toml:"max_nonfinite"`      // skipped steps in a row that end the run. 10 (own)
}

// SFTCheckpoint is what is kept on disk while the run goes on.
type SFTCheckpoint struct {
	Every int `toml:"every"` // steps between checkpoints; the last step always has one. 100 (own)
	Keep  int `toml:"keep"`  // newest ones that stay. 2 (own)
}

// DefaultSFT returns settings in which every key that has a default holds it.
func DefaultSFT() *SFT {
	return &SFT{
		Run:   Run{Resume: "auto"},
		Model: Model{DType: "auto", Device: "auto", ActivationCheckpointing: "none", OptimizerOffload: "none"},
		LoRA:  defaultLoRA(),
		Data:  SFTData{Train: List{}, Eval: List{}, OverLength: "drop", Shuffle: true},
		SFT:   Supervision{DemonstrationsPerStep: 16, Format: "chat"},
		Optimizer: SFTOptimizer{
			LearningRate: 1e-5, Schedule: "cosine", FinalShare: 0.1, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, WeightDecay: 0.01,
			ClipNorm: 1, MicroBatchTokens: 8192, MaxNonfinite: 10,
		},
		Checkpoint: SFTCheckpoint{Every: 100, Keep: 2},
	}
}

// LoadSFT reads the settings of a supervised start, as Load does those of a run.
func LoadSFT(path string, sets []string) (*SFT, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	s, err := parseSFT(path, text, sets)
	if err != nil {
		return nil, err
	}
	if err := readTexts(s.texts()); err != nil {
		return nil, within(path, err)
	}
	return s, within(path, s.Validate())
}

// ParseSFT reads the text that WriteSFT wrote.
func ParseSFT(text string) (*SFT, error) { return parseSFT("config", text, nil) }

func parseSFT(path, text string, sets []string) (*SFT, error) {
	s := DefaultSFT()
	if err := fill(s, path, text, sets); err != nil {
		return nil, err
	}
	s.Model.resolve()
	s.LoRA.resolve()
	return s, nil
}

func (s *SFT) texts() []textKey { return []textKey{{"sft.system_prompt", &s.SFT.SystemPrompt}} }

// WriteSFT writes every key as TOML that LoadSFT reads back to the same settings.
func WriteSFT(w io.Writer, s *SFT) error {
	out := *s
	return write(w, &out, out.texts())
}

// DiffSFT lists the keys whose values differ, in the order of the tables.
func DiffSFT(a, b *SFT) []Difference { return diff(a, b) }

// LearningRate is the rate of a step, counted from 1. Behind the warm-up it is constant, or falls
// along half a cosine to FinalShare of the rate at the last step.
func (s *SFT) LearningRate(step int) float64 {
	o := s.Optimizer
	if step <= o.WarmupSteps || o.Schedule == "constant" {
		return warmup(o.LearningRate, step, o.WarmupSteps)
	}
	fall := halfCosine(step-o.WarmupSteps-1, s.Run.Steps-o.WarmupSteps-1)
	return o.LearningRate * (o.FinalShare + (1-o.FinalShare)*fall)
}

// Validate checks every value against its rule and reports all violations, one a line.
func (s *SFT) Validate() error {
	var r rules
	s.Run.check(&r)
	s.Model.check(&r, toTrain)
	s.LoRA.check(&r)
	r.files("data.train", s.Data.Train, "one or more files of demonstrations")
	r.oneOf("data.over_length", s.Data.OverLength, "drop", "error")
	atLeast(&r, "data.max_tokens", s.Data.MaxTokens, 0)
	between(&r, "sft.demonstrations_per_step", s.SFT.DemonstrationsPerStep, 1, 1_000_000)
	r.oneOf("sft.format", s.SFT.Format, "chat", "raw")
	atLeast(&r, "sft.eval_every", s.SFT.EvalEvery, 0)
	if s.SFT.EvalEvery > 0 {
		r.files("data.eval", s.Data.Eval, "files of demonstrations, as sft.eval_every is above 0")
	}
	s.Optimizer.check(&r)
	atLeast(&r, "checkpoint.every", s.Checkpoint.Every, 1)
	atLeast(&r, "checkpoint.keep", s.Checkpoint.Keep, 1)
	return errors.Join(r.violations...)
}

func (o SFTOptimizer) check(r *rules) {
	between(r, "optimizer.final_share", o.FinalShare, 0, 1)
	r.adamw(o.LearningRate, o.WarmupSteps, o.Schedule, o.Betas, o.Eps, o.WeightDecay, o.ClipNorm)
	atLeast(r, "optimizer.micro_batch_tokens", o.MicroBatchTokens, 1)
	atLeast(r, "optimizer.max_nonfinite", o.MaxNonfinite, 1)
}
