package retrieval

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ParsePassage reads a document from JSON: {"id", "contents"} or {"id", "title", "text"}, where
// the id is a string, a number or absent (""). Contents goes before title and text; of those the
// title may be absent. Other members are ignored. The error names the member that is wrong.
func ParsePassage(data []byte) (Passage, error) {
	var document struct {
		ID       json.RawMessage `json:"id"`
		Contents *string         `json:"contents"`
		Title    *string         `json:"title"`
		Text     *string         `json:"text"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return Passage{}, describe(err)
	}
	id, err := parseID(document.ID)
	if err != nil {
		return Passage{}, err
	}
	switch {
	case document.Contents != nil:
		return Passage{ID: id, Contents: *document.Contents}, nil
	case document.Text == nil:
		return Passage{}, fmt.Errorf("members %s, want \"contents\", or \"title\" and \"text\"", members(data))
	case document.Title == nil:
		return Passage{ID: id, Contents: *document.Text}, nil
	}
	return Passage{ID: id, Contents: quoted(*document.Title) + "\n" + *document.Text}, nil
}

// quoted puts a title into double quotes, unless it already has them.
func quoted(title string) string {
	if len(title) > 1 && strings.HasPrefix(title, `"`) && strings.HasSuffix(title, `"`) {
		return title
	}
	return `"` + title + `"`
}

func parseID(raw json.RawMessage) (string, error) {
	switch kind := kindOf(raw); kind {
	case "nothing", "null":
		return "", nil
	case "a number":
		return string(raw), nil
	case "a string":
		var id string
		err := json.Unmarshal(raw, &id)
		return id, err
	default:
		return "", fmt.Errorf("id is %s, want a string or a number", kind)
	}
}

// parseRetrieve reads {"result": [[document, …], …]} with one list per query. A document stands
// bare or as {"document": …}.
func parseRetrieve(body []byte, queries int) ([][]Passage, error) {
	lists, err := parseResult(body, queries)
	if err != nil {
		return nil, err
	}
	results := make([][]Passage, len(lists))
	for q, raw := range lists {
		var documents []json.RawMessage
		if kind := kindOf(raw); kind != "a list" {
			return nil, fmt.Errorf("result[%d] is %s, want a list of documents", q, kind)
		}
		if err := json.Unmarshal(raw, &documents); err != nil {
			return nil, err
		}
		results[q] = make([]Passage, len(documents))
		for d, raw := range documents {
			passage, err := parseDocument(raw)
			if err != nil {
				return nil, fmt.Errorf("result[%d][%d]: %w", q, d, err)
			}
			results[q][d] = passage
		}
	}
	return results, nil
}

func parseDocument(raw json.RawMessage) (Passage, error) {
	var wrapper struct {
		Document json.RawMessage `json:"document"`
	}
	if err := json.Unmarshal(raw, &wrapper); err != nil || kindOf(raw) != "an object" {
		return Passage{}, fmt.Errorf("is %s, want a document", kindOf(raw))
	}
	if kind := kindOf(wrapper.Document); kind == "nothing" {
		return ParsePassage(raw)
	} else if kind != "an object" {
		return Passage{}, fmt.Errorf("document is %s, want an object", kind)
	}
	return ParsePassage(wrapper.Document)
}

// parseAccess reads {"result": [{"page": "…"}]} with one page per address.
func parseAccess(body []byte, addresses int) ([]string, error) {
	results, err := parseResult(body, addresses)
	if err != nil {
		return nil, err
	}
	pages := make([]string, len(results))
	for k, raw := range results {
		var result struct {
			Page *string `json:"page"`
		}
		if err := json.Unmarshal(raw, &result); err != nil {
			return nil, fmt.Errorf("result[%d]: %w", k, describe(err))
		}
		if result.Page == nil {
			return nil, fmt.Errorf("result[%d]: members %s, want \"page\", a string", k, members(raw))
		}
		pages[k] = *result.Page
	}
	return pages, nil
}

// parseResult reads the list of want elements under "result".
func parseResult(body []byte, want int) ([]json.RawMessage, error) {
	var reply struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return nil, fmt.Errorf("%w, in %q", describe(err), firstBytes(body))
	}
	if kind := kindOf(reply.Result); kind == "nothing" {
		return nil, fmt.Errorf("members %s, want \"result\"", members(body))
	} else if kind != "a list" {
		return nil, fmt.Errorf("result is %s, want a list", kind)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(reply.Result, &list); err != nil {
		return nil, err
	}
	if len(list) != want {
		return nil, fmt.Errorf("result is a list of %d, want %d, one for each that was asked", len(list), want)
	}
	return list, nil
}

// describe puts an error of encoding/json into the words of the format.
func describe(err error) error {
	var wrongType *json.UnmarshalTypeError
	if !errors.As(err, &wrongType) {
		return fmt.Errorf("broken JSON: %w", err)
	}
	if wrongType.Field == "" {
		return fmt.Errorf("is a JSON %s, want an object", wrongType.Value)
	}
	return fmt.Errorf("%s is a JSON %s, want a string", wrongType.Field, wrongType.Value)
}

// kindOf names the type of a valid JSON value by its first byte.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a number"
}

// members lists the names in a JSON object, for messages.
func members(data []byte) string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil || len(object) == 0 {
		return "none"
	}
	const limit = 8
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, fmt.Sprintf("%q", firstBytes([]byte(name))))
	}
	slices.Sort(names)
	if len(names) > limit {
		names = append(names[:limit], "…")
	}
	return strings.Join(names, ", ")
}

// firstBytes is as much of a body as a message or a log line holds.
func firstBytes(body []byte) string {
	const limit = 200
	if len(body) > limit {
		return string(body[:limit]) + "…"
	}
	return string(body)
}
