package eval

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/rollout"
)

// The references name every key of results.json and every figure.
func TestTheReferencesNameEveryKeyAndFigure(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	reference, metrics := read("../docs/eval.md"), read("../docs/metrics.md")
	for _, kind := range []any{Results{}, Model{}, Data{}, Result{}, Group{}, Figures{}, Answer{}} {
		for field := range reflect.TypeOf(kind).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(kind).Field(field).Tag.Get("json"), ",")
			if name != "" && name != "-" && !strings.Contains(reference, "`"+name+"`") {
				t.Errorf("docs/eval.md does not name %s of %T", name, kind)
			}
		}
	}
	for _, figure := range (&Figures{Score: new(rollout.Number), PassAtK: make([]rollout.Number, 1)}).List() {
		name := strings.Replace(figure.Name, "pass_at_1", "pass_at_<k>", 1)
		if !strings.Contains(metrics, "\n- `"+name+"`: ") {
			t.Errorf("docs/metrics.md does not name the figure %s", figure.Name)
		}
	}
}
