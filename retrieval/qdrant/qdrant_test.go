package qdrant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mempo-train/mempo-train/retrieval"
)

// server speaks the part of Qdrant's protocol that is used, over a map.
type server struct {
	mutex  sync.Mutex
	size   uint64 // 0 without a collection
	stored map[uint64]*qdrant.PointStruct
	full   int // points after which it takes no more; 0 is never
}

// collections and points are its two services.
type (
	collections struct {
		qdrant.UnimplementedCollectionsServer
		*server
	}
	points struct {
		qdrant.UnimplementedPointsServer
		*server
	}
)

func (s collections) CollectionExists(context.Context, *qdrant.CollectionExistsRequest) (*qdrant.CollectionExistsResponse, error) {
	return &qdrant.CollectionExistsResponse{Result: &qdrant.CollectionExists{Exists: s.size > 0}}, nil
}

func (s collections) Create(_ context.Context, r *qdrant.CreateCollection) (*qdrant.CollectionOperationResponse, error) {
	params := r.GetVectorsConfig().GetParams()
	if params.GetDistance() != qdrant.Distance_Dot {
		return nil, status.Error(codes.InvalidArgument, "another distance")
	}
	s.size = params.GetSize()
	return &qdrant.CollectionOperationResponse{Result: true}, nil
}

func (s points) Count(context.Context, *qdrant.CountPoints) (*qdrant.CountResponse, error) {
	if s.size == 0 {
		return nil, status.Error(codes.NotFound, "no such collection")
	}
	return &qdrant.CountResponse{Result: &qdrant.CountResult{Count: uint64(len(s.stored))}}, nil
}

func (s points) Upsert(_ context.Context, r *qdrant.UpsertPoints) (*qdrant.PointsOperationResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, p := range r.GetPoints() {
		if s.full > 0 && len(s.stored) == s.full {
			return nil, status.Error(codes.ResourceExhausted, "the disk is full")
		}
		s.stored[p.GetId().GetNum()] = p
	}
	return &qdrant.PointsOperationResponse{Result: &qdrant.UpdateResult{Status: qdrant.UpdateStatus_Completed}}, nil
}

func (s points) Get(_ context.Context, r *qdrant.GetPoints) (*qdrant.GetResponse, error) {
	reply := &qdrant.GetResponse{}
	for _, id := range r.GetIds() {
		if p := s.stored[id.GetNum()]; p != nil {
			reply.Result = append(reply.Result, &qdrant.RetrievedPoint{Id: id, Payload: p.GetPayload()})
		}
	}
	return reply, nil
}

func (s points) QueryBatch(_ context.Context, r *qdrant.QueryBatchPoints) (*qdrant.QueryBatchResponse, error) {
	reply := &qdrant.QueryBatchResponse{}
	for _, q := range r.GetQueryPoints() {
		query := q.GetQuery().GetNearest().GetDense().GetData()
		var found []*qdrant.ScoredPoint
		for _, id := range slices.Sorted(maps.Keys(s.stored)) {
			p := s.stored[id]
			score := float32(0)
			for k, x := range p.GetVectors().GetVector().GetDense().GetData() {
				score += x * query[k]
			}
			found = append(found, &qdrant.ScoredPoint{Id: p.GetId(), Payload: p.GetPayload(), Score: score})
		}
		slices.SortStableFunc(found, func(a, b *qdrant.ScoredPoint) int { return cmp.Compare(b.Score, a.Score) })
		reply.Result = append(reply.Result, &qdrant.BatchResult{Result: found[:min(len(found), int(q.GetLimit()))]})
	}
	return reply, nil
}

// startServer serves a fake and opens its collection.
func startServer(t *testing.T, s *server) *Collection {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	qdrant.RegisterCollectionsServer(g, collections{server: s})
	qdrant.RegisterPointsServer(g, points{server: s})
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	c, err := Open(Options{Address: listener.Addr().String(), Collection: "wiki"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// circle is a source of n passages with vectors (k, 1).
type circle struct {
	n    int
	name string
}

func (c circle) Len() int        { return c.n }
func (c circle) Dimensions() int { return 2 }

func (c circle) Rows(first, end int) (passages []retrieval.Passage, vectors [][]float32, err error) {
	for k := first; k < end; k++ {
		passages = append(passages, retrieval.Passage{ID: fmt.Sprint(c.name, k), Contents: strings.Repeat("x", k%7)})
		vectors = append(vectors, []float32{float32(k), 1})
	}
	return passages, vectors, nil
}

func TestACollectionIsFilledAndSearched(t *testing.T) {
	s := &server{stored: map[uint64]*qdrant.PointStruct{}, full: 300}
	c, source, in := startServer(t, s), circle{1000, "p"}, 0
	count := func(n int) { in += n }
	if err := c.Fill(t.Context(), source, count); err == nil || !strings.Contains(err.Error(), "the disk is full") || in != batchPoints {
		t.Fatalf("%d are in, %v", in, err)
	}
	if err := c.Check(t.Context(), source); err == nil || !strings.Contains(err.Error(), "holds 300 passages, the index 1000") {
		t.Errorf("a part of it: %v", err)
	}
	s.full, in = 0, 0
	if err := c.Fill(t.Context(), source, count); err != nil || in != 1000 || len(s.stored) != 1000 {
		t.Fatalf("%d are in, %d there, %v", in, len(s.stored), err)
	}
	if err := c.Check(t.Context(), source); err != nil {
		t.Error(err)
	}
	found, err := c.SearchVectors(t.Context(), [][]float32{{1, 0}, {-1, 5}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[0][0].ID != "p999" || found[0][0].Score != 999 || found[0][1].ID != "p998" || found[1][0].ID != "p0" || found[1][0].Score != 5 {
		t.Errorf("found %v", found)
	}
	if found[0][0].Contents != strings.Repeat("x", 999%7) {
		t.Errorf("contents %q", found[0][0].Contents)
	}
	if err := c.Check(t.Context(), circle{1000, "q"}); err == nil || !strings.Contains(err.Error(), "of another index") {
		t.Errorf("another index: %v", err)
	}
	s.stored[999].Payload = nil
	if _, err := c.SearchVectors(t.Context(), [][]float32{{1, 0}}, 1); err == nil || !strings.Contains(err.Error(), `no text under "contents"`) {
		t.Errorf("a point without payload: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	c, err := Open(Options{Address: address, Collection: "wiki"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Check(t.Context(), circle{1, ""}); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("got %v", err)
	}
}
