package web

import (
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// leastMain is the text, in bytes, from which a page's <main> element stands for the page.
const leastMain = 200

// HTMLText is what a reader sees of a page, as lines: its title, then the text of its <main> element
// where there is one that says something, else of all of it. Each block has a line of its own; items
// of lists begin with "- ", cells of a table row stand between bars. Scripts, styles, templates,
// navigation, form fields and what is hidden are left out. The page is read tag by tag, without
// a tree: the time is linear in its length, however deep it nests, and broken pages have a text, too.
func HTMLText(page string) string {
	r := htmlReader{tokens: html.NewTokenizer(strings.NewReader(page)), mainStart: -1, mainEnd: -1}
	for r.next() {
	}
	return r.text()
}

// htmlReader writes the text of a page while it reads its tags.
type htmlReader struct {
	tokens *html.Tokenizer
	out    strings.Builder
	title  strings.Builder

	inTitle bool
	skipped element // what is inside this element is left out
	main    element
	pre     element // white space counts inside

	mainStart, mainEnd int    // of the first main element in out; -1 for none
	newline            bool   // a line ends before the next word
	space              bool   // white space before it
	lead               string // what its line begins with
}

// element follows an open element to its end, over elements of the same name inside it.
type element struct {
	name  string // "" for none
	depth int
}

func (e *element) open(name string) {
	switch e.name {
	case "":
		e.name, e.depth = name, 1
	case name:
		e.depth++
	}
}

// close reports whether the end of a tag named so ends the element.
func (e *element) close(name string) bool {
	if e.name != name || name == "" {
		return false
	}
	if e.depth--; e.depth > 0 {
		return false
	}
	e.name = ""
	return true
}

// next reads a token, and reports whether there was one.
func (r *htmlReader) next() bool {
	switch r.tokens.Next() {
	case html.ErrorToken:
		return false
	case html.TextToken:
		r.words(r.tokens.Text())
	case html.StartTagToken, html.SelfClosingTagToken:
		r.start(r.tokens.Token())
	case html.EndTagToken:
		name, _ := r.tokens.TagName()
		r.end(string(name))
	}
	return true
}

func (r *htmlReader) start(tag html.Token) {
	void := voidTags[tag.DataAtom] || tag.Type == html.SelfClosingTagToken && foreignTags[tag.DataAtom]
	if r.skipped.name == "p" && blockTags[tag.DataAtom] { // which ends a paragraph
		r.skipped = element{}
	}
	if r.skipped.name != "" {
		if !void {
			r.skipped.openSame(tag.Data)
		}
		return
	}
	if !void && (droppedTags[tag.DataAtom] || hidden(tag.Attr)) {
		r.skipped.open(tag.Data)
		r.breakAt(tag.DataAtom)
		return
	}
	r.inTitle = tag.DataAtom == atom.Title && r.title.Len() == 0
	r.breakAt(tag.DataAtom)
	switch tag.DataAtom {
	case atom.Li:
		r.lead = "- "
	case atom.Td, atom.Th:
		r.cell()
	case atom.Pre:
		r.pre.open(tag.Data)
	}
	r.startMain(tag)
}

// openSame counts an element inside one of the same name.
func (e *element) openSame(name string) {
	if e.name == name {
		e.depth++
	}
}

// startMain notes where the first main element begins.
func (r *htmlReader) startMain(tag html.Token) {
	switch {
	case r.main.name != "":
		r.main.openSame(tag.Data)
	case r.mainStart < 0 && !voidTags[tag.DataAtom] && (tag.DataAtom == atom.Main || attribute(tag.Attr, "role") == "main"):
		r.main.open(tag.Data)
		r.newline, r.mainStart = true, r.out.Len()
	}
}

func (r *htmlReader) end(name string) {
	if r.skipped.name != "" {
		r.skipped.close(name)
		return
	}
	r.inTitle = false
	r.pre.close(name)
	if r.main.close(name) {
		r.newline, r.mainEnd = true, r.out.Len()
	}
	r.breakAt(atom.Lookup([]byte(name)))
}

// breakAt ends the line at the border of a block, and the word at that of a cell.
func (r *htmlReader) breakAt(tag atom.Atom) {
	if blockTags[tag] {
		r.newline, r.lead = true, ""
	}
}

// cell begins a cell of a table row: the first one at the beginning of the line.
func (r *htmlReader) cell() {
	if !r.newline && r.out.Len() > 0 {
		r.lead = " | "
	}
}

// words writes text, with white space as a page shows it.
func (r *htmlReader) words(text []byte) {
	if r.skipped.name != "" {
		return
	}
	if r.inTitle {
		r.title.Write(text)
		return
	}
	for _, c := range strings.ToValidUTF8(string(text), "\uFFFD") {
		switch {
		case c == '\n' && r.pre.name != "":
			r.newline = true
		case unicode.IsSpace(c):
			r.space = true
		case !unicode.IsControl(c) && c != '\u200b' && c != '\u00ad' && c != '\ufeff':
			r.write(c)
		}
	}
}

// write writes a character behind what has to stand before it.
func (r *htmlReader) write(c rune) {
	switch {
	case r.newline && r.out.Len() > 0:
		r.out.WriteString("\n" + r.lead)
	case r.lead != "":
		r.out.WriteString(r.lead)
	case r.space && r.out.Len() > 0:
		r.out.WriteByte(' ')
	}
	r.newline, r.space, r.lead = false, false, ""
	r.out.WriteRune(c)
}

// text puts the title before what was written.
func (r *htmlReader) text() string {
	body := r.out.String()
	if r.mainStart >= 0 {
		end := r.mainEnd
		if end < r.mainStart {
			end = len(body)
		}
		if main := strings.TrimSpace(body[r.mainStart:end]); len(main) >= leastMain {
			body = main
		}
	}
	title := strings.Join(strings.Fields(printable(r.title.String())), " ")
	return strings.TrimSpace(title + "\n" + body)
}

// hidden reports whether attributes keep an element from being shown.
func hidden(attributes []html.Attribute) bool {
	for _, a := range attributes {
		switch a.Key {
		case "hidden":
			return true
		case "aria-hidden":
			return strings.EqualFold(strings.TrimSpace(a.Val), "true")
		case "style":
			style := strings.ToLower(strings.Join(strings.Fields(a.Val), ""))
			if strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden") {
				return true
			}
		}
	}
	return false
}

func attribute(attributes []html.Attribute, name string) string {
	for _, a := range attributes {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func tags(atoms ...atom.Atom) map[atom.Atom]bool {
	set := make(map[atom.Atom]bool, len(atoms))
	for _, a := range atoms {
		set[a] = true
	}
	return set
}

var (
	// droppedTags hold what is no text of the page.
	droppedTags = tags(atom.Script, atom.Style, atom.Template, atom.Noscript, atom.Iframe, atom.Object, atom.Svg, atom.Math,
		atom.Canvas, atom.Audio, atom.Video, atom.Select, atom.Button, atom.Textarea, atom.Datalist, atom.Nav, atom.Footer)
	// blockTags begin and end lines.
	blockTags = tags(atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Body, atom.Br, atom.Caption, atom.Center,
		atom.Dd, atom.Details, atom.Dialog, atom.Dir, atom.Div, atom.Dl, atom.Dt, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer,
		atom.Form, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Header, atom.Hgroup, atom.Hr, atom.Legend, atom.Li,
		atom.Main, atom.Menu, atom.Nav, atom.Ol, atom.P, atom.Pre, atom.Section, atom.Summary, atom.Table, atom.Tbody, atom.Tfoot,
		atom.Thead, atom.Title, atom.Tr, atom.Ul)
	// voidTags have no content and no end.
	voidTags = tags(atom.Area, atom.Base, atom.Br, atom.Col, atom.Embed, atom.Hr, atom.Img, atom.Input, atom.Link, atom.Meta,
		atom.Param, atom.Source, atom.Track, atom.Wbr)
	// foreignTags may close themselves.
	foreignTags = tags(atom.Svg, atom.Math)
)
