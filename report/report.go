// Package report makes one self-contained HTML file of a run folder: curves of what was measured,
// and the trajectories, to be read token by token. It takes a folder as it finds it: files that are
// missing, cut off or still being written are said in the page.
//
// Everything that comes from a run is hostile text. It gets into the page in two forms only, as
// JSON in which no '<' stands for itself and as base64, and the page's script inserts it as text
// nodes. A content security policy forbids the page every connection.
package report

import (
	"io"
	"path/filepath"

	"github.com/mempo-train/mempo-train/internal/durable"
)

// fileName is the name of the report in its run folder.
const fileName = "report.html"

// Write makes the report of a run folder and returns the path of the file in it, which is replaced
// as a whole. A folder that holds no run is a usage fault.
func Write(dir string) (path string, err error) {
	run, err := openFolder(dir)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, fileName)
	blocks, err := run.compressTrajectories(trajectoryBytes)
	if err != nil {
		return "", err
	}
	p := page{overview: run.overview(), blocks: blocks}
	if err := durable.WriteFile(path, func(w io.Writer) error { return p.write(w) }); err != nil {
		return "", err
	}
	return path, nil
}
