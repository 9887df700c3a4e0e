package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// List is a list of strings, for which one string may stand alone.
type List []string

// UnmarshalTOML reads a string or a list of strings.
func (l *List) UnmarshalTOML(value any) error {
	switch value := value.(type) {
	case string:
		*l = List{value}
		return nil
	case []any:
		list := make(List, len(value))
		for k, element := range value {
			text, ok := element.(string)
			if !ok {
				return errors.New("holds more than strings")
			}
			list[k] = text
		}
		*l = list
		return nil
	}
	return errors.New("is no list of strings")
}

// problem is something wrong with a config, and the line it stands on.
type problem struct {
	line int
	text string
}

// reader fills a struct from TOML text and collects what does not fit. The library matches keys
// without regard to case and drops those it does not know; here both are errors.
type reader struct {
	meta     toml.MetaData
	all      []entry // that the file can hold
	lines    bool    // messages name the line
	problems []problem
}

// read fills target, a pointer to a struct, from text, which may set any of its keys. Problems are
// in the order of lines; a syntax error is the only one.
func read(text string, target any, lines bool) []problem {
	r := reader{all: entries(target), lines: lines}
	var top map[string]toml.Primitive
	var err error
	if r.meta, err = toml.Decode(text, &top); err != nil {
		return []problem{syntaxProblem(err)}
	}
	r.table(top, nil, reflect.ValueOf(target).Elem())
	slices.SortStableFunc(r.problems, func(a, b problem) int { return a.line - b.line })
	return r.problems
}

func syntaxProblem(err error) problem {
	var syntax toml.ParseError
	if errors.As(err, &syntax) {
		return problem{syntax.Position.Line, fmt.Sprintf("line %d: %s", syntax.Position.Line, syntax.Message)}
	}
	return problem{0, err.Error()}
}

// table fills the struct target, the table at path, with its entries.
func (r *reader) table(entries map[string]toml.Primitive, path []string, target reflect.Value) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		entry, here := entries[name], append(slices.Clone(path), name)
		field, ok := fieldNamed(target, name)
		if !ok {
			r.report(entry, func(at string) string { return unknown(r.all, here, r.isTable(here), at) })
			continue
		}
		r.value(entry, here, field)
	}
}

func (r *reader) value(entry toml.Primitive, path []string, field reflect.Value) {
	if isListOfTables(field.Type()) {
		r.list(entry, path, field)
		return
	}
	if field.Kind() != reflect.Struct {
		notAMap := field.Kind() == reflect.Map && !r.isTable(path) // the library takes anything for a map
		if err := r.meta.PrimitiveDecode(entry, field.Addr().Interface()); err != nil || notAMap {
			r.wrongType(entry, path, field)
		}
		return
	}
	var entries map[string]toml.Primitive
	if !r.isTable(path) || r.meta.PrimitiveDecode(entry, &entries) != nil {
		r.wrongType(entry, path, field)
		return
	}
	r.table(entries, path, field)
}

// list fills a list of tables. A key that an element leaves out has the default of elements.
func (r *reader) list(entry toml.Primitive, path []string, field reflect.Value) {
	var elements []map[string]toml.Primitive
	err := r.meta.PrimitiveDecode(entry, &elements)
	noTable := func(keys map[string]toml.Primitive) bool { return keys == nil } // the library takes anything for a map
	if err != nil || slices.ContainsFunc(elements, noTable) {
		r.wrongType(entry, path, field)
		return
	}
	field.Set(reflect.MakeSlice(field.Type(), 0, len(elements)))
	for _, keys := range elements {
		element := newElement(field.Type())
		r.table(keys, path, element)
		field.Set(reflect.Append(field, element))
	}
}

// isListOfTables tells whether a key of a Go type takes tables, as in [[data.mix]].
func isListOfTables(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// newElement is an element of a list of tables with its defaults, which the method setDefaults of a
// pointer to it fills in.
func newElement(list reflect.Type) reflect.Value {
	element := reflect.New(list.Elem())
	if d, ok := element.Interface().(interface{ setDefaults() }); ok {
		d.setDefaults()
	}
	return element.Elem()
}

func (r *reader) wrongType(entry toml.Primitive, path []string, field reflect.Value) {
	found := tomlNames[r.meta.Type(path...)]
	r.report(entry, func(at string) string {
		if want := wanted(field.Type()); want != found {
			return fmt.Sprintf("%s%s is %s, want %s", strings.Join(path, "."), at, found, want)
		}
		return fmt.Sprintf("%s%s holds other things than numbers", strings.Join(path, "."), at)
	})
}

// report adds a problem with the entry; text is given where it stands, for the message.
func (r *reader) report(entry toml.Primitive, text func(at string) string) {
	line, at := r.line(entry), ""
	if r.lines {
		at = fmt.Sprintf(" (line %d)", line)
	}
	r.problems = append(r.problems, problem{line, text(at)})
}

func (r *reader) isTable(path []string) bool {
	kind := r.meta.Type(path...)
	return kind == "Hash" || kind == "" // the library has no type for a table that only its sub-tables name
}

// line is where an entry stands. The library tells lines only in its errors, so it is made to give
// one. A table that is named by its sub-tables alone has the line of the first of them.
func (r *reader) line(entry toml.Primitive) int {
	var parse toml.ParseError
	if errors.As(r.meta.PrimitiveDecode(entry, &refuser{}), &parse) && parse.Position.Line > 0 {
		return parse.Position.Line
	}
	first := 0
	var entries map[string]toml.Primitive
	if r.meta.PrimitiveDecode(entry, &entries) == nil {
		for _, sub := range entries {
			if line := r.line(sub); first == 0 || line < first {
				first = line
			}
		}
	}
	return first
}

// refuser refuses every value.
type refuser struct{}

var errRefused = errors.New("refused")

// UnmarshalTOML fails.
func (*refuser) UnmarshalTOML(any) error { return errRefused }

// tomlNames says what the library's types are in words.
var tomlNames = map[string]string{
	"String": "a string", "Integer": "a whole number", "Float": "a number", "Bool": "true or false", "Datetime": "a date",
	"Array": "a list", "ArrayHash": "a list of tables", "Hash": "a table", "": "a table",
}

// wanted says in words what a key of a Go type takes.
func wanted(t reflect.Type) string {
	if isListOfTables(t) {
		return "a list of tables"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Struct:
		return "a table"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int {
			return "a list of whole numbers"
		}
		return "a list of strings"
	case reflect.Map:
		return "a table"
	case reflect.Array:
		return fmt.Sprintf("a list of %d numbers", t.Len())
	default:
		return "a whole number"
	}
}

// fieldNamed is the field of a struct with a TOML name.
func fieldNamed(table reflect.Value, name string) (reflect.Value, bool) {
	for k := range table.NumField() {
		if table.Type().Field(k).Tag.Get("toml") == name {
			return table.Field(k), true
		}
	}
	return reflect.Value{}, false
}
