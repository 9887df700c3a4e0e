package bench

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func refusesOther(t *testing.T, path, want string) {
	t.Helper()
	_, err := ReadOthers(path)
	if err == nil {
		t.Errorf("%s is read, want %q", path, want)
		return
	}
	text := err.Error()
	if !strings.Contains(text, path) || !strings.Contains(text, want) || strings.ContainsAny(text, "\n") || strings.Contains(text, "Go ") {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestReadOthersRefusesContent(t *testing.T) {
	stage := func(rest string) string { return `{"stages":[{"stage":"a"` + rest + `}]}` }
	for text, want := range map[string]string{
		``:                               "broken JSON",
		`{`:                              "broken JSON",
		`{"stages":[{}]} x`:              "broken JSON: invalid character 'x' after top-level value",
		`[1]`:                            `found [1], allowed is a JSON object {"stages":[`,
		`null`:                           `no "stages"`,
		`{}`:                             `no "stages"`,
		`{"stages":null}`:                `no "stages"`,
		`{"stages":[]}`:                  `no "stages"`,
		`{"stages":{"a": 1}}`:            `"stages" is {"a":1}, allowed is a list`,
		`{"stages":[5]}`:                 `entry 1 of "stages" is 5, allowed is an object`,
		`{"stages":[{}]}`:                `entry 1 of "stages" has no "stage"`,
		`{"stages":[{"stage":5}]}`:       `"stage" of entry 1 of "stages" is 5, allowed is a name`,
		`{"stages":[{"stage":""}]}`:      `"stage" of entry 1 of "stages" is "", allowed is a name`,
		stage(``):                        `"median_seconds" of stage "a" is missing, needed is a number above 0`,
		stage(`,"median_seconds":null`):  `"median_seconds" of stage "a" is missing`,
		stage(`,"median_seconds":0`):     `"median_seconds" of stage "a" is 0, allowed is a number above 0, at most 1e+09`,
		stage(`,"median_seconds":-1`):    `"median_seconds" of stage "a" is -1, allowed`,
		stage(`,"median_seconds":1e308`): `"median_seconds" of stage "a" is 1e308, allowed`,
		stage(`,"median_seconds":1e999`): `"median_seconds" of stage "a" is 1e999, allowed`,
		stage(`,"median_seconds":"1"`):   `"median_seconds" of stage "a" is "1", allowed`,
		stage(`,"median_seconds":[` + strings.Repeat("1,", 1000) + `1]`): `"median_seconds" of stage "a" is [` + strings.Repeat("1,", 29) + "1…, allowed",
		stage(`,"median_seconds":1,"peak_memory_bytes":-1`):              `"peak_memory_bytes" of stage "a" is -1, allowed is a whole number from 0`,
		stage(`,"median_seconds":1,"peak_memory_bytes":1.5`):             `"peak_memory_bytes" of stage "a" is 1.5, allowed is a whole number`,
		stage(`,"median_seconds":1},{"stage":"a","median_seconds":1`):    `stage "a" occurs twice`,
		stage(`,"median_seconds":1},{"stage":"b"`):                       `stage "b"`,
	} {
		path := filepath.Join(t.TempDir(), "other.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refusesOther(t, path, want)
	}
}

// A pipe that nobody writes to must not be waited for, and what never ends must not be read.
func TestReadOthersRefusesWhatIsNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	refusesOther(t, dir, "is a folder, allowed is a regular file")
	refusesOther(t, os.DevNull, "is a device, allowed is a regular file")
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	refusesOther(t, pipe, "is a pipe, allowed is a regular file")
	large := filepath.Join(dir, "large.json")
	text := `{"stages":[{"stage":"a","median_seconds":1,"peak_memory_bytes":null}]}`
	full := text + strings.Repeat(" ", maxOtherBytes-len(text))
	if err := os.WriteFile(large, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if others, err := ReadOthers(large); err != nil || len(others) != 1 {
		t.Errorf("the most that is allowed: %v, %v", others, err)
	}
	if err := os.WriteFile(large, []byte(full+" "), 0o600); err != nil {
		t.Fatal(err)
	}
	refusesOther(t, large, "more than 4194304 bytes")
}
