package prefix

import (
	"fmt"
	"slices"

	"github.com/mempo-train/mempo-train/model"
)

// Row is a sequence of which some tokens are scored, at a temperature of its own (above 0).
type Row struct {
	model.ScoreRow
	Temperature float64
}

// Tokens is how many tokens the tree of rows computes, but for a token or two where a row is cut, and
// how many the rows would one by one. Rows are as for Score.
func Tokens(rows []Row) (shared, naive int) {
	ids, own := sequences(rows)
	for _, n := range Build(ids, own) {
		shared += len(ids[n.Row]) - n.Start
	}
	for _, row := range rows {
		naive += len(row.IDs)
	}
	return shared, naive
}

// validate refuses rows without a token to score, or with one that cannot be scored.
func validate(rows []Row) error {
	for k, row := range rows {
		at := row.Positions
		if len(at) == 0 || at[0] < 1 || int(at[len(at)-1]) >= len(row.IDs) || !slices.IsSorted(at) {
			return fmt.Errorf("row %d has %d tokens and the positions %v to score; at least one is needed, ascending from 1", k, len(row.IDs), at)
		}
	}
	return nil
}

// sequences are the tokens of rows up to the last one that is scored, and the first position that a
// row must compute itself: its state there predicts the first token that is scored.
func sequences(rows []Row) (ids [][]int32, own []int) {
	for _, row := range rows {
		ids = append(ids, row.IDs[:row.Positions[len(row.Positions)-1]+1])
		own = append(own, int(row.Positions[0])-1)
	}
	return ids, own
}

// part is a stretch of a node that runs behind the first from tokens of its parent's cache row. Of a
// node, what other nodes stand behind is one or two parts that are kept in the cache, and the rest
// is another.
type part struct {
	row      int     // index of the row
	parent   *part   // nil when from is 0
	from, to int     // tokens of the row
	keep     bool    // other parts stand behind this one
	scored   []int32 // positions of the row that it scores: all > from, < to
	first    int     // index of scored[0] in the row's positions
	children int     // parts behind this one that are not finished

	cache int // row of the session that holds the tokens from 0 to at; −1 for none
	at    int // tokens before it have run
	done  bool
}

// parts cuts the nodes of a tree, in their order.
func parts(rows []Row, ids [][]int32, nodes []Node) []*part {
	cuts := make([][]int, len(nodes)) // where the kept parts of each node end
	starts := make([][]int, len(nodes))
	for _, n := range nodes {
		if n.Parent >= 0 {
			starts[n.Parent] = append(starts[n.Parent], n.Start)
		}
	}
	for k, of := range starts { // ascending
		if len(of) > 1 && of[0] == of[1] {
			cuts[k] = append(cuts[k], of[0]) // a prompt: it need not wait for, nor keep, the longest of what follows it
		}
		if len(of) > 0 {
			cuts[k] = append(cuts[k], of[len(of)-1])
		}
		cuts[k] = slices.Compact(cuts[k])
	}
	var all []*part
	kept := make([][]*part, len(nodes))
	for k, n := range nodes {
		var parent *part
		if n.Parent >= 0 {
			parent = behind(kept[n.Parent], n.Start)
		}
		from := n.Start
		for _, cut := range cuts[k] {
			parent = newPart(rows[n.Row], n.Row, parent, from, cut)
			parent.keep = true
			kept[k], from = append(kept[k], parent), cut
			all = append(all, parent)
		}
		if from < len(ids[n.Row]) {
			all = append(all, newPart(rows[n.Row], n.Row, parent, from, len(ids[n.Row])))
		}
	}
	return all
}

// behind is the part that computes the token before start.
func behind(kept []*part, start int) *part {
	k := slices.IndexFunc(kept, func(p *part) bool { return start <= p.to })
	return kept[k]
}

// newPart makes a part for the tokens of a row from one position to another. To score the token at
// the first of them it begins one earlier: the state there is not kept.
func newPart(row Row, index int, parent *part, from, to int) *part {
	first, boundary := slices.BinarySearch(row.Positions, int32(from))
	end, _ := slices.BinarySearch(row.Positions, int32(to))
	if boundary {
		from--
	}
	if parent != nil {
		parent.children++
	}
	return &part{row: index, parent: parent, from: from, to: to, scored: row.Positions[first:end], first: first, cache: -1, at: from}
}
