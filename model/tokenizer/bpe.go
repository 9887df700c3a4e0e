package tokenizer

import (
	"math"
	"math/bits"
	"slices"
)

// noMerge is the rank of a pair that does not merge.
const noMerge = math.MaxUint32

// heapFrom is the number of symbols from which merging keeps its candidates in a heap. Below it,
// looking at all pairs for each merge is faster.
const heapFrom = 48

// merger holds the merges of a BPE model.
type merger struct {
	byteIDs [256]int32 // −1 for a byte the vocabulary lacks
	pairs   pairTable
}

// merge replaces the symbols of a word, in place, by its tokens: again and again the pair of lowest
// rank becomes one symbol, of equal ranks the leftmost.
func (m *merger) merge(symbols []int32) []int32 {
	if len(symbols) < heapFrom {
		return m.mergeShort(symbols)
	}
	return m.mergeLong(symbols)
}

// symbols appends the ids of a word's bytes; a byte that the vocabulary lacks is left out.
func (m *merger) symbols(dst []int32, word string) []int32 {
	for i := range len(word) {
		if id := m.byteIDs[word[i]]; id >= 0 {
			dst = append(dst, id)
		}
	}
	return dst
}

func (m *merger) mergeShort(symbols []int32) []int32 {
	var store [heapFrom]pairMerge
	merges := store[:0] // merges[i] is that of symbols i and i+1
	for i := 0; i+1 < len(symbols); i++ {
		merges = append(merges, m.pairs.get(symbols[i], symbols[i+1]))
	}
	for len(merges) > 0 {
		best := 0
		for i := range merges {
			if merges[i].rank < merges[best].rank {
				best = i
			}
		}
		if merges[best].rank == noMerge {
			break
		}
		symbols[best] = merges[best].id
		symbols = slices.Delete(symbols, best+1, best+2)
		merges = slices.Delete(merges, best, best+1)
		if best > 0 {
			merges[best-1] = m.pairs.get(symbols[best-1], symbols[best])
		}
		if best < len(merges) {
			merges[best] = m.pairs.get(symbols[best], symbols[best+1])
		}
	}
	return symbols
}

// node is a symbol of a long word, linked to its neighbours (−1: none). A symbol that has become
// part of the one before it has id −1.
type node struct{ id, previous, next int32 }

// candidate is a merge that was possible when it was put into the heap.
type candidate struct {
	rank        uint32
	at          int32 // index of the left symbol's node
	left, right int32 // the symbols' ids
	id          int32 // what they become
}

func (c candidate) before(other candidate) bool {
	return c.rank < other.rank || c.rank == other.rank && c.at < other.at
}

// candidates is a binary heap, the first candidate on top. container/heap would allocate for each
// one.
type candidates []candidate

func (c *candidates) push(x candidate) {
	*c = append(*c, x)
	h, i := *c, len(*c)-1
	for i > 0 && x.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = x
}

func (c *candidates) pop() candidate {
	last := len(*c) - 1
	top, x := (*c)[0], (*c)[last]
	*c = (*c)[:last]
	h, i := *c, 0
	for child := 1; child < last; child = 2*i + 1 {
		if child+1 < last && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		i = child
	}
	if last > 0 {
		h[i] = x
	}
	return top
}

func (m *merger) mergeLong(symbols []int32) []int32 {
	nodes := make([]node, len(symbols))
	for i, id := range symbols {
		nodes[i] = node{id, int32(i - 1), int32(i + 1)}
	}
	nodes[len(nodes)-1].next = -1
	var open candidates
	for i := range nodes {
		if c, ok := m.candidate(nodes, int32(i)); ok {
			open.push(c)
		}
	}
	for len(open) > 0 {
		c := open.pop()
		left := &nodes[c.at]
		if left.id != c.left || left.next < 0 || nodes[left.next].id != c.right {
			continue // an earlier merge took one of the two
		}
		right := &nodes[left.next]
		left.id, left.next, right.id = c.id, right.next, -1
		if left.next >= 0 {
			nodes[left.next].previous = c.at
		}
		for _, at := range [2]int32{left.previous, c.at} {
			if c, ok := m.candidate(nodes, at); ok {
				open.push(c)
			}
		}
	}
	symbols = symbols[:0]
	for at := int32(0); at >= 0; at = nodes[at].next {
		symbols = append(symbols, nodes[at].id)
	}
	return symbols
}

// candidate is the merge of a node with the one after it, if the model has one.
func (m *merger) candidate(nodes []node, at int32) (candidate, bool) {
	if at < 0 || nodes[at].next < 0 {
		return candidate{}, false
	}
	left, right := nodes[at].id, nodes[nodes[at].next].id
	p := m.pairs.get(left, right)
	return candidate{p.rank, at, left, right, p.id}, p.rank != noMerge
}

// pairMerge is what a pair of symbols becomes, and in which order.
type pairMerge struct {
	rank uint32
	id   int32
}

// pairTable maps pairs of ids to their merge: a hash table with open addressing.
type pairTable struct {
	slots []pairSlot // a power of two, at most half of them in use
	shift int
}

type pairSlot struct {
	key   uint64 // 0: free
	merge pairMerge
}

func newPairTable(pairs int) pairTable {
	size := bits.Len(uint(2*pairs + 1))
	return pairTable{slots: make([]pairSlot, 1<<size), shift: 64 - size}
}

// slot is where a pair is, or where it goes.
func (p *pairTable) slot(left, right int32) (*pairSlot, uint64) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right)) + 1
	const spread = 0x9E3779B97F4A7C15 // 2⁶⁴ divided by the golden ratio
	for i := key * spread >> p.shift; ; i = (i + 1) % uint64(len(p.slots)) {
		if s := &p.slots[i]; s.key == key || s.key == 0 {
			return s, key
		}
	}
}

func (p *pairTable) get(left, right int32) pairMerge {
	if s, _ := p.slot(left, right); s.key != 0 {
		return s.merge
	}
	return pairMerge{rank: noMerge}
}

func (p *pairTable) set(left, right int32, m pairMerge) {
	s, key := p.slot(left, right)
	s.key, s.merge = key, m
}
