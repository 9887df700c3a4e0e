//go:build browser

package report

import (
	"fmt"
	"testing"
)

func TestBrowserPictures(t *testing.T) {
	path, err := Write(makeRun(t, shape{steps: 20, questions: 8, group: 16, turns: 3, text: ordinary}))
	must(t, err)
	b := openTab(t, path)
	for _, width := range []int64{1280, 390} {
		for _, dark := range []bool{false, true} {
			b.look(width, dark)
			b.open("")
			b.picture(fmt.Sprintf("%d-%v", width, dark))
		}
	}
}
