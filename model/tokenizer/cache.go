package tokenizer

import (
	"strings"
	"sync"
)

const (
	// cachedWords bounds each of the two generations of a word cache.
	cachedWords = 1 << 15
	// longestCached is the length in bytes up to which a word is kept.
	longestCached = 64
)

// wordCache remembers the tokens of words. When a generation is full it becomes the older one,
// and what was not used since the last such change is forgotten.
type wordCache struct {
	mu         sync.RWMutex
	young, old map[string][]int32
}

func newWordCache() *wordCache { return &wordCache{young: map[string][]int32{}} }

func (c *wordCache) get(word string) ([]int32, bool) {
	c.mu.RLock()
	ids, ok := c.young[word]
	if ok {
		c.mu.RUnlock()
		return ids, true
	}
	ids, ok = c.old[word]
	c.mu.RUnlock()
	if ok {
		c.put(word, ids)
	}
	return ids, ok
}

// put keeps ids, which must not change afterwards. word is copied: it may be a part of a long text.
func (c *wordCache) put(word string, ids []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= cachedWords {
		c.young, c.old = map[string][]int32{}, c.young
	}
	c.young[strings.Clone(word)] = ids
}
