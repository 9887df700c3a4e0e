package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// Limits above which a file or a function can no longer be taken in at one go. The aim is 400 and 60; tests, which are
// read case by case, may be longer.
const (
	maxFileLines     = 500
	maxTestFileLines = 700
	maxFunctionLines = 70
)

// longFunctions returns the functions of a Go file that are longer than limit lines, as "name (lines)".
func longFunctions(name, text string, limit int) ([]string, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var long []string
	for _, declaration := range tree.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := set.Position(function.End()).Line - set.Position(function.Pos()).Line + 1
		if lines > limit {
			long = append(long, fmt.Sprintf("%s (%d lines)", function.Name.Name, lines))
		}
	}
	return long, nil
}

func TestFilesStayReadable(t *testing.T) {
	for _, file := range sourceFiles(t, ".go", ".cpp", ".h", ".cu", ".py", ".sh", ".mk") {
		text := read(t, file)
		if generated(text) {
			continue
		}
		limit := maxFileLines
		if strings.HasSuffix(file, "_test.go") {
			limit = maxTestFileLines
		}
		if lines := strings.Count(text, "\n"); lines > limit {
			t.Errorf("%s has %d lines, more than %d", file, lines, limit)
		}
	}
}

func TestFunctionsStayReadable(t *testing.T) {
	for _, file := range sourceFiles(t, ".go") {
		// Tables of cases are long, and that is what they are for.
		text := read(t, file)
		if strings.HasSuffix(file, "_test.go") || generated(text) {
			continue
		}
		long, err := longFunctions(file, text, maxFunctionLines)
		if err != nil {
			t.Error(err)
		}
		for _, function := range long {
			t.Errorf("%s: %s is longer than %d lines", file, function, maxFunctionLines)
		}
	}
}

// generated reports whether a Go file says of itself that a program wrote it.
func generated(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	return strings.HasPrefix(first, "// Code generated ") && strings.HasSuffix(first, " DO NOT EDIT.")
}

func TestLongFunctions(t *testing.T) {
	text := "package p\n\nfunc short() {\n}\n\nfunc long() {\n\n\n}\n"
	long, err := longFunctions("p.go", text, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(long) != 1 || long[0] != "long (4 lines)" {
		t.Errorf("longFunctions = %v, want [long (4 lines)]", long)
	}
}
