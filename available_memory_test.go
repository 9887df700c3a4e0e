package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A container has what its limit leaves beside the memory that its processes hold, not beside cached files.
func TestMemoryOfAContainer(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		left    int64
		limited bool
	}{
		"none":                 {nil, 0, false},
		"version 2":            {map[string]string{"memory.max": "1000\n", "memory.stat": "file 500\nanon 300\nanon_thp 9\n"}, 700, true},
		"version 2, no limit":  {map[string]string{"memory.max": "max\n", "memory.stat": "anon 300\n"}, 0, false},
		"version 2, exhausted": {map[string]string{"memory.max": "200\n", "memory.stat": "anon 300\n"}, 0, true},
		"version 1":            {map[string]string{"memory/memory.limit_in_bytes": "1000\n", "memory/memory.stat": "cache 5\nrss 1\ntotal_rss 400\n"}, 600, true},
		"empty files":          {map[string]string{"memory.max": "", "memory/memory.limit_in_bytes": "\n"}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if left, limited := containerMemory(root); left != c.left || limited != c.limited {
				t.Errorf("%d bytes are left, limited %v; want %d, %v", left, limited, c.left, c.limited)
			}
		})
	}
}

func TestAvailableMemory(t *testing.T) {
	if got := availableMemory(); got < 1<<20 {
		t.Errorf("programs can have %d bytes", got)
	}
}
