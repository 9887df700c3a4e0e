package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// maxJSONBytes bounds the configuration files of a model folder; real ones have a few kilobytes.
const maxJSONBytes = 64 << 20

// jsonFile is the top-level object of a JSON file. Its getters keep the first error, which names
// the file, the key, what was found and what is allowed; keys are matched case-sensitively.
type jsonFile struct {
	path string
	keys map[string]json.RawMessage
	err  error
}

// readJSONFile reads path, which must hold one JSON object and nothing else.
func readJSONFile(path string) (*jsonFile, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	file := &jsonFile{path: path}
	if err := json.Unmarshal(data, &file.keys); err != nil {
		return nil, fmt.Errorf("%s is not a JSON object: %w", path, err)
	}
	return file, nil
}

// readBounded reads a file of at most maxJSONBytes.
func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJSONBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	if len(data) > maxJSONBytes {
		return nil, fmt.Errorf("%s is larger than the %d bytes allowed", path, maxJSONBytes)
	}
	return data, nil
}

// bare takes the path off an error of package os, for messages that name it already.
func bare(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// sub is the object under key, or nil if the key is missing, null or no object.
func (f *jsonFile) sub(key string) *jsonFile {
	if !f.has(key) {
		return nil
	}
	object := &jsonFile{path: f.path + ": " + key}
	if json.Unmarshal(f.keys[key], &object.keys) != nil {
		f.refuse(key, "an object")
		return nil
	}
	return object
}

// has reports whether key is there with another value than null.
func (f *jsonFile) has(key string) bool {
	raw, ok := f.keys[key]
	return ok && !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// refuse records that the value of key is not one of what is allowed.
func (f *jsonFile) refuse(key, allowed string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s: %s is %s, allowed is %s", f.path, key, shown(f.keys[key]), allowed)
	}
}

// missing records that key is not there.
func (f *jsonFile) missing(key, needed string) {
	if f.err == nil {
		f.err = fmt.Errorf("%s: key %s is missing, needed is %s", f.path, key, needed)
	}
}

// shown is a JSON value as it appears in an error, cut to a readable length.
func shown(raw json.RawMessage) string {
	const limit = 80
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		line.Write(raw)
	}
	if line.Len() > limit {
		return strings.ToValidUTF8(line.String()[:limit], "") + "…"
	}
	return line.String()
}

// integer is the value of key, or fallback if the key is missing or null. A fallback of 0 makes
// the key mandatory. Allowed are 1 to 2³¹−1.
func (f *jsonFile) integer(key string, fallback int) int {
	if !f.has(key) {
		if fallback == 0 {
			f.missing(key, "a whole number from 1")
		}
		return fallback
	}
	var value int32
	if json.Unmarshal(f.keys[key], &value) != nil || value < 1 {
		f.refuse(key, "a whole number from 1 to 2147483647")
	}
	return int(value)
}

// positive is the number under key, above zero, or fallback if the key is missing or null. A
// fallback of 0 makes the key mandatory.
func (f *jsonFile) positive(key string, fallback float64) float64 {
	if !f.has(key) {
		if fallback == 0 {
			f.missing(key, "a number above 0")
		}
		return fallback
	}
	var value float64
	if json.Unmarshal(f.keys[key], &value) != nil || value <= 0 {
		f.refuse(key, "a number above 0")
	}
	return value
}

// boolean is the value of key, or fallback if the key is missing or null.
func (f *jsonFile) boolean(key string, fallback bool) bool {
	if !f.has(key) {
		return fallback
	}
	var value bool
	if json.Unmarshal(f.keys[key], &value) != nil {
		f.refuse(key, "true or false")
	}
	return value
}

// oneOf is the text under key, or fallback if the key is missing or null; other values than the
// allowed ones are refused.
func (f *jsonFile) oneOf(key, fallback string, allowed ...string) string {
	if !f.has(key) {
		return fallback
	}
	var value string
	if json.Unmarshal(f.keys[key], &value) != nil || !slices.Contains(allowed, value) {
		f.refuse(key, strings.Join(allowed, ", "))
	}
	return value
}

// tokenIDs reads token ids given as one whole number or a list of them; nil if the key is missing
// or null.
func (f *jsonFile) tokenIDs(key string) []int32 {
	if !f.has(key) {
		return nil
	}
	var ids []int32
	var id int32
	if json.Unmarshal(f.keys[key], &id) == nil {
		ids = []int32{id}
	} else if json.Unmarshal(f.keys[key], &ids) != nil {
		f.refuse(key, "a token id or a list of token ids")
		return nil
	}
	if slices.ContainsFunc(ids, func(id int32) bool { return id < 0 }) {
		f.refuse(key, "a token id or a list of token ids, each from 0")
	}
	return ids
}
