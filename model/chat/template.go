package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// ErrNoTemplate marks a model folder without a chat template.
var ErrNoTemplate = errors.New("no chat template")

// Template is a model's chat template. It is safe for concurrent use.
type Template struct {
	name     string // the file it comes from, for messages
	compiled *jinja.Template
	tokens   map[string]string // bos_token and the like, as the template sees them
	now      time.Time         // what strftime_now shows: one date for the life of the template
}

const (
	templateFile = "chat_template.jinja"
	configFile   = "tokenizer_config.json"
)

// tokenNames are the special tokens a template may name as variables.
var tokenNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// LoadTemplate reads the chat template of a model folder: chat_template.jinja, else chat_template
// of tokenizer_config.json, a text or a list of {name, template} of which "default" is taken. The
// error wraps ErrNoTemplate when the folder has neither.
func LoadTemplate(dir string) (*Template, error) {
	config, err := readTokenizerConfig(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, templateFile)
	raw, err := os.ReadFile(name)
	source := string(raw)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name = filepath.Join(dir, configFile)
		if source, err = defaultTemplate(config["chat_template"]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	case err != nil:
		return nil, fmt.Errorf("read chat template: %w", err)
	}
	tokens := map[string]string{}
	for _, key := range tokenNames {
		if text, ok := tokenText(config[key]); ok {
			tokens[key] = text
		}
	}
	return newTemplate(name, source, tokens)
}

func newTemplate(name, source string, tokens map[string]string) (t *Template, err error) {
	defer recovered(&err, name)
	compiled, err := jinja.Compile(withOwnJSONFilter(source))
	if err != nil {
		return nil, fmt.Errorf("chat template %s does not parse: %w", name, err)
	}
	return &Template{name: name, compiled: compiled, tokens: tokens, now: time.Now()}, nil
}

// recovered turns a panic of the template engine, which trusts its templates, into an error.
func recovered(err *error, name string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("chat template %s fails: %v", name, p)
	}
}

// readTokenizerConfig reads the top level of tokenizer_config.json; a missing file is empty.
func readTokenizerConfig(path string) (map[string]json.RawMessage, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read tokenizer config: %w", err)
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s is not a JSON object: %w", path, err)
	}
	return config, nil
}

// defaultTemplate reads the value of chat_template.
func defaultTemplate(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", fmt.Errorf("%w: there is no %s beside it and no chat_template in it", ErrNoTemplate, templateFile)
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return "", errors.New("chat_template is neither a text nor a list of {name, template}")
	}
	var names []string
	for _, entry := range named {
		if entry.Name == "default" {
			return entry.Template, nil
		}
		names = append(names, entry.Name)
	}
	return "", fmt.Errorf("chat_template has no entry named \"default\", only %q", names)
}

// tokenText reads a special token, a text or an object with its content.
func tokenText(raw json.RawMessage) (string, bool) {
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text == nil {
			return "", false
		}
		return *text, true
	}
	var object struct{ Content *string }
	if json.Unmarshal(raw, &object) != nil || object.Content == nil {
		return "", false
	}
	return *object.Content, true
}

// Name is the file the template was read from.
func (t *Template) Name() string { return t.name }

// Render writes messages as the template does. addGenerationPrompt ends the text where the
// assistant starts to write, if the template knows how to.
func (t *Template) Render(messages []Message, addGenerationPrompt bool) (text string, err error) {
	defer recovered(&err, t.name)
	list := make([]jinja.Value, len(messages))
	for k, message := range messages {
		list[k] = jinja.NewDict()
		list[k].AsDict().Set("role", jinja.NewString(message.Role))
		list[k].AsDict().Set("content", jinja.NewString(message.Content))
	}
	variables := map[string]jinja.Value{
		"messages":              jinja.NewList(list),
		"tools":                 jinja.None(),
		"documents":             jinja.None(),
		"add_generation_prompt": jinja.NewBool(addGenerationPrompt),
		"raise_exception":       jinja.NewCallable("raise_exception", raiseException),
		"strftime_now":          jinja.NewCallable("strftime_now", t.strftimeNow),
		ownJSONFilter:           jinja.NewCallable("tojson", filterJSON),
	}
	for key, token := range t.tokens {
		variables[key] = jinja.NewString(token)
	}
	text, err = t.compiled.RenderValues(variables)
	if err != nil {
		return "", fmt.Errorf("chat template %s fails to render %s: %w", t.name, roles(messages), err)
	}
	return text, nil
}

// roles tells a conversation by the roles of its messages.
func roles(messages []Message) string {
	names := make([]string, len(messages))
	for k, message := range messages {
		names[k] = message.Role
	}
	return "[" + strings.Join(names, ", ") + "]"
}

func raiseException(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), errors.New("raise_exception takes one text")
	}
	return jinja.Undefined(), fmt.Errorf("it raises %q", args[0].AsString())
}

func (t *Template) strftimeNow(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsString() {
		return jinja.Undefined(), errors.New("strftime_now takes one format text")
	}
	text, err := strftime(t.now, args[0].AsString())
	return jinja.NewString(text), err
}

// dateLayouts are Go's layouts of strftime's directives in the C locale.
var dateLayouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'j': "002",
	'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05",
}

// strftime formats a time as Python's strftime does.
func strftime(now time.Time, format string) (string, error) {
	var text strings.Builder
	for k := 0; k < len(format); k++ {
		if format[k] != '%' || k+1 == len(format) {
			text.WriteByte(format[k])
			continue
		}
		k++
		layout, known := dateLayouts[format[k]]
		switch {
		case format[k] == '%':
			text.WriteByte('%')
		case known:
			text.WriteString(now.Format(layout))
		default:
			directives := make([]string, 0, len(dateLayouts))
			for directive := range dateLayouts {
				directives = append(directives, "%"+string(directive))
			}
			slices.Sort(directives)
			return "", fmt.Errorf("strftime_now: unknown directive %%%c; known are %s", format[k], strings.Join(directives, " "))
		}
	}
	return text.String(), nil
}
