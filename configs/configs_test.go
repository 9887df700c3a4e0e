package configs

import (
	"slices"
	"strings"
	"testing"
)

func TestSystemPromptDescribesTheEnabledToolsOnly(t *testing.T) {
	for _, enabled := range [][]string{{}, {"search"}, {"access"}, {"search", "access"}, {"access", "search"}} {
		name, err := SystemPromptName(enabled)
		if err != nil {
			t.Fatal(err)
		}
		text := Prompt(name)
		for _, tool := range tools {
			if got, want := strings.Contains(text, "<"+tool+">"), slices.Contains(enabled, tool); got != want {
				t.Errorf("%s: mentions <%s>: %v, want %v", name, tool, got, want)
			}
			if got, want := strings.Contains(ActionForms(enabled), "<"+tool+">"), slices.Contains(enabled, tool); got != want {
				t.Errorf("action forms of %q mention <%s>: %v, want %v", enabled, tool, got, want)
			}
		}
		needed := []string{"<mem>", "</mem>", "<think>", "</think>", "<answer>", "</answer>", "; second"}
		if len(enabled) > 0 {
			needed = append(needed, "<information>", "</information>")
		}
		for _, part := range needed {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not describe %s", name, part)
			}
		}
	}
	if _, err := SystemPromptName([]string{"python"}); err == nil || !strings.Contains(err.Error(), `"python"`) {
		t.Errorf("unknown tool: %v", err)
	}
}

func TestPromptsHoldTheirPlaceholders(t *testing.T) {
	placeholders := map[string][]string{
		Corrective:  {"{tools}"},
		RefusedTool: {"{tool}", "{tools}"},
		RefusedURL:  {"{url}", "{reason}"},
		EmptyQuery:  {"{tool}"},
		NoResults:   nil,
		ToolError:   {"{tool}"},
	}
	for name, want := range placeholders {
		text := Prompt(name)
		for _, placeholder := range want {
			if !strings.Contains(text, placeholder) {
				t.Errorf("%s lacks %s", name, placeholder)
			}
		}
		if strings.Count(text, "{") != len(want) {
			t.Errorf("%s has other placeholders than %q: %s", name, want, text)
		}
	}
	if got, want := len(Names()), len(placeholders)+4; got != want {
		t.Errorf("%d shipped texts, want %d", got, want)
	}
}

func TestPromptsAreCleanText(t *testing.T) {
	for _, name := range Names() {
		text := Prompt(name)
		if text == "" || strings.TrimSpace(text) != text || strings.ContainsRune(text, '\r') {
			t.Errorf("%s: white space around, or empty", name)
		}
	}
}

func TestFill(t *testing.T) {
	got := Fill("<{tool}> of {tools}; {other}", "tool", "{tools}", "tools", "x")
	if want := "<{tools}> of x; {other}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestUnknownPromptPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Prompt("nonsense")
}
