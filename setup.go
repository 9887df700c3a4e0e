package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/configs"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/rollout"
)

// texts is everything about text: the tokenizer, the format of a conversation, the rules.
type texts struct {
	tokenizer    *tokenizer.Tokenizer
	architecture model.Architecture
	systemPrompt string
	rules        rollout.Rules
}

// textHalf is what a model folder says about text.
type textHalf struct {
	tokenizer    *tokenizer.Tokenizer
	architecture model.Architecture
	generation   model.Generation
}

// loadTextHalf reads the text half of a model folder and checks that it fits.
func loadTextHalf(dir string) (half textHalf, err error) {
	if half.architecture, err = model.LoadArchitecture(dir); err != nil {
		return half, fault.Usage(err)
	}
	if half.tokenizer, err = tokenizer.Load(dir); err != nil {
		return half, fault.Usage(err)
	}
	if err := tokenizerFits(half.tokenizer, half.architecture); err != nil {
		return half, fault.Usage(fmt.Errorf("model folder %s: %w", dir, err))
	}
	half.generation, err = model.LoadGenerationConfig(dir)
	return half, fault.Usage(err)
}

// loadTexts reads the text half of the model folder and sets the conversation up.
func loadTexts(c *config.Config) (*texts, error) {
	if err := modelPresent(c.Model); err != nil {
		return nil, err
	}
	half, err := loadTextHalf(c.Model.Path)
	if err != nil {
		return nil, err
	}
	tok, architecture := half.tokenizer, half.architecture
	t := &texts{tokenizer: tok, architecture: architecture}
	if t.systemPrompt, err = systemPrompt(c.Rollout.SystemPrompt, c.Tools.Enabled, customTools(c)); err != nil {
		return nil, fault.Usage(err)
	}
	tags, err := customTags(c)
	if err != nil {
		return nil, err
	}
	if err := tagsSurvive(tok, tags); err != nil {
		return nil, fault.Usage(fmt.Errorf("model folder %s: %w", c.Model.Path, err))
	}
	if tags.ParseTurn(c.Rollout.Prefill).Action != chat.ActionNone {
		return nil, fault.Usage(fmt.Errorf("rollout.prefill is %q, which holds a whole action; allowed is a text that opens a turn, such as \"<mem>\"", c.Rollout.Prefill))
	}
	formats, err := conversationFormats(c.Model.Path, tok, "rollout.format", c.Rollout.Format)
	if err != nil {
		return nil, fault.Usage(err)
	}
	format, err := formats(t.systemPrompt)
	if err != nil {
		return nil, fault.Usage(err)
	}
	t.rules = rollout.Rules{
		Limits: rollout.Limits{
			MaxTurns: c.Rollout.MaxTurns, MaxTurnTokens: c.Rollout.MaxTurnTokens,
			MaxResponseTokens: c.Rollout.MaxResponseTokens, ToolResultTokens: c.Rollout.ToolResultTokens,
			MemoryTokens: c.Rollout.MemoryTokens, ContextLength: contextLength(c, architecture),
		},
		Format: format, Vocabulary: tok, Prefill: c.Rollout.Prefill, EOS: half.generation.EOS,
		AnswerPrefix: c.Reward.AnswerPrefix, CorrectNoAction: c.Rollout.OnNoAction == "correct",
		TellToolFailure: c.Tools.OnToolFailure == "tell_model", Texts: conversationTexts(c),
	}
	return t, nil
}

// tokenizerFits checks that every id has an embedding and that the tags of a turn survive a round
// trip: a tokenizer of another model would show here.
func tokenizerFits(tok *tokenizer.Tokenizer, a model.Architecture) error {
	if tok.Size() > a.VocabSize {
		return fmt.Errorf("tokenizer.json has ids up to %d, but config.json says vocab_size %d: the tokenizer belongs to another model", tok.Size()-1, a.VocabSize)
	}
	return tagsSurvive(tok, chat.Tags{})
}

// tagsSurvive checks that tags, and a text, are what they were when they have been encoded and decoded.
func tagsSurvive(tok *tokenizer.Tokenizer, tags chat.Tags) error {
	for _, sample := range append(tags.Texts(), "<information>", "</information>", "Who wrote München, 東京?\n") {
		if back := tok.Decode(tok.EncodeTrusted(sample)); back != sample {
			return fmt.Errorf("tokenizer.json turns %q into %q when it encodes and decodes it: the tokenizer is broken or belongs to another model", sample, back)
		}
	}
	return nil
}

func contextLength(c *config.Config, a model.Architecture) int {
	if c.Rollout.ContextLength > 0 {
		return min(c.Rollout.ContextLength, a.MaxPositions)
	}
	return a.MaxPositions
}

// systemPrompt is the configured text, or the shipped one for tools.
func systemPrompt(text string, tools []string, custom []configs.Tool) (string, error) {
	if text != "" {
		return text, nil
	}
	return configs.SystemPrompt(tools, custom)
}

// conversationFormats makes the format that a key names for any system prompt.
func conversationFormats(dir string, tok *tokenizer.Tokenizer, key, name string) (func(system string) (chat.Format, error), error) {
	if name == "raw" {
		return func(system string) (chat.Format, error) { return chat.NewRawFormat(tok, system), nil }, nil
	}
	template, err := chat.LoadTemplate(dir)
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil, fmt.Errorf("%w; %s = \"raw\" works without one", err, key)
	}
	return func(system string) (chat.Format, error) { return chat.NewChatFormat(template, tok, system) }, err
}

// conversationTexts are the short messages, replaced where the config says so.
func conversationTexts(c *config.Config) rollout.Texts {
	tools := configs.ActionForms(c.Tools.Enabled, customTools(c))
	text := func(own, shipped string) string {
		if own == "" {
			own = configs.Prompt(shipped)
		}
		return configs.Fill(own, "tools", tools)
	}
	p := c.Rollout.Prompts
	return rollout.Texts{
		Correct: text(p.Corrective, configs.Corrective), Unavailable: text(p.RefusedTool, configs.RefusedTool),
		Refused: text(p.RefusedURL, configs.RefusedURL), Empty: text(p.EmptyQuery, configs.EmptyQuery),
		NoResults: text(p.NoResults, configs.NoResults), ToolFailed: text(p.ToolError, configs.ToolError),
	}
}

// longestPrompt is the longest prompt of questions that have one: its question and its tokens.
func (t *texts) longestPrompt(asked []dataset.Question) (id string, tokens int, err error) {
	for _, question := range asked {
		prompt, err := t.rules.Format.Prompt(question.Text)
		if err != nil {
			return "", 0, fault.Usage(err)
		}
		if len(prompt) > tokens {
			id, tokens = question.ID, len(prompt)
		}
	}
	return id, tokens, nil
}

// checkCache refuses a bound of the cache in which the longest prompt and a whole trajectory behind it
// may not find room: a run would come upon that question at any step.
func checkCache(c *config.Config, t *texts, asked []dataset.Question) error {
	bound := c.Rollout.KVCacheTokens
	if bound == 0 {
		return nil
	}
	id, prompt, err := t.longestPrompt(asked)
	if err != nil {
		return err
	}
	if least := rollout.LeastCacheTokens(prompt, t.rules.Limits); bound < least {
		return fault.Usage(fmt.Errorf("rollout.kv_cache_tokens is %d; the longest prompt, the %d tokens of question %q, with a whole trajectory behind it needs at least %d (0 is no bound)",
			bound, prompt, id, least))
	}
	return nil
}

// startEngine opens the device of a config.
func startEngine(device string, threads int) (*engine.Runtime, error) {
	runtime, err := engine.Start(device, threads)
	if err == nil && runtime.Notice() != "" {
		fmt.Fprintln(os.Stderr, "mempo-train: "+runtime.Notice())
	}
	return runtime, deviceFault(err)
}

// deviceFault marks errors of device and model: what the machine lacks is the environment's.
func deviceFault(err error) error {
	if errors.Is(err, engine.ErrNoDevice) || errors.Is(err, engine.ErrLibtorch) ||
		errors.Is(err, model.ErrOutOfMemory) || errors.Is(err, syscall.ENOMEM) {
		return fault.Environment(err)
	}
	return fault.Usage(err)
}
