package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
		Vectors      json.RawMessage `json:"vectors"`
		TopK         *float64        `json:"topk"`
		ReturnScores *bool           `json:"return_scores"`
	}
	if err := decode(body, &members); err != nil {
		return nil, err
	}
	r := &retrieveRequest{topk: usualTopK}
	if members.TopK != nil {
		if k := *members.TopK; k != math.Trunc(k) || k < 1 || k > float64(l.TopK) {
			return nil, fmt.Errorf("topk is %v, allowed: 1 to %d", k, l.TopK)
		}
		r.topk = int(*members.TopK)
	}
	r.withScores = members.ReturnScores != nil && *members.ReturnScores
	var err error
	if given(members.Vectors) {
		r.vectors, err = vectors(members.Vectors, l, dimensions)
		return r, err
	}
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

// vectors reads a list of vectors of so many dimensions.
func vectors(raw json.RawMessage, l Limits, dimensions int) ([][]float32, error) {
	if dimensions == 0 {
		return nil, errors.New("this service does not search by vectors")
	}
	list, err := elements[[]float32]("vectors", "a list of lists of numbers", raw, l.Queries)
	for k, vector := range list {
		if len(vector) != dimensions {
			return nil, fmt.Errorf("vector %d has %d numbers, want %d", k+1, len(vector), dimensions)
		}
	}
	return list, err
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
	want := map[string]string{"topk": "a whole number", "return_scores": "true or false"}
	return fmt.Errorf("%s holds a JSON %s, want %s", wrong.Field, wrong.Value, want[wrong.Field])
}

// texts reads a list of strings, or one string.
func texts(name string, raw json.RawMessage, limit int) ([]string, error) {
	if !given(raw) {
		return nil, fmt.Errorf("there is no %q, want a list of strings", name)
	}
	if raw[0] == '"' {
		var one string
		err := json.Unmarshal(raw, &one)
		return []string{one}, err
	}
	some, err := elements[*string](name, "a list of strings", raw, limit)
	if err != nil {
		return nil, err
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

// given reports whether a member is there and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// elements reads a list of valid JSON up to a limit. What is behind that is not looked at: a short
// text of many empty elements would take many times its length.
func elements[T any](name, want string, raw json.RawMessage, limit int) (list []T, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return nil, fmt.Errorf("%s is not %s", name, want)
	}
	for decoder.More() {
		if len(list) == limit {
			return nil, fmt.Errorf("%w: more than %d %s", errTooMuch, limit, name)
		}
		var element T
		if err := decoder.Decode(&element); err != nil {
			return nil, fmt.Errorf("%s is not %s", name, want)
		}
		list = append(list, element)
	}
	return list, nil
}
