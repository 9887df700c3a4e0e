package lint

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module  = "github.com/mempo-train/mempo-train"
	gotorch = "github.com/wangkuiyi/gotorch"
)

// allowed names, for each top-level folder, the others that it may import. Every folder may import its own sub-packages
// and the helpers in internal; package main (".") may import everything. The direction is one way: the device (engine)
// is met only through the interfaces of model, so that all but engine and main build without libtorch.
var allowed = map[string][]string{
	"advantage": {},
	"config":    {},
	"configs":   {},
	"dataset":   {},
	"internal":  {},
	"model":     {},
	"retrieval": {},
	"engine":    {"model"},
	"rollout":   {"dataset", "model", "retrieval"},
	"reward":    {"dataset", "model", "rollout"},
	"trainer":   {"advantage", "dataset", "model", "reward", "rollout"},
	"eval":      {"dataset", "model", "reward", "rollout"},
	"world":     {"model", "retrieval", "rollout"},
	"report":    {"eval", "model", "rollout", "trainer"},
	"bench":     {"dataset", "model", "retrieval", "reward", "rollout", "trainer"},
	"tools":     {"model"},
}

// exceptions are single packages that may import what their folder may not.
var exceptions = map[string][]string{
	"internal/lint": {"config"}, // it loads every shipped configuration
}

// below returns every folder that top reaches through allowed, directly or by way of others.
func below(top string) []string {
	var reached []string
	for _, next := range allowed[top] {
		reached = append(reached, next)
		reached = append(reached, below(next)...)
	}
	return reached
}

// importFault says what is wrong with an import in a Go file, given relative to the root, or returns "". Tests may also
// import what lies below their package at any depth, to put a fake in its place.
func importFault(file, imported string) string {
	dir := path.Dir(file)
	top, _, _ := strings.Cut(dir, "/")
	if imported == "C" || imported == gotorch || strings.HasPrefix(imported, gotorch+"/") {
		if top != "engine" {
			return fmt.Sprintf("imports %q; only engine may", imported)
		}
		return ""
	}
	ours, found := strings.CutPrefix(imported, module+"/")
	if !found || top == "." {
		return ""
	}
	target, _, _ := strings.Cut(ours, "/")
	may, known := allowed[top]
	if strings.HasSuffix(file, "_test.go") {
		may = below(top)
	}
	switch {
	case !known:
		return fmt.Sprintf("folder %s has no entry in the table of import directions", top)
	case target == top, target == "internal", slices.Contains(may, target), slices.Contains(exceptions[dir], target):
		return ""
	}
	return fmt.Sprintf("imports %s; %s may import only %v of ours", ours, top, may)
}

func TestImportsGoOneWay(t *testing.T) {
	for _, file := range sourceFiles(t, ".go") {
		tree, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, spec := range tree.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if fault := importFault(file, imported); fault != "" {
				t.Errorf("%s %s", file, fault)
			}
		}
	}
}

func TestImportFault(t *testing.T) {
	cases := []struct {
		file, imported string
		fault          bool
	}{
		{"a.go", module + "/engine", false},
		{"a.go", "C", true},
		{"engine/a.go", "C", false},
		{"engine/a.go", gotorch, false},
		{"engine/a.go", module + "/model/weights", false},
		{"engine/a.go", module + "/rollout", true},
		{"trainer/a.go", "C", true},
		{"trainer/checkpoint/a.go", gotorch + "/nn", true},
		{"trainer/a.go", module + "/engine", true},
		{"trainer/checkpoint/a.go", module + "/trainer/metrics", false},
		{"trainer/a.go", module + "/reward", false},
		{"trainer/a.go", module + "/retrieval", true},
		{"trainer/a_test.go", module + "/retrieval", false},
		{"trainer/a_test.go", module + "/engine", true},
		{"trainer/a_test.go", module + "/config", true},
		{"reward/a.go", module + "/trainer", true},
		{"rollout/a.go", module + "/model/chat", false},
		{"rollout/a.go", module + "/reward", true},
		{"model/chat/a.go", module + "/model/tokenizer", false},
		{"model/chat/a.go", module + "/dataset", true},
		{"dataset/a.go", module + "/internal/jsonl", false},
		{"internal/jsonl/a.go", module + "/config", true},
		{"internal/lint/a.go", module + "/config", false},
		{"nowhere/a.go", module + "/model", true},
		{"advantage/a.go", "strings", false},
	}
	for _, c := range cases {
		if fault := importFault(c.file, c.imported); (fault != "") != c.fault {
			t.Errorf("importFault(%q, %q) = %q, want a fault: %v", c.file, c.imported, fault, c.fault)
		}
	}
}
