package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// references are the documents that list the keys of a kind of file.
var references = []struct {
	document string
	root     string // the struct
	fresh    func() any
	validate func(any) error
	words    int // keys that take one of a few words, at least
}{
	{"docs/config.md", "Config", func() any { return Default() }, func(c any) error { return c.(*Config).Validate() }, 20},
	{"docs/sft.md", "SFT", func() any { return DefaultSFT() }, func(c any) error { return c.(*SFT).Validate() }, 4},
	{"docs/index.md", "Index", func() any { return DefaultIndex() }, func(c any) error { return c.(*Index).Validate() }, 3},
	{"docs/retrieval.md", "Retrieve", func() any { return DefaultRetrieve() }, func(c any) error { return c.(*Retrieve).Validate() }, 3},
	{"docs/world.md", "World", func() any { return DefaultWorld() }, func(c any) error { return c.(*World).Validate() }, 0},
}

// documentedKey is a row of a reference.
type documentedKey struct{ key, value, from, meaning string }

var documentedRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| (.+?) \\| (.+?) \\| (.+) \\|$")

func documentedKeys(t *testing.T, document string) []documentedKey {
	t.Helper()
	text, err := os.ReadFile("../" + document)
	if err != nil {
		t.Fatal(err)
	}
	var rows []documentedKey
	for _, match := range documentedRow.FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, documentedKey{match[1], strings.Trim(match[2], "`"), match[3], match[4]})
	}
	return rows
}

// origin reads the end of a key's comment, "default (where it comes from)".
var origin = regexp.MustCompile(`\((paper|source|verl|own)\)$`)

// origins says where the default of each key of a struct comes from, by the comments of the structs;
// "–" for a key without one.
func origins(t *testing.T, root string) map[string]string {
	t.Helper()
	structs := map[string]*ast.StructType{}
	for _, name := range []string{"config.go", "lora.go", "sft.go", "world.go", "retrieval.go", "tools.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if declared, ok := node.(*ast.TypeSpec); ok {
				if fields, ok := declared.Type.(*ast.StructType); ok {
					structs[declared.Name.Name] = fields
				}
			}
			return true
		})
	}
	found := map[string]string{}
	var walk func(name, path string)
	walk = func(name, path string) {
		for _, field := range structs[name].Fields.List {
			tag, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			key := strings.TrimPrefix(path+"."+reflect.StructTag(tag).Get("toml"), ".")
			fieldType := field.Type
			if list, ok := fieldType.(*ast.ArrayType); ok {
				fieldType = list.Elt
			}
			if inner, ok := fieldType.(*ast.Ident); ok && structs[inner.Name] != nil {
				walk(inner.Name, key)
			}
			if match := origin.FindStringSubmatch(strings.TrimSpace(field.Comment.Text())); match != nil {
				found[key] = match[1]
			} else {
				found[key] = "–"
			}
		}
	}
	walk(root, "")
	return found
}

// repeats tells a table whose keys are listed once elsewhere: [eval.tools] repeats [tools], and the
// columns of a source those of all.
func repeats(e entry) bool {
	return strings.HasPrefix(e.path(), "eval.tools.") || strings.HasPrefix(e.path(), "data.eval_mix.") || strings.HasPrefix(e.path(), "data.mix.fields.")
}

// A reference lists every key once, in the order of the structs, with its default and where that
// comes from.
func TestAReferenceListsEveryKey(t *testing.T) {
	for _, reference := range references {
		rows, from := documentedKeys(t, reference.document), origins(t, reference.root)
		next := 0
		for _, e := range entries(reference.fresh()) {
			if e.isTable() || repeats(e) {
				continue
			}
			if next == len(rows) || rows[next].key != e.path() {
				t.Fatalf("%s should be row %d of the keys in %s", e.path(), next+1, reference.document)
			}
			row := rows[next]
			next++
			if row.from != from[e.path()] {
				t.Errorf("%s: its default comes from %q in %s, from %q in the program", row.key, row.from, reference.document, from[row.key])
			}
			if row.value == "–" {
				if row.from != "–" {
					t.Errorf("%s has no default in %s, but one from %q", row.key, reference.document, row.from)
				}
				continue
			}
			documented := reference.fresh()
			if e.list != "" {
				if row.value != literal(e.value) {
					t.Errorf("%s: the default is %s in %s, %s in the program", row.key, row.value, reference.document, literal(e.value))
				}
				continue
			}
			if problems := read(row.key+" = "+row.value, documented, false); len(problems) > 0 {
				t.Errorf("%s: the default %s in %s is none: %s", row.key, row.value, reference.document, problems[0].text)
			} else if differences := diff(documented, reference.fresh()); len(differences) > 0 {
				t.Errorf("%s → the program: %s", reference.document, differences[0])
			}
		}
		if next != len(rows) {
			t.Errorf("%s has a row for %s, which is no key, or one at another place", reference.document, rows[next].key)
		}
	}
}

// Where a key takes one of a few words, its reference names each of them.
func TestAReferenceNamesEveryAllowedWord(t *testing.T) {
	allowed := regexp.MustCompile(`allowed: (("[^"]*"(, | or )?)+)`)
	word := regexp.MustCompile(`"[^"]*"`)
	for _, reference := range references {
		checked := 0
		for _, row := range documentedKeys(t, reference.document) {
			c := reference.fresh()
			if len(read(row.key+` = "no such word"`, c, false)) > 0 {
				continue // not a string
			}
			for violation := range strings.Lines(fmt.Sprint(reference.validate(c))) {
				if !strings.HasPrefix(violation, row.key+" is ") {
					continue
				}
				match := allowed.FindStringSubmatch(violation)
				if match == nil {
					continue
				}
				checked++
				for _, name := range word.FindAllString(match[1], -1) {
					if !strings.Contains(row.value+row.meaning, name) {
						t.Errorf("%s: %s may be %s, which its row does not say", reference.document, row.key, name)
					}
				}
			}
		}
		if checked < reference.words {
			t.Errorf("%s: only %d keys with a list of words were found", reference.document, checked)
		}
	}
}

// The run that the README shows in full loads, and says what the README's text says of it.
func TestTheReadmesRunLoads(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```toml\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 2 {
		t.Fatalf("README.md has %d blocks of TOML, want a run and the tables of a retrieval service", len(blocks))
	}
	run := loadText(t, blocks[0][1])
	if run.Run.Dir != "runs/first" || run.Tools.Search.Corpus != "data/corpus.jsonl" {
		t.Errorf("the run writes to %s and searches %s", run.Run.Dir, run.Tools.Search.Corpus)
	}
	service := loadText(t, strings.SplitN(blocks[0][1], "[tools.search]", 2)[0]+blocks[1][1])
	if service.Tools.Search.Backend != "http" || service.Tools.Access.URL == "" {
		t.Errorf("with the service: %+v", service.Tools)
	}
}

// The evaluation that its reference shows loads.
func TestTheEvaluationOfTheReferenceLoads(t *testing.T) {
	reference, err := os.ReadFile("../docs/eval.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```toml\n(.*?)```").FindSubmatch(reference)
	path := written(t, string(block[1]))
	if kind, err := KindOf(path); kind != KindEvaluation || err != nil {
		t.Errorf("it is a %s, %v", kind, err)
	}
	if _, err := LoadEvaluation(path, nil); err != nil {
		t.Error(err)
	}
}
