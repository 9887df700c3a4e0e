package chat

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeTemplate makes a model folder with the given files.
func writeTemplate(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// quoted is text as a JSON string.
func quoted(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestLoadTemplateFindsTheTemplate(t *testing.T) {
	const list = "{% for m in messages %}{{ m.role }}{% endfor %}"
	for _, c := range []struct {
		name, want string
		files      map[string]string
	}{
		{"file of its own first", "file", map[string]string{"chat_template.jinja": "file", "tokenizer_config.json": `{"chat_template": "config"}`}},
		{"file without a config", "file", map[string]string{"chat_template.jinja": "file"}},
		{"text in the config", "userassistant", map[string]string{"tokenizer_config.json": `{"chat_template": ` + quoted(t, list) + `}`}},
		{"default of a list", "two", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "one"}, {"name": "default", "template": "two"}]}`}},
		{"tokens as text, object and null", "<s>[</s>][]", map[string]string{
			"chat_template.jinja":   "{{ bos_token }}[{{ eos_token }}][{{ unk_token }}]",
			"tokenizer_config.json": `{"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true}, "unk_token": null}`,
		}},
		{"tools are none, not undefined", "none", map[string]string{"chat_template.jinja": "{{ 'none' if tools is defined and tools is none }}"}},
	} {
		template, err := LoadTemplate(writeTemplate(t, c.files))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := template.Render([]Message{{"user", "q"}, {"assistant", "a"}}, false)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestLoadTemplateRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		files      map[string]string
	}{
		{"no file", "no chat template", nil},
		{"no entry", "no chat template", map[string]string{"tokenizer_config.json": `{"eos_token": "x"}`}},
		{"null entry", "no chat template", map[string]string{"tokenizer_config.json": `{"chat_template": null}`}},
		{"no default in the list", `only ["rag"]`, map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "x"}]}`}},
		{"a number", "neither a text nor a list", map[string]string{"tokenizer_config.json": `{"chat_template": 3}`}},
		{"broken config", "not a JSON object", map[string]string{"tokenizer_config.json": `{"chat_template": `}},
		{"broken template", "chat_template.jinja does not parse", map[string]string{"chat_template.jinja": "{% for x in %}{{"}},
	} {
		_, err := LoadTemplate(writeTemplate(t, c.files))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if none := c.want == "no chat template"; errors.Is(err, ErrNoTemplate) != none {
			t.Errorf("%s: ErrNoTemplate is %v", c.name, !none)
		}
	}
}

// mustTemplate compiles a template for a test.
func mustTemplate(t *testing.T, source string) *Template {
	t.Helper()
	template, err := newTemplate("test template", source, map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func TestRenderTellsWhatTheTemplateRaises(t *testing.T) {
	template := mustTemplate(t, `{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok`)
	_, err := template.Render([]Message{{"system", "s"}, {"user", "q"}}, true)
	if err == nil || !strings.Contains(err.Error(), "System role not supported") || !strings.Contains(err.Error(), "[system, user]") {
		t.Errorf("error %v", err)
	}
	if got, err := template.Render([]Message{{"user", "q"}}, true); err != nil || got != "ok" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRenderShowsOneDate(t *testing.T) {
	template := mustTemplate(t, `{{ strftime_now('%d %b %Y, %H:%M 100%% on day %j') }}`)
	template.now = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	if got, err := template.Render(nil, false); err != nil || got != "03 Feb 2026, 04:05 100% on day 034" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := mustTemplate(t, `{{ strftime_now('%Q') }}`).Render(nil, false); err == nil || !strings.Contains(err.Error(), "%Q") {
		t.Errorf("unknown directive: %v", err)
	}
}

func TestRenderKeepsContentsAsTheyAre(t *testing.T) {
	template := mustTemplate(t, `{% for m in messages %}{{ m.content }}{% endfor %}`)
	for _, content := range []string{"{{ bos_token }}", "{% if %}", "<b>&\"'</b>", "München 東京", "\x00\r\n\\n", ""} {
		if got, err := template.Render([]Message{{"user", content}}, false); err != nil || got != content {
			t.Errorf("%q becomes %q, %v", content, got, err)
		}
	}
}

// The expected texts are those of Python's json.dumps with ensure_ascii=False.
func TestToJSONWritesAsPython(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{`{'b': [1, 2.0, true, none], 'a': 'é<>&"'} | tojson`, `{"b": [1, 2.0, true, null], "a": "é<>&\""}`},
		{`{'b': {}, 'a': []} | tojson(indent=2)`, "{\n  \"b\": {},\n  \"a\": []\n}"},
		{`[1, [2]] |tojson(indent=1)`, "[\n 1,\n [\n  2\n ]\n]"},
		{`[1, {'k': 2}]|  tojson(separators=(',', ':'))`, `[1,{"k":2}]`},
		{`{'b': 1, 'a': 2} | tojson(sort_keys=true)`, `{"a": 2, "b": 1}`},
		{`'é🙂' | tojson(ensure_ascii=true)`, `"\u00e9\ud83d\ude42"`},
		{`[0.1, 150.0] | tojson`, `[0.1, 150.0]`},
		{`'x | tojson' | upper`, `X | TOJSON`},
	} {
		got, err := mustTemplate(t, "{{ "+c.expression+" }}").Render(nil, false)
		if err != nil || got != c.want {
			t.Errorf("%s is %q, %v, want %q", c.expression, got, err, c.want)
		}
	}
	for f, want := range map[float64]string{1e16: "1e+16", 1e-5: "1e-05", 123456: "123456.0", 0.0001: "0.0001", -0.5: "-0.5", 0: "0.0"} {
		if got := pythonFloat(f); got != want {
			t.Errorf("%g is %q, want %q", f, got, want)
		}
	}
}

func TestOnlyTheFilterIsRenamed(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"a | tojson {{ x | tojson }}", "a | tojson {{ x | python_tojson }}"},
		{"{% set y = x|tojson %}", "{% set y = x|python_tojson %}"},
		{"{{ '| tojson }}' ~ (x |\n tojson(indent=2)) }}", "{{ '| tojson }}' ~ (x |\n python_tojson(indent=2)) }}"},
		{"{# it's | tojson #}{{ tojson }}{{ x | tojsonl }}", "{# it's | tojson #}{{ tojson }}{{ x | tojsonl }}"},
		{`{{ "\"| tojson" }}{`, `{{ "\"| tojson" }}{`},
		{"{ {{ x | tojson", "{ {{ x | python_tojson"},
	} {
		if got := withOwnJSONFilter(c.source); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.source, got, c.want)
		}
	}
}
