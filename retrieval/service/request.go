package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Limits bound what clients can make the service do. All are above 0.
type Limits struct {
	BodyBytes   int64 // of a request
	Queries     int   // of a request
	QueryBytes  int   // of a query
	TopK        int   // passages per query
	URLs        int   // of a request for pages
	Concurrency int   // requests under way
}

// usualTopK is how many passages a request gets that does not say.
const usualTopK = 3

// errTooMuch marks a request that is over a limit.
var errTooMuch = errors.New("over a limit")

// retrieveRequest is a search, for queries or for vectors.
type retrieveRequest struct {
	queries    []string
	vectors    [][]float32
	topk       int
	withScores bool
}

// parseRetrieve reads {"queries", "topk", "return_scores"} as clients of Search-R1 send it: topk and
// return_scores may be absent or null, and one query a plain string. "vectors" may stand in the
// place of "queries", of so many dimensions; 0 is none at all. Other members are ignored.
func parseRetrieve(body []byte, l Limits, dimensions int) (*retrieveRequest, error) {
	var members struct {
		Queries      json.RawMessage `json:"queries"`
		Vectors      [][]float32     `json:"vectors"`
		TopK         *float64        `json:"topk"`
		ReturnScores *bool           `json:"return_scores"`
	}
	if err := decode(body, &members); err != nil {
		return nil, err
	}
	r := &retrieveRequest{vectors: members.Vectors, topk: usualTopK}
	if members.TopK != nil {
		if k := *members.TopK; k != math.Trunc(k) || k < 1 || k > float64(l.TopK) {
			return nil, fmt.Errorf("topk is %v, allowed: 1 to %d", k, l.TopK)
		}
		r.topk = int(*members.TopK)
	}
	r.withScores = members.ReturnScores != nil && *members.ReturnScores
	if members.Vectors != nil {
		return r, checkVectors(members.Vectors, l, dimensions)
	}
	var err error
	if r.queries, err = texts("queries", members.Queries, l.Queries); err != nil {
		return nil, err
	}
	for k, query := range r.queries {
		if len(query) > l.QueryBytes {
			return nil, fmt.Errorf("%w: query %d has %d bytes, allowed: %d", errTooMuch, k+1, len(query), l.QueryBytes)
		}
	}
	return r, nil
}

func checkVectors(vectors [][]float32, l Limits, dimensions int) error {
	if dimensions == 0 {
		return errors.New("this service does not search by vectors")
	}
	if len(vectors) > l.Queries {
		return fmt.Errorf("%w: %d vectors, allowed: %d", errTooMuch, len(vectors), l.Queries)
	}
	for k, vector := range vectors {
		if len(vector) != dimensions {
			return fmt.Errorf("vector %d has %d numbers, want %d", k+1, len(vector), dimensions)
		}
	}
	return nil
}

// parseAccess reads {"urls": […]}; one may be a plain string.
func parseAccess(body []byte, l Limits) ([]string, error) {
	var members struct {
		URLs json.RawMessage `json:"urls"`
	}
	if err := decode(body, &members); err != nil {
		return nil, err
	}
	return texts("urls", members.URLs, l.URLs)
}

// decode reads an object; its errors are in the words of the format.
func decode(body []byte, members any) error {
	err := json.Unmarshal(body, members)
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		if err != nil {
			err = fmt.Errorf("the body is not JSON: %w", err)
		}
		return err
	}
	if wrong.Field == "" {
		return fmt.Errorf("the body is a JSON %s, want an object", wrong.Value)
	}
	want := map[string]string{"topk": "a whole number", "return_scores": "true or false", "vectors": "lists of numbers"}
	name, _, _ := strings.Cut(wrong.Field, ".")
	return fmt.Errorf("%s holds a JSON %s, want %s", name, wrong.Value, want[name])
}

// texts reads a list of strings, or one string.
func texts(name string, raw json.RawMessage, limit int) ([]string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, fmt.Errorf("there is no %q, want a list of strings", name)
	}
	if raw[0] == '"' {
		var one string
		err := json.Unmarshal(raw, &one)
		return []string{one}, err
	}
	var some []*string
	if err := json.Unmarshal(raw, &some); err != nil {
		return nil, fmt.Errorf("%s is not a list of strings", name)
	}
	if len(some) > limit {
		return nil, fmt.Errorf("%w: %d %s, allowed: %d", errTooMuch, len(some), name, limit)
	}
	list := make([]string, len(some))
	for k, text := range some {
		if text == nil {
			return nil, fmt.Errorf("%s holds null, want strings", name)
		}
		list[k] = *text
	}
	return list, nil
}
