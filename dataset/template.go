package dataset

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
)

// What a template may take to make one text: a loop that never ends is a slip of the pen away.
const (
	maxComposed = 1 << 20 // bytes of the text, and of each string on the way to it
	maxRounds   = 10_000  // of its loops and of the templates that it calls
)

var errComposedTooLong = errors.New("it makes a text of more than 1 MiB")

// composedText is a text within the limits. It counts a round for every write: parseTemplate gives each round one.
type composedText struct {
	strings.Builder
	rounds int
}

// Write implements io.Writer.
func (c *composedText) Write(part []byte) (int, error) {
	if c.Len()+len(part) > maxComposed {
		return 0, errComposedTooLong
	}
	if len(part) > 0 {
		return c.Builder.Write(part)
	}
	if c.rounds++; c.rounds > maxRounds {
		return 0, fmt.Errorf("its loops go round more than %d times", maxRounds)
	}
	return 0, nil
}

// functions are those of compositions and, in place of the template's own, those that make strings, within the limits.
var functions = template.FuncMap{
	"inc":        func(n int) int { return n + 1 },
	"trimPrefix": strings.TrimPrefix, "trimSuffix": strings.TrimSuffix,
	"join":     func(list []string, separator string) (string, error) { return within(strings.Join(list, separator)) },
	"print":    func(values ...any) (string, error) { return within(fmt.Sprint(values...)) },
	"printf":   func(format string, values ...any) (string, error) { return within(fmt.Sprintf(format, values...)) },
	"println":  func(values ...any) (string, error) { return within(fmt.Sprintln(values...)) },
	"html":     func(values ...any) (string, error) { return within(template.HTMLEscaper(values...)) },
	"js":       func(values ...any) (string, error) { return within(template.JSEscaper(values...)) },
	"urlquery": func(values ...any) (string, error) { return within(template.URLQueryEscaper(values...)) },
}

func within(text string) (string, error) {
	if len(text) > maxComposed {
		return "", errComposedTooLong
	}
	return text, nil
}

func parseTemplate(text string) (*template.Template, error) {
	if text == "" {
		text = DefaultTemplate
	}
	parsed, err := template.New("data.compose.template").Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the template is broken: %w", err)
	}
	for _, part := range parsed.Templates() {
		countRounds(part.Root)
		countRound(part.Root)
	}
	return parsed, nil
}

// countRounds makes every round of the loops below a node write something, if only nothing.
func countRounds(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		var branch *parse.BranchNode
		switch node := node.(type) {
		case *parse.IfNode:
			branch = &node.BranchNode
		case *parse.WithNode:
			branch = &node.BranchNode
		case *parse.RangeNode:
			branch = &node.BranchNode
		default:
			continue
		}
		countRounds(branch.List)
		countRounds(branch.ElseList)
		if node.Type() == parse.NodeRange {
			countRound(branch.List)
		}
	}
}

func countRound(list *parse.ListNode) {
	list.Nodes = append([]parse.Node{&parse.TextNode{NodeType: parse.NodeText}}, list.Nodes...)
}

// fill makes the text of a composition; what it takes is bounded.
func fill(text *template.Template, questions []string) (string, error) {
	var written composedText
	if err := text.Execute(&written, struct{ Questions []string }{questions}); err != nil {
		return "", fmt.Errorf("the template cannot be filled in: %w", err)
	}
	return written.String(), nil
}
