// Package qdrant searches vectors in a Qdrant server, for indexes beyond one machine, and fills a
// collection of one from an index. A passage is a point whose id is its place in the corpus, with
// "id" and "contents" as the payload.
package qdrant

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"

	"github.com/mempo-train/mempo-train/retrieval"
)

// Options say where a collection is.
type Options struct {
	Address    string // host and port of the server's gRPC interface
	Collection string
	TLS        bool
	APIKey     string // "" is none
}

// Source is what a collection is filled from, or has to agree with.
type Source interface {
	Len() int
	Dimensions() int
	// Rows are the passages from first up to end, with their vectors.
	Rows(first, end int) ([]retrieval.Passage, [][]float32, error)
}

// Collection is one of a server. It is safe for concurrent use.
type Collection struct {
	client *qdrant.Client
	name   string
	where  string // for messages
}

// maxMessage bounds a reply, in bytes.
const maxMessage = 256 << 20

// Open makes a client of a collection. It connects with the first call.
func Open(o Options) (*Collection, error) {
	host, portText, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, fmt.Errorf("qdrant.address: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, fmt.Errorf("qdrant.address: %w", err)
	}
	client, err := qdrant.NewClient(&qdrant.Config{
		Host: host, Port: port, APIKey: o.APIKey, UseTLS: o.TLS, SkipCompatibilityCheck: true,
		GrpcOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage))},
	})
	if err != nil {
		return nil, fmt.Errorf("qdrant.address %s: %w", o.Address, err)
	}
	return &Collection{client: client, name: o.Collection, where: fmt.Sprintf("collection %q of Qdrant at %s", o.Collection, o.Address)}, nil
}

// Close ends the connections.
func (c *Collection) Close() error { return c.client.Close() }

// Bounds of one request that fills a collection.
const (
	batchPoints = 256
	batchBytes  = 8 << 20 // of contents
)

// Fill creates the collection if it is not there, and puts in the passages that are missing, from
// the first one that is. done is told how many are in.
func (c *Collection) Fill(ctx context.Context, source Source, done func(int)) error {
	there, err := c.client.CollectionExists(ctx, c.name)
	if err != nil {
		return c.failed(err)
	}
	if !there {
		err := c.client.CreateCollection(ctx, &qdrant.CreateCollection{
			CollectionName: c.name,
			VectorsConfig: qdrant.NewVectorsConfig(&qdrant.VectorParams{
				Size: uint64(source.Dimensions()), Distance: qdrant.Distance_Dot,
			}),
		})
		if err != nil {
			return c.failed(err)
		}
	}
	exact := true
	count, err := c.client.Count(ctx, &qdrant.CountPoints{CollectionName: c.name, Exact: &exact})
	if err != nil {
		return c.failed(err)
	}
	first := int(min(count, uint64(source.Len())))
	done(first)
	for first < source.Len() {
		n, err := c.put(ctx, source, first)
		if err != nil {
			return err
		}
		first += n
		done(n)
	}
	return nil
}

// put puts in a batch of passages from first on and returns how many.
func (c *Collection) put(ctx context.Context, source Source, first int) (int, error) {
	passages, vectors, err := source.Rows(first, min(first+batchPoints, source.Len()))
	if err != nil {
		return 0, err
	}
	points, bytes := []*qdrant.PointStruct{}, 0
	for k, p := range passages {
		if bytes += len(p.Contents); k > 0 && bytes > batchBytes {
			break
		}
		points = append(points, &qdrant.PointStruct{
			Id: qdrant.NewIDNum(uint64(first + k)), Vectors: qdrant.NewVectorsDense(vectors[k]),
			Payload: map[string]*qdrant.Value{"id": qdrant.NewValueString(p.ID), "contents": qdrant.NewValueString(p.Contents)},
		})
	}
	wait := true
	_, err = c.client.Upsert(ctx, &qdrant.UpsertPoints{CollectionName: c.name, Wait: &wait, Points: points})
	return len(points), c.failed(err)
}

// Check refuses a collection that does not hold the passages of source: it counts them and looks at
// the first and the last one.
func (c *Collection) Check(ctx context.Context, source Source) error {
	exact := true
	count, err := c.client.Count(ctx, &qdrant.CountPoints{CollectionName: c.name, Exact: &exact})
	if err != nil {
		return c.failed(err)
	}
	if count != uint64(source.Len()) {
		return fmt.Errorf("%s holds %d passages, the index %d; qdrant.fill = true fills it", c.where, count, source.Len())
	}
	for _, row := range []int{0, source.Len() - 1} {
		passages, _, err := source.Rows(row, row+1)
		if err != nil {
			return err
		}
		points, err := c.client.Get(ctx, &qdrant.GetPoints{
			CollectionName: c.name, Ids: []*qdrant.PointId{qdrant.NewIDNum(uint64(row))}, WithPayload: qdrant.NewWithPayload(true),
		})
		if err != nil {
			return c.failed(err)
		}
		if len(points) != 1 || points[0].GetPayload()["id"].GetStringValue() != passages[0].ID {
			return fmt.Errorf("%s is of another index: its point %d is not passage %q", c.where, row, passages[0].ID)
		}
	}
	return nil
}

// SearchVectors finds the topk passages of each vector, by inner product.
func (c *Collection) SearchVectors(ctx context.Context, queries [][]float32, topk int) ([][]retrieval.Scored, error) {
	limit := uint64(topk)
	batch := &qdrant.QueryBatchPoints{CollectionName: c.name}
	for _, query := range queries {
		batch.QueryPoints = append(batch.QueryPoints, &qdrant.QueryPoints{
			CollectionName: c.name, Query: qdrant.NewQueryDense(query), Limit: &limit, WithPayload: qdrant.NewWithPayload(true),
		})
	}
	replies, err := c.client.QueryBatch(ctx, batch)
	if err != nil {
		return nil, c.failed(err)
	}
	if len(replies) != len(queries) {
		return nil, fmt.Errorf("%s gave %d lists for %d queries", c.where, len(replies), len(queries))
	}
	results := make([][]retrieval.Scored, len(replies))
	for q, reply := range replies {
		for _, point := range reply.GetResult() {
			passage, err := passageOf(point.GetPayload())
			if err != nil {
				return nil, fmt.Errorf("%s: point %v %w", c.where, point.GetId(), err)
			}
			results[q] = append(results[q], retrieval.Scored{Passage: passage, Score: float64(point.GetScore())})
		}
	}
	return results, nil
}

func passageOf(payload map[string]*qdrant.Value) (retrieval.Passage, error) {
	contents, ok := payload["contents"].GetKind().(*qdrant.Value_StringValue)
	if !ok {
		return retrieval.Passage{}, fmt.Errorf(`has no text under "contents"`)
	}
	return retrieval.Passage{ID: payload["id"].GetStringValue(), Contents: contents.StringValue}, nil
}

func (c *Collection) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.where, err)
}
