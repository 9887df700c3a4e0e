package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// entry is a key or a table that a file can hold.
type entry struct {
	table string // dotted name of the table it stands in, "" for the file itself
	name  string
	value reflect.Value // of a key of a list's elements: its default
	list  string        // dotted name of the list of tables whose elements have it, "" for none
}

func (e entry) path() string {
	if e.table == "" {
		return e.name
	}
	return e.table + "." + e.name
}

func (e entry) isTable() bool { return e.value.Kind() == reflect.Struct }

// entries lists everything a file of target's kind, a pointer to a struct, can hold: tables before
// their keys, in the order of the structs. A list of tables is followed by the keys of an element.
func entries(target any) []entry { return below(reflect.ValueOf(target).Elem(), "", "") }

func below(table reflect.Value, path, list string) []entry {
	var found []entry
	for k := range table.NumField() {
		e := entry{path, table.Type().Field(k).Tag.Get("toml"), table.Field(k), list}
		found = append(found, e)
		switch {
		case e.isTable():
			found = append(found, below(e.value, e.path(), list)...)
		case isListOfTables(e.value.Type()):
			found = append(found, below(newElement(e.value.Type()), e.path(), e.path())...)
		}
	}
	return found
}

// unknown says that there is nothing at path, and which of all entries may have been meant. at is
// where it stands.
func unknown(all []entry, path []string, isTable bool, at string) string {
	name, table := path[len(path)-1], strings.Join(path[:len(path)-1], ".")
	kind := "key"
	if isTable {
		kind = "table"
	}
	text := fmt.Sprintf("unknown %s %s%s", kind, name, at)

	// [eval.tools] repeats [tools]: only the one that is being written is worth naming
	repeated := "eval.tools."
	if strings.HasPrefix(table+".", repeated) {
		repeated = "tools."
	}
	var same, other []entry
	for _, e := range all {
		switch {
		case e.isTable() != isTable || strings.HasPrefix(e.path(), repeated):
		case e.table == table:
			same = append(same, e)
		default:
			other = append(other, e)
		}
	}
	if best, ok := nearest(name, same, 1); ok {
		return fmt.Sprintf("%s; did you mean %s?", text, best.name)
	}
	if places := placesOf(name, other); len(places) > 0 {
		return fmt.Sprintf("%s; %s belongs %s", text, name, strings.Join(places, " or "))
	}
	if best, ok := nearest(name, same, len(name)/3); ok {
		return fmt.Sprintf("%s; did you mean %s?", text, best.name)
	}
	if best, ok := nearest(name, other, len(name)/3); ok {
		return fmt.Sprintf("%s; did you mean %s? It belongs %s", text, best.name, place(best.table))
	}
	return text
}

func place(table string) string {
	if table == "" {
		return "at the top"
	}
	return "under " + table
}

// placesOf says where there is an entry of this name.
func placesOf(name string, candidates []entry) []string {
	var places []string
	for _, e := range candidates {
		switch {
		case e.name != name:
		case len(places) == 0:
			places = append(places, place(e.table))
		default:
			places = append(places, e.table)
		}
	}
	return places
}

// nearest is the entry whose name takes the fewest changes, at most so many.
func nearest(name string, candidates []entry, most int) (best entry, ok bool) {
	for _, e := range candidates {
		if changes := distance(name, e.name); changes < most || changes == most && !ok {
			best, most, ok = e, changes, true
		}
	}
	return best, ok
}

// distance is the number of characters to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = slices.Min([]int{replace, row[j] + 1, row[j+1] + 1})
		}
	}
	return row[len(b)]
}
