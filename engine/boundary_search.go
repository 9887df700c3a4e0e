package engine

/*
#include <stdlib.h>
#include "mempo.h"
*/
import "C"

type graphHandle = *C.mempo_graph

// found has room for the hits of each query: k rows, -1 where there are no more, with their scores.
type found struct {
	k      int
	rows   []int32
	scores []float32
}

func newFound(queries, k int) found {
	return found{k, make([]int32, queries*k), make([]float32, queries*k)}
}

// apart gives the hits of each query a list of its own.
func (f found) apart() (rows [][]int32, scores [][]float32) {
	for begin := 0; begin < len(f.rows); begin += f.k {
		end := begin
		for end < begin+f.k && f.rows[end] >= 0 {
			end++
		}
		rows, scores = append(rows, f.rows[begin:end:end]), append(scores, f.scores[begin:end:end])
	}
	return rows, scores
}

func searchExact(queries []float32, count int, vectors []float32, dimensions int, into found) error {
	var e C.mempo_error
	code := C.mempo_search_exact(C.int64_t(count), cFloats(queries), C.int64_t(len(vectors)/dimensions), cFloats(vectors),
		C.int64_t(dimensions), C.int64_t(into.k), (*C.int32_t)(first(into.rows)), cFloats(into.scores), &e)
	return check(code, &e)
}

// GraphAvailable tells whether approximate search was built in: hnswlib is optional.
func GraphAvailable() bool { return C.mempo_graph_available() != 0 }

func graphNew(o GraphOptions) (graphHandle, error) {
	config := C.mempo_graph_config{
		dimensions: C.int64_t(o.Dimensions), capacity: C.int64_t(o.Capacity), neighbours: C.int64_t(o.M),
		ef_construction: C.int64_t(o.EFConstruction), seed: C.uint64_t(o.Seed),
	}
	var e C.mempo_error
	var handle graphHandle
	err := check(C.mempo_graph_new(&config, &handle, &e), &e)
	return handle, err
}

func graphOpen(path string, dimensions int) (graphHandle, error) {
	c, free := cString(path)
	defer free()
	var e C.mempo_error
	var handle graphHandle
	err := check(C.mempo_graph_open(c, C.int64_t(dimensions), &handle, &e), &e)
	return handle, err
}

func graphFree(g graphHandle) { C.mempo_graph_free(g) }

func graphSize(g graphHandle) int { return int(C.mempo_graph_size(g)) }

func graphAdd(g graphHandle, vectors []float32, dimensions int) error {
	var e C.mempo_error
	return check(C.mempo_graph_add(g, C.int64_t(len(vectors)/dimensions), cFloats(vectors), &e), &e)
}

func graphSave(g graphHandle, path string) error {
	c, free := cString(path)
	defer free()
	var e C.mempo_error
	return check(C.mempo_graph_save(g, c, &e), &e)
}

func graphSearch(g graphHandle, queries []float32, count, ef int, into found) error {
	var e C.mempo_error
	code := C.mempo_graph_search(g, C.int64_t(count), cFloats(queries), C.int64_t(ef), C.int64_t(into.k),
		(*C.int32_t)(first(into.rows)), cFloats(into.scores), &e)
	return check(code, &e)
}
