package retrieval

import "golang.org/x/sys/unix"

// reservedFiles are left to models, indexes, logs and everything else that is open.
const reservedFiles = 64

// MostConnections is how many connections the process's limit of open files has room for: more would
// fail where waiting for a place succeeds.
func MostConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<16 {
		return 1 << 16
	}
	return max(1, int(limit.Cur)-reservedFiles)
}
