package bench

import (
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/prefix"
)

// Work is what goes through a model.
type Work struct {
	Tokens int // of the layers
	Pairs  int // of a token's query and the key of a token that it attends to, itself included
	Heads  int // rows of the output head: tokens sampled or scored
}

// stretch is the work of n tokens that stand behind others, of which heads have a row of the head.
// The tokens attend to before + 1, before + 2, … before + n keys.
func stretch(before, n, heads int) Work {
	return Work{Tokens: n, Pairs: n*before + n*(n+1)/2, Heads: heads}
}

func (w *Work) add(more Work) {
	w.Tokens += more.Tokens
	w.Pairs += more.Pairs
	w.Heads += more.Heads
}

// Forward is the number of floating point operations of a forward pass, those of the matrix products
// alone: two for each weight of the projections and token; for each pair and query head two products of
// the head's size, of query and key and of weight and value; and two for each weight of the output head
// and row. The embedding is no product; norms, rotations and activations are not counted.
func (w Work) Forward(a model.Architecture) float64 {
	return 2*float64(a.Layers*layerWeights(a))*float64(w.Tokens) +
		w.attention(a) +
		2*float64(a.HiddenSize*a.VocabSize)*float64(w.Heads)
}

// attention is the part of Forward that has no weights.
func (w Work) attention(a model.Architecture) float64 {
	return 4 * float64(a.Layers*a.Heads*a.HeadDim) * float64(w.Pairs)
}

// Bytes is the memory that forward passes over this work read: in each pass every weight of the projections and the output
// head, and for each pair the key and the value of all layers; elementBytes is the size of one number of the
// compute dtype. Rows of the embedding, adapters, states between the layers and what is written are not counted.
func (w Work) Bytes(a model.Architecture, passes, elementBytes int) float64 {
	weights := a.Layers*layerWeights(a) + a.HiddenSize*a.VocabSize
	pair := 2 * a.Layers * a.KVHeads * a.HeadDim
	return float64(elementBytes) * (float64(weights)*float64(passes) + float64(pair)*float64(w.Pairs))
}

// layerWeights is the number of weights of the projections of one layer.
func layerWeights(a model.Architecture) int {
	attention := a.HiddenSize * a.HeadDim * (2*a.Heads + 2*a.KVHeads) // query and output, key and value
	return attention + 3*a.HiddenSize*a.IntermediateSize
}

// Training is the number of floating point operations of a forward and a backward pass: for each
// product of the forward pass two more, the gradients to its two sides. Frozen weights have none; the
// products of the adapters that are trained in their place are small and not counted. What a backward
// pass computes once more to save memory is not counted.
func (w Work) Training(a model.Architecture, frozen bool) float64 {
	if frozen {
		return 2*w.Forward(a) + w.attention(a)
	}
	return 3 * w.Forward(a)
}

// treeWork is the work of rows that begin alike, each token once. Row k must compute its tokens from
// own[k] on itself, and has heads[k] rows of the head.
func treeWork(rows [][]int32, own, heads []int) Work {
	var work Work
	for _, node := range prefix.Build(rows, own) {
		work.add(stretch(node.Start, len(rows[node.Row])-node.Start, heads[node.Row]))
	}
	return work
}

// trainWork is the work of a micro-batch in which beginnings that rows have in common are computed
// once; what a model computes more often is not counted as work. The token before the first trained
// one, whose state predicts it, is the row's own.
func trainWork(rows []model.TrainRow) Work {
	ids, own, heads := make([][]int32, len(rows)), make([]int, len(rows)), make([]int, len(rows))
	for k, row := range rows {
		ids[k], own[k], heads[k] = row.IDs, len(row.IDs)-1, len(row.Positions)
		if heads[k] > 0 {
			own[k] = int(row.Positions[0]) - 1
		}
	}
	return treeWork(ids, own, heads)
}
