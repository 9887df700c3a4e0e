package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// Write writes every key of a config as TOML that Load reads back to the same config.
func Write(w io.Writer, config *Config) error {
	out := *config
	return write(w, &out, out.texts())
}

// write writes out, a pointer to a struct of which texts are keys.
func write(w io.Writer, out any, texts []textKey) error {
	for _, t := range texts {
		if strings.HasPrefix(*t.value, "@") {
			*t.value = "@" + *t.value
		}
	}
	encoder := toml.NewEncoder(w)
	encoder.Indent = ""
	if err := encoder.Encode(out); err != nil {
		return fmt.Errorf("cannot write the config: %w", err)
	}
	return nil
}

// Difference is a key that two configs hold different values for.
type Difference struct {
	Key  string // dotted
	A, B string // as TOML
}

// String names the key and both values.
func (d Difference) String() string { return fmt.Sprintf("%s: %s → %s", d.Key, d.A, d.B) }

// Diff lists the keys whose values differ, in the order of the tables.
func Diff(a, b *Config) []Difference { return diff(a, b) }

// diff compares two pointers to structs of the same type.
func diff(a, b any) []Difference {
	var differences []Difference
	inB := entries(b)
	for k, e := range entries(a) {
		if !e.isTable() && e.list == "" && !reflect.DeepEqual(e.value.Interface(), inB[k].value.Interface()) {
			differences = append(differences, Difference{e.path(), literal(e.value), literal(inB[k].value)})
		}
	}
	return differences
}

// literal is a value as it stands in a TOML file.
func literal(value reflect.Value) string {
	if isListOfTables(value.Type()) {
		tables := make([]string, value.Len())
		for k := range tables {
			tables[k] = inline(value.Index(k))
		}
		return "[" + strings.Join(tables, ", ") + "]"
	}
	data, err := toml.Marshal(map[string]any{"v": value.Interface()})
	if err != nil {
		return fmt.Sprint(value.Interface())
	}
	return strings.TrimPrefix(strings.TrimSuffix(string(data), "\n"), "v = ")
}

// inline is a struct as a TOML table on one line.
func inline(table reflect.Value) string {
	keys := make([]string, table.NumField())
	for k := range keys {
		value := literal(table.Field(k))
		if table.Field(k).Kind() == reflect.Struct {
			value = inline(table.Field(k))
		}
		keys[k] = table.Type().Field(k).Tag.Get("toml") + " = " + value
	}
	return "{" + strings.Join(keys, ", ") + "}"
}
