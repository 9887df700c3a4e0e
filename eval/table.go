package eval

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// WriteTable writes the figures of all contexts for people: for each a line of all questions, and one
// for each group where there are several of its kind.
func (r *Results) WriteTable(w io.Writer) error {
	var rows [][]string
	for _, result := range r.Contexts {
		if rows == nil {
			rows = append(rows, titles(&result.Overall))
		}
		rows = append(rows, row(string(result.Context), result.wholeName(), &result.Overall))
		for _, group := range result.Groups {
			if result.groups(group.By) > 1 {
				rows = append(rows, row(string(result.Context), group.name(), &group.Figures))
			}
		}
	}
	return writeAligned(w, rows, 2)
}

// WriteComparison writes how the figures of all questions differ from earlier ones, in the contexts
// that both have, and which settings differ.
func (r *Results) WriteComparison(w io.Writer, before *Results) error {
	changes, err := r.changed(before)
	if err != nil {
		return err
	}
	rows := [][]string{{"context", "figure", "before", "after", "difference"}}
	for _, result := range r.Contexts {
		earlier := before.in(result.Context)
		if earlier == nil {
			continue
		}
		old := earlier.Overall.List()
		for _, figure := range result.Overall.List() {
			k := slices.IndexFunc(old, func(o Figure) bool { return o.Name == figure.Name })
			if k < 0 || !shown(figure.Name) {
				continue
			}
			rows = append(rows, []string{
				string(result.Context), title(figure.Name), old[k].text(), figure.text(),
				Figure{Value: figure.Value - old[k].Value, form: strings.Replace(figure.form, "%", "%+", 1)}.text(),
			})
		}
	}
	if err := writeAligned(w, rows, 2); err != nil {
		return err
	}
	for _, change := range changes {
		if _, err := fmt.Fprintf(w, "changed since: %s\n", change); err != nil {
			return err
		}
	}
	return nil
}

// wholeName names all questions: by their source where that is one and known.
func (r *Result) wholeName() string {
	for _, group := range r.Groups {
		if group.By == BySource && r.groups(BySource) == 1 {
			return group.name()
		}
	}
	return "all"
}

// groups counts the groups of a kind.
func (r *Result) groups(by string) int {
	count := 0
	for _, group := range r.Groups {
		if group.By == by {
			count++
		}
	}
	return count
}

func (g Group) name() string {
	switch {
	case g.By == BySource && g.Key != Unknown:
		return printable(g.Key)
	case g.Key == "1":
		return "1 " + strings.TrimSuffix(g.By, "s")
	}
	return g.Key + " " + g.By
}

// printable keeps a name from a file in its cell.
func printable(name string) string {
	const limit = 40
	if runes := []rune(name); len(runes) > limit {
		name = string(runes[:limit]) + "…"
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

func titles(f *Figures) []string {
	cells := []string{"context", "questions"}
	for _, figure := range f.List() {
		if shown(figure.Name) {
			cells = append(cells, title(figure.Name))
		}
	}
	return cells
}

func title(name string) string { return strings.ReplaceAll(name, "_", " ") }

func row(context, questions string, f *Figures) []string {
	cells := []string{context, questions}
	for _, figure := range f.List() {
		if shown(figure.Name) {
			cells = append(cells, figure.text())
		}
	}
	return cells
}

// shown leaves out pass_at_k for k that are no power of two: a line has an end.
func shown(name string) bool {
	var k uint
	_, err := fmt.Sscanf(name, "pass_at_%d", &k)
	return err != nil || bits.OnesCount(k) == 1
}

func (f Figure) text() string {
	if math.IsNaN(f.Value) {
		return "–"
	}
	return fmt.Sprintf(f.form, f.Value)
}

// writeAligned writes rows of equal length: the first cells flush left, the others, numbers, right.
func writeAligned(w io.Writer, rows [][]string, left int) error {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for k, cell := range cells {
			widths[k] = max(widths[k], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range rows {
		var line strings.Builder
		for k, cell := range cells {
			padding := strings.Repeat(" ", widths[k]-utf8.RuneCountInString(cell))
			if k < left {
				cell += padding
			} else {
				cell = padding + cell
			}
			line.WriteString(cell + "  ")
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
