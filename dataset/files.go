package dataset

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Expand turns names of files and patterns of names into names. In a pattern, '*' stands for any
// part of one name and '?' for a character of it, [a-c] for one of these (filepath.Match); what it
// matches comes sorted, and something must. A name that exists is taken as it is.
func Expand(patterns []string) ([]string, error) {
	var files []string
	for _, pattern := range patterns {
		matches, err := matching(pattern)
		if err != nil {
			return nil, err
		}
		files = append(files, matches...)
	}
	return files, nil
}

// noMatch is a pattern without a file, an error like that of a name without one.
type noMatch string

func (n noMatch) Error() string { return fmt.Sprintf("the pattern %q matches no file", string(n)) }

// Is makes it one of fs.ErrNotExist.
func (n noMatch) Is(target error) bool { return target == fs.ErrNotExist }

func matching(pattern string) ([]string, error) {
	if _, err := os.Stat(pattern); err == nil || !strings.ContainsAny(pattern, `*?[`) {
		return []string{pattern}, nil
	}
	matches, err := filepath.Glob(pattern) // sorted
	if err != nil {
		return nil, fmt.Errorf("the pattern %q is broken: %w", pattern, err)
	}
	if len(matches) == 0 {
		return nil, noMatch(pattern)
	}
	return matches, nil
}

// twice is a file that stands in a list under another name or the same one before, "" without one.
func twice(files []string) string {
	seen := map[string]bool{}
	for _, file := range files {
		target, err := filepath.EvalSymlinks(file)
		if err == nil {
			target, err = filepath.Abs(target)
		}
		if err != nil {
			target = file // reading it says what is wrong
		}
		if seen[target] {
			return file
		}
		seen[target] = true
	}
	return ""
}
