package dataset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// record is one row. Values are what JSON has (nil, bool, string, numbers, []any, map[string]any);
// Parquet adds []byte.
type record struct {
	columns []string // sorted
	broken  bool     // the row held bytes that are not UTF-8; values have U+FFFD in their place
	untyped bool     // every value is a string, whatever it stands for
	value   func(column string) (v any, ok bool, err error)
}

// lookup finds the value at a dotted path; a column whose own name holds the dots goes first. A
// null is not found.
func (r record) lookup(path string) (any, bool, error) {
	v, ok, err := r.value(path)
	if err != nil || (ok && v != nil) {
		return v, ok, err
	}
	head, rest, nested := strings.Cut(path, ".")
	if !nested {
		return nil, false, nil
	}
	v, ok, err = r.value(head)
	if err != nil || !ok {
		return nil, false, err
	}
	for step := range strings.SplitSeq(rest, ".") {
		if v = child(v, step); v == nil {
			return nil, false, nil
		}
	}
	return v, true, nil
}

// child is the member of an object or the element of a list that step names, or nil.
func child(v any, step string) any {
	switch v := v.(type) {
	case map[string]any:
		return v[step]
	case []any:
		if k, err := strconv.Atoi(step); err == nil && k >= 0 && k < len(v) {
			return v[k]
		}
	}
	return nil
}

// text is the string in v.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}

// describe says in a few words what a value is, for messages.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "the string " + quote(v)
	case []byte:
		return "the string " + quote(string(v))
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "an object"
	case json.Number:
		return "the number " + shorten(v.String())
	}
	return shorten(fmt.Sprintf("the number %v", v))
}

func shorten(s string) string {
	const limit = 60
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

// spelled puts U+FFFD in the place of what is not UTF-8 in a question, as JSON does, and refuses golden
// answers that hold it, which no answer would match.
func (r record) spelled(q *Question) error {
	for _, t := range []*string{&q.Text, &q.ID, &q.Source} {
		if !utf8.ValidString(*t) {
			*t = string([]rune(*t))
		}
	}
	for _, answer := range slices.Concat(q.Objectives...) {
		if !utf8.ValidString(answer) || r.broken && strings.ContainsRune(answer, utf8.RuneError) {
			return fmt.Errorf("the golden answer %s holds bytes that are not UTF-8", quote(answer))
		}
	}
	return nil
}

// named is a name out of a file for messages: in quotes where a terminal would not show it as it is.
func named(s string) string {
	if s = shorten(s); !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// quote makes the start of any text fit for a message.
func quote(s string) string { return strconv.Quote(shorten(s)) }
