package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// availableMemory is how many bytes programs can still have: the kernel's own estimate for the machine, or less where a
// container may not have so much; 0 where neither can be told.
func availableMemory() int64 {
	machine, known := fileNumber("/proc/meminfo", "MemAvailable:")
	left, limited := containerMemory("/sys/fs/cgroup")
	switch {
	case !known:
		return left
	case !limited:
		return machine << 10
	}
	return min(machine<<10, left)
}

// containerMemory is what the limit of a control group, whose files are mounted at root, leaves beside the memory that its
// processes hold. What it caches of files does not count: the kernel gives that up first.
func containerMemory(root string) (left int64, limited bool) {
	for _, version := range []struct{ limit, statistics, held string }{
		{"memory.max", "memory.stat", "anon"},
		{"memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss"},
	} {
		limit, limited := fileNumber(filepath.Join(root, version.limit), "") // version 2 says "max" where there is none
		if limited {
			held, _ := fileNumber(filepath.Join(root, version.statistics), version.held)
			return max(0, limit-held), true
		}
	}
	return 0, false
}

// fileNumber reads the number that follows a name on a line of a file.
func fileNumber(path, name string) (int64, bool) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		fields := strings.Fields(scanner.Text())
		if name != "" && (len(fields) == 0 || fields[0] != name) {
			continue
		}
		if name != "" {
			fields = fields[1:]
		}
		if len(fields) == 0 {
			return 0, false
		}
		number, err := strconv.ParseInt(fields[0], 10, 64)
		return number, err == nil
	}
	return 0, false
}
