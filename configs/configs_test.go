package configs

import (
	"slices"
	"strings"
	"testing"
)

func TestSystemPromptDescribesTheEnabledToolsOnly(t *testing.T) {
	for _, enabled := range [][]string{{}, {"search"}, {"access"}, {"search", "access"}, {"access", "search"}} {
		name, text := strings.Join(enabled, "+"), systemPrompt(t, enabled)
		for _, tool := range tools {
			if got, want := strings.Contains(text, "<"+tool+">"), slices.Contains(enabled, tool); got != want {
				t.Errorf("%s: mentions <%s>: %v, want %v", name, tool, got, want)
			}
			if got, want := strings.Contains(ActionForms(enabled, nil), "<"+tool+">"), slices.Contains(enabled, tool); got != want {
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
	if _, err := SystemPrompt([]string{"python"}, nil); err == nil || !strings.Contains(err.Error(), `"python"`) {
		t.Errorf("unknown tool: %v", err)
	}
}

func systemPrompt(t *testing.T, enabled []string, custom ...Tool) string {
	t.Helper()
	text, err := SystemPrompt(enabled, custom)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSystemPromptDescribesCustomTools(t *testing.T) {
	custom := []Tool{{"calculate", "computes"}, {"clock", "tells the time"}}
	for _, enabled := range [][]string{{}, {"search"}, {"search", "access"}} {
		text := systemPrompt(t, enabled, custom...)
		const before = "<mem> what you have found out so far </mem><think> what is still missing and what to do next </think>"
		for _, part := range []string{
			"\n" + before + "<calculate> text </calculate>\n" + before + "<clock> text </clock>\n" + before + "<answer> the answer </answer>\n",
			"</answer>\n- <calculate>: computes\n- <clock>: tells the time",
			"<information>",
		} {
			if !strings.Contains(text, part) {
				t.Errorf("%q: no %q in\n%s", enabled, part, text)
			}
		}
		if strings.Contains(text, "You have no tools") || strings.Contains(text, "<search>") != slices.Contains(enabled, "search") {
			t.Errorf("%q:\n%s", enabled, text)
		}
	}
	want := "<search> query </search>, <calculate> text </calculate>, <clock> text </clock> or <answer> the answer </answer>"
	if got := ActionForms([]string{"search"}, custom); got != want {
		t.Errorf("%s, want %s", got, want)
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
	if got, want := len(Names()), len(placeholders)+5; got != want {
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
