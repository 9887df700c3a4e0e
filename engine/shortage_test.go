package engine

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/mempo-train/mempo-train/model"
)

// A tensor that no machine has the memory for is an error, of one line.
func TestNoMemoryForATensorOfAWeightFile(t *testing.T) {
	load(t, "qwen2-tiny", Options{}) // starts the runtime
	var number float32
	_, err := tensorOf(unsafe.Pointer(&number), "F32", []int64{1 << 60})
	if !errors.Is(err, model.ErrOutOfMemory) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// The largest bound of a cache is no bound in effect.
func TestTheLargestBoundOfACache(t *testing.T) {
	m := load(t, "qwen2-tiny", Options{})
	s, err := m.NewSession(model.SessionOptions{CacheTokens: math.MaxInt})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if u := s.Usage(); u.Limit != math.MaxInt/u.PageTokens+1 {
		t.Errorf("%d pages of %d tokens", u.Limit, u.PageTokens)
	}
}
