package dataset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The roles of a demonstration's messages.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Demonstration is one conversation to learn from: a system message or none, then user and
// assistant in turns, an assistant message last.
type Demonstration struct {
	Place    string `json:"-"` // file and row, for messages
	Messages []DemonstrationMessage
}

// DemonstrationMessage is one message of a demonstration.
type DemonstrationMessage struct {
	Role    string
	Content string
	Trained bool   // an assistant message that is learned from: its weight is not 0
	Prefix  string // of an assistant message: what it begins with and is context only
}

// DemonstrationSet is a checked set of demonstrations in the order of its files.
type DemonstrationSet struct {
	Demonstrations []Demonstration
	Hash           string // SHA-256, in hex, of every demonstration as read
}

const (
	columnMessages       = "messages"
	demonstrationExample = `{"messages": [{"role": "user", "content": "What is the capital of Peru?"}, {"role": "assistant", "content": "<mem></mem><think>I know it.</think><answer>Lima</answer>"}]}`
)

// LoadDemonstrations reads and checks one or more files of demonstrations, or patterns of their names
// (see Expand), as one set. A file is JSONL, one JSON array or Parquet, told apart by its first bytes. A row is {"messages": […]},
// other columns are not read; a message is {"role", "content"} and, of the assistant, optional
// "weight" (1; 0: context only, not learned from) and "prefix" (text of the same turn that stands
// before content and is context only). A null counts as absent.
func LoadDemonstrations(paths []string) (*DemonstrationSet, error) {
	if len(paths) == 0 {
		return nil, errors.New("no demonstration file given")
	}
	files, err := Expand(paths)
	if err != nil {
		return nil, fmt.Errorf("demonstration file: %w", err)
	}
	set := &DemonstrationSet{}
	for _, path := range files {
		err := readFile(path, content{
			name: "demonstration", example: demonstrationExample, columns: []string{columnMessages},
			add: func(rec record, at place) error {
				messages, err := readMessages(rec)
				set.Demonstrations = append(set.Demonstrations, Demonstration{at.String(), messages})
				return err
			},
		})
		if err != nil {
			return nil, err
		}
	}
	set.Hash = hash(set.Demonstrations)
	return set, nil
}

func readMessages(rec record) ([]DemonstrationMessage, error) {
	v, found, err := rec.lookup(columnMessages)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("no %s; columns found: %s; a right row: %s", columnMessages, listColumns(rec.columns), demonstrationExample)
	case rec.broken:
		return nil, errors.New("holds bytes that are not UTF-8")
	}
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf(`%s is %s, want a list of {"role", "content"}`, columnMessages, describe(v))
	}
	messages := make([]DemonstrationMessage, len(list))
	for k, element := range list {
		if messages[k], err = readMessage(element); err != nil {
			return nil, fmt.Errorf("%s.%d%w", columnMessages, k, err)
		}
	}
	return messages, checkTurns(messages)
}

// messageKeys are the keys of a message.
var messageKeys = []string{"role", "content", "weight", "prefix"}

// readMessage reads one message; its errors continue the name of the message.
func readMessage(v any) (DemonstrationMessage, error) {
	var m DemonstrationMessage
	object, ok := v.(map[string]any)
	if !ok {
		return m, fmt.Errorf(` is %s, want {"role", "content"}`, describe(v))
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if object[key] != nil && !slices.Contains(messageKeys, key) {
			return m, fmt.Errorf(" has the key %s, allowed are %s", quote(key), strings.Join(messageKeys, ", "))
		}
	}
	for _, field := range []struct {
		key string
		to  *string
	}{{"role", &m.Role}, {"content", &m.Content}, {"prefix", &m.Prefix}} {
		value := object[field.key]
		if value == nil && field.key == "prefix" {
			continue
		}
		if *field.to, ok = text(value); !ok {
			return m, fmt.Errorf(".%s is %s, want a string", field.key, describe(value))
		}
		if !utf8.ValidString(*field.to) {
			return m, fmt.Errorf(".%s holds bytes that are not UTF-8", field.key)
		}
	}
	return m, m.readWeight(object["weight"])
}

// readWeight takes the weight and checks that the message's keys go with its role.
func (m *DemonstrationMessage) readWeight(v any) error {
	switch {
	case m.Role != RoleSystem && m.Role != RoleUser && m.Role != RoleAssistant:
		return fmt.Errorf(".role is %s, allowed are %s, %s and %s", quote(m.Role), RoleSystem, RoleUser, RoleAssistant)
	case m.Role != RoleAssistant && v != nil:
		return fmt.Errorf(".weight belongs to messages of the %s, this one is of the %s", RoleAssistant, m.Role)
	case m.Role != RoleAssistant && m.Prefix != "":
		return fmt.Errorf(".prefix belongs to messages of the %s, this one is of the %s", RoleAssistant, m.Role)
	case v == nil:
		m.Trained = m.Role == RoleAssistant
		return nil
	}
	weight, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	if _, isText := text(v); isText || err != nil || weight != 0 && weight != 1 {
		return fmt.Errorf(".weight is %s, allowed are 0 and 1", describe(v))
	}
	m.Trained = weight == 1
	return nil
}

// checkTurns checks the order of the messages, and that there is something to learn.
func checkTurns(messages []DemonstrationMessage) error {
	trained := false
	want := RoleUser
	for k, m := range messages {
		if m.Role != want && !(k == 0 && m.Role == RoleSystem) {
			return fmt.Errorf("%s.%d.role is %s, want %s: a system message may come first, then user and assistant take turns",
				columnMessages, k, quote(m.Role), quote(want))
		}
		blank := strings.TrimSpace(m.Content) == ""
		if blank && (m.Role == RoleUser || m.Trained) {
			return fmt.Errorf("%s.%d.content is blank", columnMessages, k)
		}
		trained = trained || m.Trained
		want = RoleUser
		if m.Role == RoleUser {
			want = RoleAssistant
		}
	}
	if last := messages[len(messages)-1]; last.Role != RoleAssistant {
		return fmt.Errorf("the last message has the role %s, want %s", quote(last.Role), quote(RoleAssistant))
	}
	if !trained {
		return errors.New("every assistant message has weight 0: there is nothing to learn")
	}
	return nil
}
