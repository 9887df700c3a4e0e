package rollout

import (
	"reflect"
	"testing"

	"github.com/mempo-train/mempo-train/retrieval"
)

// A cache before the tool changes nothing about what is sampled, and which rows share a batch.
func TestACacheChangesNothing(t *testing.T) {
	o := toyOptions(4)
	drawn := questions(3)
	script := func(k SeedKey) string {
		if k.Turn < 2 {
			return "<mem>m</mem><think>t</think><search>" + k.Question + "</search>"
		}
		return twoTurns(k)
	}
	p := newFakePolicy(t, o, drawn, script)
	groups, stats := run(t, p, o, drawn, searchTools(echo))
	if stats.ToolCacheHits != 0 {
		t.Errorf("%d hits without a cache", stats.ToolCacheHits)
	}
	cache := retrieval.NewCache(1 << 20)
	tools := searchTools(nil)
	tools.Search, tools.CacheHits = cache.Searcher("s", searchFunc(echo)), cache.Hits
	for round, hits := range []int{21, 24} {
		cached := newFakePolicy(t, o, drawn, script)
		again, stats := run(t, cached, o, drawn, tools)
		if !reflect.DeepEqual(texts(again), texts(groups)) || cached.batchText() != p.batchText() {
			t.Errorf("round %d: another run", round)
		}
		if stats.ToolCalls != 24 || stats.ToolCacheHits != hits {
			t.Errorf("round %d: %d calls, %d hits", round, stats.ToolCalls, stats.ToolCacheHits)
		}
	}
}
