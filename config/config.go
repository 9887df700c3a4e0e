// Package config reads, checks and writes the settings of a training run: one struct per TOML
// table, named as the tables and keys of the file. Paths in a config are relative to the current
// folder, wherever the file lies.
//
// Each key's comment ends with its default and where that comes from: "paper" is the MemPO paper,
// "source" the form it was published in, "verl" the trainer that builds on, "own" a choice made
// here. A key without a default must be set.
package config

import "time"

// Config is a whole run.
type Config struct {
	Run        Run        `toml:"run"`
	Model      Model      `toml:"model"`
	LoRA       LoRA       `toml:"lora"`
	Data       Data       `toml:"data"`
	Rollout    Rollout    `toml:"rollout"`
	Tools      Tools      `toml:"tools"`
	Reward     Reward     `toml:"reward"`
	Advantage  Advantage  `toml:"advantage"`
	Loss       Loss       `toml:"loss"`
	Optimizer  Optimizer  `toml:"optimizer"`
	Scoring    Scoring    `toml:"scoring"`
	Eval       Eval       `toml:"eval"`
	Checkpoint Checkpoint `toml:"checkpoint"`
	Bench      Bench      `toml:"bench"`
}

// Run is the run as a whole.
type Run struct {
	Dir    string `toml:"dir"`    // folder that everything is written to
	Seed   int64  `toml:"seed"`   // of question order, sampling and shuffling. 0 (own)
	Steps  int    `toml:"steps"`  // to train in all, resumed or not
	Resume string `toml:"resume"` // "auto": go on from the newest complete checkpoint of the folder; "never": refuse a folder that holds a run. "auto" (own)
}

// Model is the model and how it is computed.
type Model struct {
	Path                    string `toml:"path"`                     // HuggingFace folder of the model that training starts from; also the reference
	Get                     string `toml:"get"`                      // what gets it, a command or a sentence: told when the folder is missing. "" (own)
	DType                   string `toml:"dtype"`                    // compute dtype: "auto" (float32 on a CPU, bfloat16 on CUDA), "float32", "bfloat16". "auto" (own)
	Device                  string `toml:"device"`                   // "auto", "cpu", "cuda", "cuda:N". "auto" (own)
	Threads                 int    `toml:"threads"`                  // of the CPU; 0 is one per core. 0 (own)
	ActivationCheckpointing string `toml:"activation_checkpointing"` // what is computed again in the backward pass: "none", "mlp" (the widest activations, more than half of all: a sixth more work), "layer" (everything: least memory, a third more work). "none" (own)
	OptimizerOffload        string `toml:"optimizer_offload"`        // where float32 masters and AdamW's moments are kept: "none" (on the device), "cpu" (in the machine's memory, where AdamW then runs). "none" (own)
}

// Data are the questions.
type Data struct {
	Train           List     `toml:"train"`    // question files, read as one set
	Eval            List     `toml:"eval"`     // question files of the evaluations during training. none (own)
	Mix             []Source `toml:"mix"`      // training questions of several sources, in place of Train. none (own)
	EvalMix         []Source `toml:"eval_mix"` // likewise of evaluations, in place of Eval. none (own)
	Get             string   `toml:"get"`      // what gets the files, a command or a sentence: told when one is missing. "" (own)
	Compose         Compose  `toml:"compose"`
	Fields          Fields   `toml:"fields"`            // columns of the files, where they are not those of a known shape
	OverLength      string   `toml:"over_length"`       // a question whose prompt is too long: "drop" it (counted, shown) or "error". "drop" (own)
	MaxPromptTokens int      `toml:"max_prompt_tokens"` // longest prompt, system prompt and template included; 0: what leaves room for one turn in the context. 0 (own)
	Shuffle         bool     `toml:"shuffle"`           // draw the questions in an order seeded anew each pass; false: in file order. true (verl)
}

// Source is a part of the questions, with files and a share of its own.
type Source struct {
	Files            List    `toml:"files"`              // question files, or patterns of their names
	Name             string  `toml:"name"`               // of the benchmark, for questions whose file does not say it. "" (own)
	Weight           float64 `toml:"weight"`             // of the draws, this one's part in the sum of all weights. 1 (own)
	Sample           int     `toml:"sample"`             // questions drawn of the source once, at the start; 0 is all. 0 (own)
	Seed             int64   `toml:"seed"`               // of that sample. 0 (own)
	Aliases          string  `toml:"aliases"`            // JSONL file of aliases for rows with an answer_id, as 2WikiMultihopQA has. "" (own)
	MaxQuestionChars int     `toml:"max_question_chars"` // longer questions are left out; 0 is no bound. 0 (own)
	Fields           Fields  `toml:"fields"`             // columns of its files; what is not set is as in data.fields
}

func (s *Source) setDefaults() { s.Weight = 1 }

// Compose makes questions that ask for several things out of questions that ask for one.
type Compose struct {
	Train    []int  `toml:"train"`    // how many, 1 to 10: the numbers take turns while there are training questions. none (own)
	Eval     []int  `toml:"eval"`     // how many: all questions of the evaluation for each number. none (own)
	Template string `toml:"template"` // text/template of the new text, or "@FILE" for that of a file; "": the shipped one. "" (own)
	Seed     int64  `toml:"seed"`     // of which questions meet. 0 (own)
}

// Fields name the columns of a question file; "" is the column of the known shapes.
type Fields struct {
	ID            string `toml:"id"`             // "" (own)
	Question      string `toml:"question"`       // "" (own)
	GoldenAnswers string `toml:"golden_answers"` // "" (own)
	Source        string `toml:"source"`         // "" (own)
	Hops          string `toml:"hops"`           // "" (own)
}

// Rollout is how trajectories are made. Limits count tokens.
type Rollout struct {
	QuestionsPerStep   int     `toml:"questions_per_step"`    // 4 (own)
	GroupSize          int     `toml:"group_size"`            // trajectories per question. 16 (paper)
	Temperature        float64 `toml:"temperature"`           // above 0: training samples. 1 (verl)
	TopP               float64 `toml:"top_p"`                 // 1 only: the update's log-probabilities are those of the whole distribution. 1 (verl)
	TopK               int     `toml:"top_k"`                 // 0 only, for the same reason. 0 (verl)
	Context            string  `toml:"context"`               // "full": a turn sees everything before it; "limited": the latest memory, action and result. "full" (source)
	Format             string  `toml:"format"`                // "chat": a tool result is a user message; "raw": it stands between the turns. "chat" (own)
	Schedule           string  `toml:"schedule"`              // "fixed": repeats bit for bit; "eager": faster; "auto": fixed on a CPU, eager on CUDA. "auto" (own)
	Prefill            string  `toml:"prefill"`               // opening text of every turn: counts for the format, not for the loss. "" (own)
	SystemPrompt       string  `toml:"system_prompt"`         // text, or "@FILE" for the text of a file; "": the shipped one for the enabled tools. "" (own)
	MaxTurns           int     `toml:"max_turns"`             // 8 (own)
	MaxTurnTokens      int     `toml:"max_turn_tokens"`       // sampled in one turn. 512 (own)
	MaxResponseTokens  int     `toml:"max_response_tokens"`   // of a trajectory: model, tool and glue tokens. 8192 (own)
	ToolResultTokens   int     `toml:"tool_result_tokens"`    // of one tool result; whole passages are cut first. 512 (own)
	MemoryTokens       int     `toml:"memory_tokens"`         // of the memory carried on in limited context; 0 is no cap. 0 (own)
	ContextLength      int     `toml:"context_length"`        // prompt and response together; 0 is the model's own. 0 (own)
	OnNoAction         string  `toml:"on_no_action"`          // a turn without an action: "end" the trajectory or "correct" the model. "end" (source)
	Truncated          string  `toml:"truncated"`             // a trajectory cut by a limit: "score" it as it stands, "zero" its score, "mask" it out of the loss. "score" (source)
	BatchTokens        int     `toml:"batch_tokens"`          // of one forward pass of generation. 4096 (own)
	MaxRows            int     `toml:"max_rows"`              // trajectories generated at the same time, more wait; 0 is no bound. 0 (own)
	KVCacheTokens      int     `toml:"kv_cache_tokens"`       // whose keys and values are held, shared ones once; the newest trajectories give way. 0 is no bound. 0 (own)
	TrajectoryDeadline Seconds `toml:"trajectory_deadline_s"` // 600 (own)
	StepDeadline       Seconds `toml:"step_deadline_s"`       // 1800 (own)
	Prompts            Prompts `toml:"prompts"`
}

// Prompts replace the shipped texts of a conversation: text, or "@FILE" for the text of a file;
// "" is the shipped one. Words in braces are placeholders.
type Prompts struct {
	Corrective  string `toml:"corrective"`   // after a turn without an action; {tools}. "" (own)
	RefusedTool string `toml:"refused_tool"` // a tool the run does not offer; {tool}, {tools}. "" (own)
	RefusedURL  string `toml:"refused_url"`  // an address that is not opened; {url}, {reason}. "" (own)
	EmptyQuery  string `toml:"empty_query"`  // a search or an access of nothing; {tool}. "" (own)
	NoResults   string `toml:"no_results"`   // a search that found no passage. "" (own)
	ToolError   string `toml:"tool_error"`   // a tool that failed, where the model is told; {tool}. "" (own)
}

// Tools are what the model may use.
type Tools struct {
	Enabled        List         `toml:"enabled"`          // of "search", "access". ["search"] (own)
	OnToolFailure  string       `toml:"on_tool_failure"`  // "exclude" the trajectory from every statistic and the loss, or "tell_model". "exclude" (own)
	MaxFailedSteps int          `toml:"max_failed_steps"` // steps in a row in which failures leave no question with advantage.min_group valid trajectories; so many end the run. 3 (own)
	CacheMiB       int          `toml:"cache_mib"`        // of what services found, kept for the run; 0 is no cache. 64 (own)
	Search         Search       `toml:"search"`
	Access         Access       `toml:"access"`
	Custom         []CustomTool `toml:"custom"` // further tools, each offered by standing here. none (own)
}

// Search is where passages come from.
type Search struct {
	Backend     string  `toml:"backend"`       // "bm25" over Corpus, "http" to the service at URL, "index" in the folder Index. "bm25" (own)
	Corpus      string  `toml:"corpus"`        // JSONL file of passages. "" (own)
	URL         List    `toml:"url"`           // address of POST /retrieve, or several of services that find the same. none (own)
	Index       string  `toml:"index"`         // folder of a built index. "" (own)
	Method      string  `toml:"method"`        // of searching an index: "bm25", "dense", "hybrid", or "auto": the last of these that it has. "auto" (own)
	Approximate bool    `toml:"approximate"`   // dense search by the graph of the index, not through all vectors. false (own)
	Encoder     string  `toml:"encoder"`       // HuggingFace folder of the encoder of an index; "" is where it was when the index was built. "" (own)
	TopK        int     `toml:"topk"`          // passages per search. 3 (source)
	Timeout     Seconds `toml:"timeout_s"`     // of one try. 10 (own)
	Tries       int     `toml:"tries"`         // 3 (own)
	Concurrency int     `toml:"concurrency"`   // calls at the same time. 64 (own)
	HedgeAfter  Seconds `toml:"hedge_after_s"` // a service that has not answered by then is asked a second time; 0 is never. 0 (own)
}

// Access is where pages come from.
type Access struct {
	Via         string  `toml:"via"`         // the "service" at URL, the web itself ("direct"), or files in Folder ("folder"). "service" (own)
	URL         string  `toml:"url"`         // address of POST /access. "" (own)
	Folder      string  `toml:"folder"`      // of stored pages. "" (own)
	AllowHosts  List    `toml:"allow_hosts"` // the only hosts that are opened, "host" or "host:port", local ones too; empty: every public one. none (own)
	Robots      bool    `toml:"robots"`      // keep to what robots.txt allows, where pages come directly. true (own)
	PerSecond   float64 `toml:"per_second"`  // requests to one host, where pages come directly; 0 is no bound. 2 (own)
	Record      string  `toml:"record"`      // folder that pages are added to, for via "folder"; "" is none. "" (own)
	Timeout     Seconds `toml:"timeout_s"`   // of one try. 10 (own)
	Tries       int     `toml:"tries"`       // 3 (own)
	Concurrency int     `toml:"concurrency"` // calls at the same time. 64 (own)
}

// Reward is what a trajectory and its memories are worth.
type Reward struct {
	FormatReward string  `toml:"format_reward"` // "gate": a broken format scores 0; "bonus": adds FormatWeight when it holds; "off". "gate" (own)
	FormatWeight float64 `toml:"format_weight"` // of the bonus. 0 (own)
	MemoryReward string  `toml:"memory_reward"` // "mem_minus_full", "mem" or "off" (plain GRPO). "mem_minus_full" (source)
	AnswerProb   string  `toml:"answer_prob"`   // of the golden answer: "geometric" mean of its tokens, or "product". "geometric" (paper)
	AnswerPrefix string  `toml:"answer_prefix"` // stands before the golden answer and is not scored. "<answer>" (own)

	Command        List    `toml:"command"`           // program and arguments that score answers in place of the exact match. none (own)
	CommandTimeout Seconds `toml:"command_timeout_s"` // for one answer. 30 (own)
	CommandWorkers int     `toml:"command_workers"`   // processes of it, each for one answer at a time. 1 (own)
}

// Advantage is how scores become advantages.
type Advantage struct {
	MemoryWeight    float64          `toml:"memory_weight"`     // 1 (source)
	Normalize       string           `toml:"normalize"`         // "std" or "none". "std" (source)
	Single          string           `toml:"single"`            // a group of one: "zero", or "score" (mean 0, deviation 1). "zero" (own)
	MinGroup        int              `toml:"min_group"`         // fewer valid trajectories leave a question out. 2 (own)
	DropEqualGroups bool             `toml:"drop_equal_groups"` // leave out questions whose advantages are all zero. false (source)
	Outcome         AdvantageOutcome `toml:"outcome"`
	Memory          AdvantageMemory  `toml:"memory"`
}

// AdvantageOutcome belongs to the outcome scores.
type AdvantageOutcome struct {
	MinStd float64 `toml:"min_std"` // floor under the deviation. 0 (source)
}

// AdvantageMemory belongs to the memory rewards.
type AdvantageMemory struct {
	MinStd float64 `toml:"min_std"` // floor under the deviation. 0 (source)
	Gate   string  `toml:"gate"`    // "none", or "any_success": only in groups where a trajectory scored. "none" (source)
	Pool   string  `toml:"pool"`    // "question": all turns together; "turn": one pool per turn number. "question" (source)
}

// Loss is the policy loss.
type Loss struct {
	ClipLow     float64 `toml:"clip_low"`     // 0.2 (verl)
	ClipHigh    float64 `toml:"clip_high"`    // 0.2 (verl)
	DualClip    float64 `toml:"dual_clip"`    // bound c·A for negative advantages A; 0 is off. 0 (own)
	Aggregation string  `toml:"aggregation"`  // over the trained tokens, see Describe. "token-mean" (verl)
	Divisor     float64 `toml:"divisor"`      // of seq-mean-token-sum-norm, which needs it. 0 (own)
	KLEstimator string  `toml:"kl_estimator"` // "k1", "abs", "k2", "k3", "low_var_kl". "low_var_kl" (verl)
	KLCoef      float64 `toml:"kl_coef"`      // 0.001 (verl)
}

// Optimizer is AdamW and the shape of an update.
type Optimizer struct {
	LearningRate          float64    `toml:"learning_rate"`           // 1e-6 (verl)
	WarmupSteps           int        `toml:"warmup_steps"`            // step k of w runs at k/w of the rate. 0 (own)
	Schedule              string     `toml:"schedule"`                // behind the warm-up: "constant" or "cosine". "constant" (verl)
	Betas                 [2]float64 `toml:"betas"`                   // [0.9, 0.999] (verl)
	Eps                   float64    `toml:"eps"`                     // 1e-8 (verl)
	WeightDecay           float64    `toml:"weight_decay"`            // 0.01 (verl)
	ClipNorm              float64    `toml:"clip_norm"`               // of the whole gradient; 0 is off. 1 (verl)
	PPOEpochs             int        `toml:"ppo_epochs"`              // passes over a step's trajectories. 1 (verl)
	QuestionsPerMinibatch int        `toml:"questions_per_minibatch"` // of one optimiser step; 0 is questions_per_step. 0 (own)
	MicroBatchTokens      int        `toml:"micro_batch_tokens"`      // of one forward and backward pass; a longer trajectory has one to itself. 8192 (own)
	MaxNonfinite          int        `toml:"max_nonfinite"`           // skipped steps in a row that end the run. 10 (own)
}

// Scoring is how log-probabilities are computed.
type Scoring struct {
	Form       string `toml:"form"`         // "naive": every context whole; "shared": what contexts and trajectories begin with once; "cached": memories behind the rollout's cache. "cached" (own)
	OldLogProb string `toml:"old_log_prob"` // "recompute" in a forward pass, or those seen in the "rollout". "recompute" (verl)
}

// Eval is an evaluation, of its own or during training, with sampling settings of its own.
type Eval struct {
	Every       int     `toml:"every"`       // steps between evaluations during training; 0 is never. 0 (own)
	Questions   int     `toml:"questions"`   // the first so many; 0 is all. 0 (own)
	Context     List    `toml:"context"`     // "limited", "full", or both; the first one's figures are those of eval/em and the like. "limited" (paper)
	Temperature float64 `toml:"temperature"` // 0 takes the likeliest token. 0 (own)
	TopP        float64 `toml:"top_p"`       // 1 (own)
	TopK        int     `toml:"top_k"`       // 0 (own)
	Samples     int     `toml:"samples"`     // trajectories per question. 1 (own)
	Tools       Tools   `toml:"tools"`       // what is not set here is as in [tools]
}

// Checkpoint is what is kept on disk.
type Checkpoint struct {
	Every    int    `toml:"every"`     // steps between checkpoints; the last step always has one. 10 (own)
	Keep     int    `toml:"keep"`      // newest ones that stay. 2 (own)
	KeepBest string `toml:"keep_best"` // metric whose best checkpoint stays too; "" is none. "eval/em" (own)
}

// Bench is the shape of one step that the bench command times; its questions and trajectories are
// those of [rollout].
type Bench struct {
	PromptTokens int `toml:"prompt_tokens"` // 128 (own)
	Turns        int `toml:"turns"`         // 3 (own)
	TurnTokens   int `toml:"turn_tokens"`   // sampled in each turn. 64 (own)
	ToolTokens   int `toml:"tool_tokens"`   // of the result behind each turn. 96 (own)
	MemoryTokens int `toml:"memory_tokens"` // of each turn's memory, part of the turn. 24 (own)
	AnswerTokens int `toml:"answer_tokens"` // of the golden answer. 8 (own)
	Repeats      int `toml:"repeats"`       // of each stage; the median is shown. 3 (own)
	// RandomWeights makes a model's weights up on the device: of model.path only config.json is read.
	RandomWeights bool `toml:"random_weights"` // false (own)
}

// Seconds is a time span in seconds.
type Seconds float64

// Duration is the time span in Go's unit.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Default returns a config in which every key that has a default holds it.
func Default() *Config {
	tools := Tools{
		Enabled: List{"search"}, OnToolFailure: "exclude", MaxFailedSteps: 3, CacheMiB: 64,
		Search: Search{Backend: "bm25", URL: List{}, Method: "auto", TopK: 3, Timeout: 10, Tries: 3, Concurrency: 64},
		Access: Access{Via: "service", AllowHosts: List{}, Robots: true, PerSecond: 2, Timeout: 10, Tries: 3, Concurrency: 64},
		Custom: []CustomTool{},
	}
	return &Config{
		Run:   Run{Resume: "auto"},
		Model: Model{DType: "auto", Device: "auto", ActivationCheckpointing: "none", OptimizerOffload: "none"},
		LoRA:  defaultLoRA(),
		Data:  Data{Train: List{}, Eval: List{}, Mix: []Source{}, EvalMix: []Source{}, Compose: Compose{Train: []int{}, Eval: []int{}}, OverLength: "drop", Shuffle: true},
		Rollout: Rollout{
			QuestionsPerStep: 4, GroupSize: 16, Temperature: 1, TopP: 1, Context: "full", Format: "chat", Schedule: "auto",
			MaxTurns: 8, MaxTurnTokens: 512, MaxResponseTokens: 8192, ToolResultTokens: 512, OnNoAction: "end",
			Truncated: "score", BatchTokens: 4096, TrajectoryDeadline: 600, StepDeadline: 1800,
		},
		Tools:  tools,
		Reward: Reward{FormatReward: "gate", MemoryReward: "mem_minus_full", AnswerProb: "geometric", AnswerPrefix: "<answer>", Command: List{}, CommandTimeout: 30, CommandWorkers: 1},
		Advantage: Advantage{
			MemoryWeight: 1, Normalize: "std", Single: "zero", MinGroup: 2,
			Memory: AdvantageMemory{Gate: "none", Pool: "question"},
		},
		Loss: Loss{ClipLow: 0.2, ClipHigh: 0.2, Aggregation: "token-mean", KLEstimator: "low_var_kl", KLCoef: 0.001},
		Optimizer: Optimizer{
			LearningRate: 1e-6, Schedule: "constant", Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, WeightDecay: 0.01,
			ClipNorm: 1, PPOEpochs: 1, MicroBatchTokens: 8192, MaxNonfinite: 10,
		},
		Scoring:    Scoring{Form: "cached", OldLogProb: "recompute"},
		Eval:       Eval{Context: List{"limited"}, TopP: 1, Samples: 1, Tools: tools.clone()},
		Checkpoint: Checkpoint{Every: 10, Keep: 2, KeepBest: "eval/em"},
		Bench:      Bench{PromptTokens: 128, Turns: 3, TurnTokens: 64, ToolTokens: 96, MemoryTokens: 24, AnswerTokens: 8, Repeats: 3},
	}
}
