package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

// Load reads the config at path, overrides it with sets, fills in what depends on other keys, and
// checks it. A set is "key=value" with a dotted key; its value is TOML, or else a bare string.
// Errors name the file (or the set), the line and the key; there may be several, one a line. Like
// Validate's they are mistakes of the user's.
func Load(path string, sets []string) (*Config, error) {
	config, err := load(path, sets)
	if err != nil {
		return nil, err
	}
	return config, within(path, config.Validate())
}

// LoadEvaluation reads the config of an evaluation, which has the keys of a run's: those that only
// training needs may be missing. The config of a run is one, too. Errors are like Load's.
func LoadEvaluation(path string, sets []string) (*Config, error) {
	config, err := load(path, sets)
	if err != nil {
		return nil, err
	}
	return config, within(path, config.ValidateEvaluation())
}

func load(path string, sets []string) (*Config, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	config, err := parse(path, text, sets)
	if err != nil {
		return nil, err
	}
	return config, within(path, readTexts(config.texts()))
}

func readFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the config: %w", err)
	}
	return string(text), nil
}

// Parse reads the text of a config that Write wrote.
func Parse(text string) (*Config, error) { return parse("config", text, nil) }

// within puts a file's name in front of each line of an error.
func within(path string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(path + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+path+": "))
}

// parse reads text and sets twice: what [eval.tools] does not set is as in [tools], which is known
// only after the first time.
func parse(path, text string, sets []string) (*Config, error) {
	config := Default()
	for range 2 {
		config.Eval.Tools = config.Tools.clone()
		if err := fill(config, path, text, sets); err != nil {
			return nil, err
		}
	}
	config.resolve()
	return config, nil
}

// fill sets the keys of target, a pointer to a struct, that text and then sets hold.
func fill(target any, path, text string, sets []string) error {
	if problems := read(text, target, true); len(problems) > 0 {
		return joined(path, problems)
	}
	for _, set := range sets {
		if err := override(target, set); err != nil {
			return err
		}
	}
	return nil
}

func joined(path string, problems []problem) error {
	errs := make([]error, len(problems))
	for k, p := range problems {
		errs[k] = fmt.Errorf("%s: %s", path, p.text)
	}
	return errors.Join(errs...)
}

var dottedKey = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// override sets one key of target, a pointer to a struct.
func override(target any, text string) error {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !ok || !dottedKey.MatchString(key) {
		return fmt.Errorf("--set %s: want key=value with a dotted key, as in rollout.group_size=8", text)
	}
	bare, err := json.Marshal(value) // a JSON string is a TOML string, too
	if err != nil {
		return fmt.Errorf("--set %s: %w", text, err)
	}
	var problems []problem
	if isValue(value) {
		if problems = read(key+" = "+value, target, false); len(problems) == 0 {
			return nil
		}
	}
	if again := read(key+" = "+string(bare), target, false); len(again) > 0 {
		if problems == nil {
			problems = again
		}
		return joined("--set "+text, problems)
	}
	return nil
}

// isValue reports whether text is one TOML value and nothing else. A number that is too large is one: that is then said
// of it, and not that it is a string.
func isValue(text string) bool {
	var table map[string]any
	_, err := toml.Decode("value = "+text, &table)
	if err != nil {
		return strings.Contains(err.Error(), "is out of range for")
	}
	return len(table) == 1
}

// shortNames are other names of compute dtypes.
var shortNames = map[string]string{"fp32": "float32", "bf16": "bfloat16"}

// resolve fills in what depends on other keys.
func (c *Config) resolve() {
	if c.Optimizer.QuestionsPerMinibatch == 0 {
		c.Optimizer.QuestionsPerMinibatch = c.Rollout.QuestionsPerStep
	}
	c.Model.resolve()
	c.LoRA.resolve()
}

func (m *Model) resolve() {
	if name, ok := shortNames[m.DType]; ok {
		m.DType = name
	}
}

// clone copies the lists, too.
func (t Tools) clone() Tools {
	t.Enabled = append(List{}, t.Enabled...)
	t.Search.URL = append(List{}, t.Search.URL...)
	t.Access.AllowHosts = append(List{}, t.Access.AllowHosts...)
	t.Custom = append([]CustomTool{}, t.Custom...)
	return t
}
