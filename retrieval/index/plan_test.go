package index

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// What could only fail when all the work is done is refused at the start.
func TestFoldersThatCannotBecomeAnIndex(t *testing.T) {
	empty := t.TempDir()
	t.Chdir(empty)
	other := t.TempDir()
	file := filepath.Join(other, "notes.txt")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		".": `the folder of the index cannot be "."`, "./": `cannot be "."`, "none/..": `cannot be "."`,
		other: "it is no index", file: "not a directory",
		empty: "", "none": "", "none/below": "",
	} {
		if err := CheckFolder(dir); want == "" && err != nil || want != "" && (fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
		if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
			t.Fatal(entries, err)
		}
	}
	for dir, want := range map[string]string{"..": "which nothing can be renamed to", "/": "which nothing can be renamed to", "/proc": "where a file system is mounted"} {
		if err := replaceable(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
	o, _ := buildOptions(t, nil)
	o.Dir = "."
	if _, err := Build(t.Context(), o); fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), "name a folder inside it") {
		t.Errorf("Build: %v", err)
	}
}
