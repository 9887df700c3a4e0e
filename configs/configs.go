// Package configs carries the shipped texts of a conversation inside the program.
package configs

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// Names of the shipped texts, files of prompts/ without ".txt". The words in braces are
// placeholders for Fill.
const (
	Corrective  = "corrective"   // after a turn without an action; {tools}
	RefusedTool = "refused_tool" // a tool the run does not offer; {tool}, {tools}
	RefusedURL  = "refused_url"  // an address that is not opened; {url}, {reason}
	EmptyQuery  = "empty_query"  // a search or an access of nothing; {tool}
	NoResults   = "no_results"   // a search that found no passage
	ToolError   = "tool_error"   // a tool that failed, where the model is told; {tool}
)

//go:embed prompts/*.txt
var prompts embed.FS

// tools are the tools a system prompt exists for, in the order of its name.
var tools = []string{"search", "access"}

// forms show how each action is written.
var forms = map[string]string{
	"search": "<search> query </search>",
	"access": "<access> url </access>",
	"answer": "<answer> the answer </answer>",
}

// Names lists the shipped texts, sorted.
func Names() []string {
	entries, err := prompts.ReadDir("prompts")
	if err != nil {
		panic(fmt.Sprintf("the embedded prompts cannot be listed: %v", err))
	}
	names := make([]string, len(entries))
	for k, entry := range entries {
		names[k] = strings.TrimSuffix(entry.Name(), ".txt")
	}
	return names
}

// Prompt returns a shipped text without the newline at its end. A name that is not one of Names
// is a mistake in the program and panics.
func Prompt(name string) string {
	text, err := prompts.ReadFile("prompts/" + name + ".txt")
	if err != nil {
		panic(fmt.Sprintf("no shipped prompt is named %q; there are %q", name, Names()))
	}
	return strings.TrimSuffix(string(text), "\n")
}

// Tool is a tool that is not shipped: text stands between its tags, Description says what it does.
type Tool struct{ Tag, Description string }

func (t Tool) form() string { return "<" + t.Tag + "> text </" + t.Tag + ">" }

// SystemPrompt describes exactly the enabled tools, in whatever order they are given, and then the
// custom ones: the form of each stands before that of an answer, its description at the end.
func SystemPrompt(enabled []string, custom []Tool) (string, error) {
	name, err := systemPromptName(enabled)
	if err != nil {
		return "", err
	}
	if len(enabled) == 0 && len(custom) > 0 {
		name += "_custom"
	}
	text := Prompt(name)
	for _, tool := range custom {
		end := strings.Index(text, forms["answer"])
		start := strings.LastIndexByte(text[:end], '\n') + 1
		text = text[:start] + text[start:end] + tool.form() + "\n" + text[start:] + fmt.Sprintf("\n- <%s>: %s", tool.Tag, tool.Description)
	}
	return text, nil
}

func systemPromptName(enabled []string) (string, error) {
	for _, tool := range enabled {
		if !slices.Contains(tools, tool) {
			return "", fmt.Errorf("there is no tool %q; tools are %q", tool, tools)
		}
	}
	name := "system"
	for _, tool := range tools {
		if slices.Contains(enabled, tool) {
			name += "_" + tool
		}
	}
	return name, nil
}

// ActionForms tells the model how to write the actions open to it, the answer last: the value of
// the placeholder {tools}.
func ActionForms(enabled []string, custom []Tool) string {
	var list []string
	for _, tool := range tools {
		if slices.Contains(enabled, tool) {
			list = append(list, forms[tool])
		}
	}
	for _, tool := range custom {
		list = append(list, tool.form())
	}
	if len(list) == 0 {
		return forms["answer"]
	}
	return strings.Join(list, ", ") + " or " + forms["answer"]
}

// Fill puts values in place of the placeholders {name} of a text; pairs are names and values in
// turn. Values are not searched for placeholders.
func Fill(text string, pairs ...string) string {
	braced := slices.Clone(pairs)
	for k := 0; k < len(braced); k += 2 {
		braced[k] = "{" + braced[k] + "}"
	}
	return strings.NewReplacer(braced...).Replace(text)
}
