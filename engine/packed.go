package engine

import (
	"fmt"

	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/prefix"
)

// packedRows lays the tokens of several rows one after the other, as csrc takes them.
type packedRows struct {
	ids       []int32
	starts    []int64 // of each row in ids
	positions []int64 // scored tokens, as indices into ids
	// Of rows that are a tree, see prefix.Node: the parents, and the tokens that a row shares with its parent's path.
	parents, shared []int64
	groups          []int64 // rows up to the end of each group; a tree lies in one group
}

// checkPositions refuses tokens that the ids do not have, or that nothing predicts. What lies between the first and the
// last is csrc's to check.
func checkPositions(ids, positions []int32) error {
	if n := len(positions); n > 0 && (positions[0] < 1 || int(positions[n-1]) >= len(ids)) {
		return fmt.Errorf("engine: tokens %d to %d of %d cannot be scored", positions[0], positions[n-1], len(ids))
	}
	return nil
}

func (p *packedRows) add(ids, positions []int32) {
	start := int64(len(p.ids))
	p.starts = append(p.starts, start)
	p.ids = append(p.ids, ids...)
	for _, position := range positions {
		p.positions = append(p.positions, start+int64(position))
	}
}

// addNode appends what a row of a tree has of its own; its positions must lie there. The tree's first row is `first`.
func (p *packedRows) addNode(node prefix.Node, first int64, ids, positions []int32) {
	own := make([]int32, len(positions))
	for k, position := range positions {
		own[k] = position - int32(node.Start)
	}
	p.add(ids[node.Start:], own)
	parent := int64(-1)
	if node.Parent >= 0 {
		parent = first + int64(node.Parent)
	}
	p.parents, p.shared = append(p.parents, parent), append(p.shared, int64(node.Start))
}

func (p *packedRows) rows() int { return len(p.starts) }

// allOffsets are the starts and the end of the last row.
func (p *packedRows) allOffsets() []int64 {
	return append(append([]int64(nil), p.starts...), int64(len(p.ids)))
}

// lossColumns are the loss inputs of all trained tokens of a micro-batch; those that the kind of
// loss does not read are empty.
type lossColumns struct{ old, ref, advantages, weights []float32 }

// add appends one row's columns, all of length n.
func (l *lossColumns) add(kind model.LossKind, n int, old, ref, advantages, weights []float32) error {
	if kind == model.NegativeLogLikelihood {
		if len(weights) != n {
			return fmt.Errorf("engine: %d trained tokens with %d weights", n, len(weights))
		}
		l.weights = append(l.weights, weights...)
		return nil
	}
	if len(old) != n || len(ref) != n || len(advantages) != n || len(weights) != n {
		return fmt.Errorf("engine: %d trained tokens with %d old and %d reference log-probs, %d advantages, %d weights",
			n, len(old), len(ref), len(advantages), len(weights))
	}
	l.old, l.ref = append(l.old, old...), append(l.ref, ref...)
	l.advantages, l.weights = append(l.advantages, advantages...), append(l.weights, weights...)
	return nil
}

// packTrainRows packs rows in groups, each as a tree: a beginning that several rows of a group have in common is there
// once. Rows without a trained token are left out.
func packTrainRows(rows []model.TrainRow, kind model.LossKind, groups int) (*packedRows, *lossColumns, error) {
	var trained []model.TrainRow
	tokens := 0
	for _, row := range rows {
		if len(row.Positions) == 0 {
			continue
		}
		if err := checkPositions(row.IDs, row.Positions); err != nil {
			return nil, nil, err
		}
		trained, tokens = append(trained, row), tokens+len(row.IDs)
	}
	packed, columns := &packedRows{}, &lossColumns{}
	done := 0
	for group := range groups {
		var of []model.TrainRow
		for ; len(trained) > 0 && done < tokens*(group+1)/groups; trained = trained[1:] {
			done += len(trained[0].IDs)
			of = append(of, trained[0])
		}
		if err := packed.addTree(of, columns, kind); err != nil {
			return nil, nil, err
		}
	}
	return packed, columns, nil
}

// addTree appends a group of rows. The token that predicts a row's first trained one is always the row's own.
func (p *packedRows) addTree(rows []model.TrainRow, columns *lossColumns, kind model.LossKind) error {
	if len(rows) == 0 {
		return nil
	}
	ids, own := make([][]int32, len(rows)), make([]int, len(rows))
	for k, row := range rows {
		ids[k], own[k] = row.IDs, int(row.Positions[0])-1
	}
	before := int64(p.rows())
	for _, node := range prefix.Build(ids, own) {
		row := rows[node.Row]
		p.addNode(node, before, row.IDs, row.Positions)
		if err := columns.add(kind, len(row.Positions), row.OldLogProbs, row.RefLogProbs, row.Advantages, row.Weights); err != nil {
			return err
		}
	}
	p.groups = append(p.groups, int64(p.rows()))
	return nil
}
