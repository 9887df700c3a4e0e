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
	"reward":    {"model", "rollout"},
	"trainer":   {"advantage", "dataset", "model", "reward", "rollout"},
	"eval":      {"dataset", "model", "reward", "rollout"},
	"tools":     {"model"},
}

// exceptions are single packages that may import what their folder may not.
var exceptions = map[string][]string{
	"internal/lint": {"config"}, // it loads every shipped configuration
}

// importFault says what is wrong with an import in a file of the folder dir ("." for the root), or returns "".
func importFault(dir, imported string) string {
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
			if fault := importFault(path.Dir(file), imported); fault != "" {
				t.Errorf("%s %s", file, fault)
			}
		}
	}
}

func TestImportFault(t *testing.T) {
	cases := []struct {
		dir, imported string
		fault         bool
	}{
		{".", module + "/engine", false},
		{".", "C", true},
		{"engine", "C", false},
		{"engine", gotorch, false},
		{"engine", module + "/model/weights", false},
		{"engine", module + "/rollout", true},
		{"trainer", "C", true},
		{"trainer/checkpoint", gotorch + "/nn", true},
		{"trainer", module + "/engine", true},
		{"trainer/checkpoint", module + "/trainer/metrics", false},
		{"trainer", module + "/reward", false},
		{"reward", module + "/trainer", true},
		{"rollout", module + "/model/chat", false},
		{"rollout", module + "/reward", true},
		{"model/chat", module + "/model/tokenizer", false},
		{"model/chat", module + "/dataset", true},
		{"dataset", module + "/internal/jsonl", false},
		{"internal/jsonl", module + "/config", true},
		{"internal/lint", module + "/config", false},
		{"nowhere", module + "/model", true},
		{"advantage", "strings", false},
	}
	for _, c := range cases {
		if fault := importFault(c.dir, c.imported); (fault != "") != c.fault {
			t.Errorf("importFault(%q, %q) = %q, want a fault: %v", c.dir, c.imported, fault, c.fault)
		}
	}
}
