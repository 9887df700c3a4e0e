package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/ardanlabs/jinja"
)

// ownJSONFilter is what templates' tojson is renamed to: the engine's own filter, which cannot be
// replaced, sorts keys when it indents and knows no ensure_ascii or sort_keys.
const ownJSONFilter = "python_tojson"

// withOwnJSONFilter renames the filter tojson in the expressions and statements of a template,
// outside their string literals.
func withOwnJSONFilter(source string) string {
	var out strings.Builder
	for {
		open := strings.IndexByte(source, '{')
		if open < 0 || open+1 >= len(source) {
			out.WriteString(source)
			return out.String()
		}
		out.WriteString(source[:open])
		source = source[open:]
		end := 1
		switch source[1] {
		case '#':
			end = closerAfter(source, "#}", false)
		case '{':
			end = closerAfter(source, "}}", true)
		case '%':
			end = closerAfter(source, "%}", true)
		}
		if end == 1 || source[1] == '#' {
			out.WriteString(source[:end])
		} else {
			renameFilter(&out, source[:end])
		}
		source = source[end:]
	}
}

// closerAfter is the offset behind the closer of the tag that source begins with; quoted closers
// do not count if quotes is set.
func closerAfter(source, closer string, quotes bool) int {
	for k := 2; k < len(source); k++ {
		if quotes && (source[k] == '\'' || source[k] == '"') {
			k = literalEnd(source, k) - 1
			continue
		}
		if strings.HasPrefix(source[k:], closer) {
			return k + len(closer)
		}
	}
	return len(source)
}

// literalEnd is the offset behind the string literal that begins at source[at].
func literalEnd(source string, at int) int {
	for k := at + 1; k < len(source); k++ {
		switch source[k] {
		case '\\':
			k++
		case source[at]:
			return k + 1
		}
	}
	return len(source)
}

// renameFilter writes a tag with tojson behind a bar renamed.
func renameFilter(out *strings.Builder, tag string) {
	afterBar := false
	for k := 0; k < len(tag); {
		switch c := tag[k]; {
		case c == '\'' || c == '"':
			end := literalEnd(tag, k)
			out.WriteString(tag[k:end])
			k, afterBar = end, false
		case isNameByte(c) && c != '-':
			end := k
			for end < len(tag) && isNameByte(tag[end]) && tag[end] != '-' {
				end++
			}
			word := tag[k:end]
			if afterBar && word == "tojson" {
				word = ownJSONFilter
			}
			out.WriteString(word)
			k, afterBar = end, false
		default:
			out.WriteByte(c)
			afterBar = c == '|' || afterBar && (c == ' ' || c == '\t' || c == '\n' || c == '\r')
			k++
		}
	}
}

// jsonStyle are the keyword arguments of Python's json.dumps that templates use.
type jsonStyle struct {
	item, key string // separators
	indent    string // "" writes one line
	multiline bool
	ascii     bool // escape everything outside ASCII
	sorted    bool
}

// filterJSON is transformers' tojson filter: json.dumps with ensure_ascii false by default.
func filterJSON(args []jinja.Value, keywords map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Undefined(), errors.New("tojson has nothing to write")
	}
	style := jsonStyle{item: ", ", key: ": "}
	positions := []string{"ensure_ascii", "indent", "separators", "sort_keys"}
	if len(args)-1 > len(positions) {
		return jinja.Undefined(), fmt.Errorf("tojson takes %d arguments, got %d", len(positions), len(args)-1)
	}
	for k, value := range args[1:] {
		if err := style.set(positions[k], value); err != nil {
			return jinja.Undefined(), err
		}
	}
	// indent changes the default item separator, so the explicit ones come last.
	for _, name := range positions {
		if value, ok := keywords[name]; ok {
			if err := style.set(name, value); err != nil {
				return jinja.Undefined(), err
			}
		}
	}
	var out strings.Builder
	err := style.write(&out, args[0], 0)
	return jinja.NewString(out.String()), err
}

func (s *jsonStyle) set(name string, value jinja.Value) error {
	if value.IsNone() {
		return nil
	}
	switch name {
	case "ensure_ascii":
		s.ascii = value.IsTruthy()
	case "sort_keys":
		s.sorted = value.IsTruthy()
	case "indent":
		s.multiline, s.item = true, ","
		switch {
		case value.IsInt():
			s.indent = strings.Repeat(" ", int(max(0, value.AsInt())))
		case value.IsString():
			s.indent = value.AsString()
		default:
			return errors.New("tojson: indent is neither a number nor a text")
		}
	case "separators":
		if !value.IsList() || value.AsList().Len() != 2 || !value.AsList().Get(0).IsString() || !value.AsList().Get(1).IsString() {
			return errors.New("tojson: separators are not two texts")
		}
		s.item, s.key = value.AsList().Get(0).AsString(), value.AsList().Get(1).AsString()
	}
	return nil
}

func (s *jsonStyle) write(out *strings.Builder, value jinja.Value, depth int) error {
	switch {
	case value.IsNone():
		out.WriteString("null")
	case value.IsBool():
		out.WriteString(strconv.FormatBool(value.AsBool()))
	case value.IsInt():
		out.WriteString(strconv.FormatInt(value.AsInt(), 10))
	case value.IsFloat():
		out.WriteString(pythonFloat(value.AsFloat()))
	case value.IsString():
		s.writeString(out, value.AsString())
	case value.IsList():
		items := value.AsList().Items
		return s.writeItems(out, "[]", len(items), depth, func(k int) error {
			return s.write(out, items[k], depth+1)
		})
	case value.IsDict():
		dict := value.AsDict()
		keys := slices.Clone(dict.OrderedKeys())
		if s.sorted {
			slices.Sort(keys)
		}
		return s.writeItems(out, "{}", len(keys), depth, func(k int) error {
			s.writeString(out, keys[k])
			out.WriteString(s.key)
			item, _ := dict.Get(keys[k])
			return s.write(out, item, depth+1)
		})
	default:
		return errors.New("tojson: the value is undefined or a function")
	}
	return nil
}

// writeItems writes n items between a pair of brackets.
func (s *jsonStyle) writeItems(out *strings.Builder, brackets string, n, depth int, item func(k int) error) error {
	out.WriteByte(brackets[0])
	for k := range n {
		if k > 0 {
			out.WriteString(s.item)
		}
		s.newline(out, depth+1)
		if err := item(k); err != nil {
			return err
		}
	}
	if n > 0 {
		s.newline(out, depth)
	}
	out.WriteByte(brackets[1])
	return nil
}

func (s *jsonStyle) newline(out *strings.Builder, depth int) {
	if s.multiline {
		out.WriteByte('\n')
		out.WriteString(strings.Repeat(s.indent, depth))
	}
}

var jsonEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\f': `\f`, '\b': `\b`}

func (s *jsonStyle) writeString(out *strings.Builder, text string) {
	out.WriteByte('"')
	for _, r := range text {
		escape, special := jsonEscapes[r]
		switch {
		case special:
			out.WriteString(escape)
		case r < ' ' || s.ascii && r >= 0x7f && r < 0x10000:
			fmt.Fprintf(out, `\u%04x`, r)
		case s.ascii && r >= 0x10000:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}

// pythonFloat is Python's repr of a float: the shortest digits, plain between 1e-4 and 1e16.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
