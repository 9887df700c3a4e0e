package retrieval

import "context"

// Encoder turns texts into vectors, so that texts of like meaning have a large inner product. It
// is safe for concurrent use; texts stand as they go into the model, a prefix for queries or
// passages already in front.
type Encoder interface {
	// Encode returns one vector of Dimensions numbers for each text.
	Encode(ctx context.Context, texts []string) ([][]float32, error)
	// Dimensions is the length of every vector.
	Dimensions() int
}
