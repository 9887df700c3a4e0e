package config

import (
	"fmt"
	"os"
	"strings"
)

// textKey is a key whose value is a text or, behind an '@', the name of a file that holds it. An '@'
// that begins the text itself is written twice.
type textKey struct {
	key   string
	value *string
}

func (c *Config) texts() []textKey {
	p := &c.Rollout.Prompts
	return []textKey{
		{"data.compose.template", &c.Data.Compose.Template},
		{"rollout.system_prompt", &c.Rollout.SystemPrompt},
		{"rollout.prompts.corrective", &p.Corrective},
		{"rollout.prompts.refused_tool", &p.RefusedTool},
		{"rollout.prompts.refused_url", &p.RefusedURL},
		{"rollout.prompts.empty_query", &p.EmptyQuery},
		{"rollout.prompts.no_results", &p.NoResults},
		{"rollout.prompts.tool_error", &p.ToolError},
	}
}

// readTexts puts the content of files in the place of their names, so that the resolved config
// holds what the model is told. The newline at the end of a file is dropped.
func readTexts(texts []textKey) error {
	for _, t := range texts {
		name, isFile := strings.CutPrefix(*t.value, "@")
		switch {
		case strings.HasPrefix(name, "@") && isFile:
			*t.value = name
		case isFile:
			content, err := os.ReadFile(name)
			if err != nil {
				return fmt.Errorf("%s: cannot read the text: %w", t.key, err)
			}
			*t.value = strings.TrimSuffix(string(content), "\n")
		case isRegularFile(*t.value):
			return fmt.Errorf("%s is %q, which is a file; allowed: text, or %q for the text of the file", t.key, *t.value, "@"+*t.value)
		}
	}
	return nil
}

func isRegularFile(name string) bool {
	if name == "" || strings.Contains(name, "\n") {
		return false
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}
