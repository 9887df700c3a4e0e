package retrieval

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/singleflight"
)

// Cache remembers what tools found, up to a number of bytes; what was not asked for longest is
// forgotten first. Only good results are kept, an empty one too. Calls for the same at the same
// time are one. It is safe for concurrent use.
type Cache struct {
	limit   int64
	hits    atomic.Int64
	flights singleflight.Group

	mutex sync.Mutex
	bytes int64
	known *simplelru.LRU[string, found]
}

// found is what a call brought: passages, or a page as the contents of one.
type found struct {
	passages []Passage
	bytes    int64
}

// entryBytes are reckoned for an entry, and again for each of its passages, beside their texts.
const entryBytes = 128

// NewCache makes a cache of at most limit bytes.
func NewCache(limit int64) *Cache {
	c := &Cache{limit: limit}
	known, err := simplelru.NewLRU(int(max(1, limit/entryBytes)), func(_ string, f found) { c.bytes -= f.bytes })
	if err != nil {
		panic(err) // for a size below 1 only
	}
	c.known = known
	return c
}

// Hits is the number of calls so far that asked nobody: that were answered by the cache, or by the
// call of another.
func (c *Cache) Hits() int64 { return c.hits.Load() }

// Searcher is a searcher behind the cache. endpoint names it: those of one name are taken to find the same.
func (c *Cache) Searcher(endpoint string, behind Searcher) Searcher {
	return &cachedSearcher{c, endpoint, behind}
}

// Accessor is an accessor behind the cache.
func (c *Cache) Accessor(endpoint string, behind Accessor) Accessor {
	return &cachedAccessor{c, endpoint, behind}
}

type cachedSearcher struct {
	cache    *Cache
	endpoint string
	behind   Searcher
}

// Search implements Searcher.
func (s *cachedSearcher) Search(ctx context.Context, query string, topk int) ([]Passage, error) {
	key := s.endpoint + "\x00search\x00" + strconv.Itoa(topk) + "\x00" + query
	return s.cache.get(ctx, key, func(ctx context.Context) ([]Passage, error) { return s.behind.Search(ctx, query, topk) })
}

type cachedAccessor struct {
	cache    *Cache
	endpoint string
	behind   Accessor
}

// Access implements Accessor.
func (a *cachedAccessor) Access(ctx context.Context, url string) (string, error) {
	passages, err := a.cache.get(ctx, a.endpoint+"\x00access\x00"+url, func(ctx context.Context) ([]Passage, error) {
		page, err := a.behind.Access(ctx, url)
		return []Passage{{Contents: page}}, err
	})
	if err != nil {
		return "", err
	}
	return passages[0].Contents, nil
}

// get answers from the cache, or calls. A call goes on when the context of whoever began it ends, as
// others may wait for it; it is bounded by what it calls.
func (c *Cache) get(ctx context.Context, key string, call func(context.Context) ([]Passage, error)) ([]Passage, error) {
	if passages, ok := c.lookUp(key); ok {
		c.hits.Add(1)
		return passages, nil
	}
	mine := false
	flight := c.flights.DoChan(key, func() (any, error) {
		mine = true // read behind the end of the flight only
		if passages, ok := c.lookUp(key); ok {
			mine = false // another call has ended since
			return passages, nil
		}
		passages, err := call(context.WithoutCancel(ctx))
		if err != nil {
			return nil, err
		}
		c.keep(key, passages)
		return passages, nil
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		if !mine {
			c.hits.Add(1)
		}
		return slices.Clone(result.Val.([]Passage)), nil
	}
}

func (c *Cache) lookUp(key string) ([]Passage, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	f, ok := c.known.Get(key)
	return slices.Clone(f.passages), ok
}

func (c *Cache) keep(key string, passages []Passage) {
	f := found{passages: slices.Clone(passages), bytes: int64(len(key)) + entryBytes}
	for _, p := range passages {
		f.bytes += int64(len(p.ID)+len(p.Contents)) + entryBytes
	}
	if f.bytes > c.limit {
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.known.Remove(key) // its bytes are given back
	c.bytes += f.bytes
	c.known.Add(key, f)
	for c.bytes > c.limit {
		c.known.RemoveOldest()
	}
}
