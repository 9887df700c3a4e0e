// Package prefix computes token sequences that begin alike as one tree, each token once: Build says
// which tokens a sequence shares with another, Score tells how likely the tokens of such sequences
// are, through the caches of a session.
package prefix

import (
	"cmp"
	"math"
	"slices"
)

// Node is the part of a row that no other row computes for it: the tokens from Start on. Those
// before are the first Start tokens of the parent's path, where the path of a node is its whole row.
type Node struct {
	Row    int // index of the row
	Parent int // index of the node that computes the row's token Start−1; −1 when Start is 0
	Start  int // tokens of the row that are computed elsewhere
}

// Build arranges rows as a tree. own[k] is the first position that row k must compute itself, with
// 0 ≤ own[k] < len(rows[k]). There is one node for each row; parents stand before their children,
// subtrees in one piece, and children of one parent by where they leave it.
//
// A beginning that several rows have in common is computed by each row that must, or by one of them if
// none must. Where there is a choice, long rows keep their tokens together and short ones leave them;
// rows that are alike in that keep their order. No token is computed more often than own asks for, but
// for the few (at most repeated) from own on that a short row has in common with a longer one: both
// compute these, as the longer one would otherwise have to wait for the short one.
func Build(rows [][]int32, own []int) []Node {
	var root edge
	starts := make([]int, len(rows))
	children := make([][]int, len(rows)+1) // by the row of the parent, +1; [0] holds the roots
	for _, row := range order(rows, own) {
		known, owner := root.insert(rows[row], row, own[row])
		starts[row] = min(known, own[row])
		children[owner+1] = append(children[owner+1], row)
	}
	nodes := make([]Node, 0, len(rows))
	var add func(row, parent int)
	add = func(row, parent int) {
		of := children[row+1]
		slices.SortStableFunc(of, func(a, b int) int { return cmp.Compare(starts[a], starts[b]) })
		for _, child := range of {
			nodes = append(nodes, Node{Row: child, Parent: parent, Start: starts[child]})
			add(child, len(nodes)-1)
		}
	}
	add(-1, -1)
	return nodes
}

// repeated is how many tokens are rather computed twice than waited for: a context that the answer
// follows at once must compute its last token, which each longer context has too.
const repeated = 4

// order says in which order rows go into the tree. First come those that must compute more than a
// few tokens that another row has too, by where that begins: so each shared token goes to the row that
// must compute it anyway. The others must compute little but what is theirs alone, and long ones come
// first.
func order(rows [][]int32, own []int) []int {
	var before, behind edge
	sorted := make([]int, len(rows))
	rank := make([]int, len(rows))
	for k, row := range rows {
		sorted[k], rank[k] = k, math.MaxInt
		if known, _ := before.insert(row, k, 0); known > own[k]+repeated {
			rank[k] = own[k]
		}
	}
	for k, row := range slices.Backward(rows) {
		if known, _ := behind.insert(row, k, 0); known > own[k]+repeated {
			rank[k] = own[k]
		}
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(len(rows[b]), len(rows[a])))
	})
	return sorted
}

// edge is a run of tokens of a radix tree: no row of the tree ends or leaves within it, except at
// its end. The tokens are a slice of the row that brought them.
type edge struct {
	ids  []int32
	row  int
	next map[int32]*edge // by first token
}

// insert adds the tokens of a row. known is the number of its first tokens that were there, owner
// the row that brought the last of them; of those beyond limit none is asked for.
func (e *edge) insert(ids []int32, row, limit int) (known, owner int) {
	owner = -1
	for known < len(ids) {
		child := e.next[ids[known]]
		if child == nil {
			e.add(&edge{ids: ids[known:], row: row})
			break
		}
		if known < limit {
			owner = child.row
		}
		same := commonLength(child.ids, ids[known:])
		known += same
		if same < len(child.ids) {
			child.split(same)
		}
		e = child
	}
	return known, owner
}

func (e *edge) add(child *edge) {
	if e.next == nil {
		e.next = map[int32]*edge{}
	}
	e.next[child.ids[0]] = child
}

// split cuts an edge in two behind its first n tokens.
func (e *edge) split(n int) {
	rest := &edge{ids: e.ids[n:], row: e.row, next: e.next}
	e.ids, e.next = e.ids[:n], nil
	e.add(rest)
}

func commonLength(a, b []int32) int {
	n := min(len(a), len(b))
	for k := range n {
		if a[k] != b[k] {
			return k
		}
	}
	return n
}
