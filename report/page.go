package report

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"strings"
)

//go:embed page
var pageFiles embed.FS

// scripts are the parts of the page's script in their order: they share one scope.
var scripts = []string{"dom.js", "charts.js", "overview.js", "results.js", "blocks.js", "trajectory.js", "browse.js", "find.js", "start.js"}

// page is the report as a whole.
type page struct {
	*overview
	blocks []*compressed
}

// write writes the page. The overview comes first, so that it shows while the trajectories are
// still being read.
func (p page) write(w io.Writer) error {
	style, err := pageFile("page.css")
	if err != nil {
		return err
	}
	body, err := pageFile("body.html")
	if err != nil {
		return err
	}
	script, err := wholeScript()
	if err != nil {
		return err
	}
	data, err := inScript(struct {
		*overview
		Blocks []*compressed `json:"blocks"`
	}{p.overview, p.blocks})
	if err != nil {
		return err
	}
	out := &writer{to: w}
	out.print("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	out.print(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src `, hash(style),
		"; script-src ", hash(script), "; base-uri 'none'; form-action 'none'\">\n")
	out.print("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n")
	out.print("<title>", html.EscapeString(strings.ToValidUTF8(p.Name, "\uFFFD")), " – mempo-train</title>\n<style>", style, "</style>\n</head>\n")
	out.print(body, `<script type="application/json" id="overview">`, data, "</script>\n<script>", script, "</script>\n")
	for k, b := range p.blocks {
		out.print(fmt.Sprintf(`<script type="text/plain" id="block-%d">`, k), string(b.data), "</script>\n")
	}
	out.print("</body>\n</html>\n")
	return out.err
}

func pageFile(name string) (string, error) {
	data, err := pageFiles.ReadFile("page/" + name)
	return string(data), err
}

func wholeScript() (string, error) {
	var whole strings.Builder
	whole.WriteString("(() => {\n'use strict';\n")
	for _, name := range scripts {
		text, err := pageFile(name)
		if err != nil {
			return "", err
		}
		whole.WriteString(text)
	}
	whole.WriteString("})();\n")
	return whole.String(), nil
}

// hash names a style or script for the content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// inScript is JSON that may stand in a script element: '<', '>' and '&' are escaped.
func inScript(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// writer remembers the first failure.
type writer struct {
	to  io.Writer
	err error
}

func (w *writer) print(texts ...string) {
	for _, text := range texts {
		if w.err == nil {
			_, w.err = io.WriteString(w.to, text)
		}
	}
}
