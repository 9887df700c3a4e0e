package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// folder is what a run folder holds, as far as it can be read.
type folder struct {
	path         string
	config       map[string]any // nil without a config.toml that can be read
	configText   string
	results      *eval.Results // of an evaluation; nil without
	measured     []measured    // by step, each step once
	events       []event
	trajectories []trajectoryFile
	notes        []string // what is missing or could not be read, a sentence each

	tokenizer       *tokenizer.Tokenizer // see tokenizerOf
	tokenizerSought bool
}

// measured is one line of metrics.jsonl; null, a figure that could not be measured, is nil.
type measured struct {
	step   int64
	values map[string]*float64
}

// event is one line of log.jsonl.
type event struct {
	Level   string  `json:"level"`
	Seconds float64 `json:"ts"`
	Message string  `json:"msg"`
	Step    *int64  `json:"step,omitempty"`
	Error   string  `json:"error,omitempty"`
}

func (e event) time() time.Time { return time.UnixMicro(int64(e.Seconds * 1e6)) }

// trajectoryFile is one file of trajectories. Its name without the ending tells which one.
type trajectoryFile struct {
	name  string
	step  int64 // 0 where the name has none
	path  string
	bytes int64
}

// openFolder reads everything but the trajectories.
func openFolder(dir string) (*folder, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, fault.Usage(fmt.Errorf("run folder %s cannot be read: %w", dir, durable.Bare(err)))
	} else if !info.IsDir() {
		return nil, fault.Usage(fmt.Errorf("%s is a file; the folder of a run is wanted", dir))
	}
	f := &folder{path: dir}
	reads := []func() (found bool, err error){f.readConfig, f.readMetrics, f.readTrajectoryNames, f.readResults, f.readLog}
	isRun := false
	for _, read := range reads {
		found, err := read()
		if err != nil {
			return nil, fault.Environment(fmt.Errorf("run folder %s cannot be read: %w", dir, err))
		}
		isRun = isRun || found
	}
	if !isRun {
		return nil, fault.Usage(fmt.Errorf("%s is no run folder: it has none of config.toml, metrics.jsonl, trajectories, results.json, log.jsonl", dir))
	}
	return f, nil
}

// note adds a sentence about what is missing.
func (f *folder) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// read reads a file whole; without it, found is false.
func (f *folder) read(name string) (data []byte, found bool, err error) {
	data, err = os.ReadFile(filepath.Join(f.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}

func (f *folder) readConfig() (bool, error) {
	data, found, err := f.read("config.toml")
	if err != nil || !found {
		f.note("config.toml is missing: the settings of the run are not known.")
		return false, err
	}
	f.configText = string(data)
	if err := toml.Unmarshal(data, &f.config); err != nil {
		f.config = nil
		f.note("config.toml cannot be read: %v.", err)
	}
	return true, nil
}

// setting is the value of a dotted key of config.toml, nil without one.
func (f *folder) setting(key string) any {
	var value any = f.config
	for name := range strings.SplitSeq(key, ".") {
		table, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = table[name]
	}
	return value
}

// readResults reads the results of an evaluation, less the answers, which are trajectories too.
func (f *folder) readResults() (bool, error) {
	path := filepath.Join(f.path, "results.json")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	results, err := eval.Read(path)
	if err != nil {
		f.note("%v.", err)
		return true, nil
	}
	for _, result := range results.Contexts {
		result.Answers = nil
	}
	f.results = results
	return true, nil
}

// readMetrics reads the lines in the order of their steps; of a step that occurs twice the later
// line counts.
func (f *folder) readMetrics() (bool, error) {
	byStep := map[int64]map[string]*float64{}
	found, err := f.eachLine("metrics.jsonl", func(line []byte) error {
		values := map[string]*float64{}
		if err := json.Unmarshal(line, &values); err != nil {
			return err
		}
		step := values["step"]
		if step == nil {
			return errors.New("it has no step")
		}
		delete(values, "step")
		byStep[int64(*step)] = values
		return nil
	})
	for _, step := range slices.Sorted(maps.Keys(byStep)) {
		f.measured = append(f.measured, measured{step, byStep[step]})
	}
	return found, err
}

func (f *folder) readLog() (bool, error) {
	return f.eachLine("log.jsonl", func(line []byte) error {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		f.events = append(f.events, e)
		return nil
	})
}

// eachLine calls take with each line of a file in the run folder. Lines that it refuses are left
// out and noted.
func (f *folder) eachLine(name string, take func(line []byte) error) (found bool, err error) {
	file, err := os.Open(filepath.Join(f.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	refused, err := eachLine(file, take)
	if refused.count > 0 {
		f.note("%s: %s", name, refused)
	}
	return true, err
}

// refusedLines counts the lines of a file that could not be used.
type refusedLines struct {
	count  int
	number int // of the first
	err    error
	cutOff bool // the only one is the last, and has no end
}

func (r refusedLines) String() string {
	switch {
	case r.cutOff:
		return "the last line is not finished and was left out."
	case r.count == 1:
		return fmt.Sprintf("line %d cannot be read and was left out: %v.", r.number, r.err)
	}
	return fmt.Sprintf("%d lines cannot be read and were left out, first line %d: %v.", r.count, r.number, r.err)
}

// eachLine calls take with each line that is not blank.
func eachLine(r io.Reader, take func(line []byte) error) (refused refusedLines, err error) {
	lines := bufio.NewReaderSize(r, 1<<16)
	for number := 1; ; number++ {
		line, readErr := lines.ReadBytes('\n')
		if readErr != nil && readErr != io.EOF {
			return refused, readErr
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := take(line); err != nil {
				if refused.count++; refused.count == 1 {
					refused.number, refused.err, refused.cutOff = number, err, readErr == io.EOF
				}
			}
		}
		if readErr == io.EOF {
			return refused, nil
		}
	}
}

var stepName = regexp.MustCompile(`^step_([0-9]{1,18})`)

// readTrajectoryNames lists the files of trajectories in the order of their steps.
func (f *folder) readTrajectoryNames() (bool, error) {
	entries, err := os.ReadDir(filepath.Join(f.path, "trajectories"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		name, isRows := cutExtension(entry.Name(), ".jsonl")
		info, err := entry.Info()
		if !isRows || err != nil || !info.Mode().IsRegular() {
			continue
		}
		file := trajectoryFile{name: name, path: filepath.Join("trajectories", entry.Name()), bytes: info.Size()}
		if match := stepName.FindStringSubmatch(name); match != nil {
			if file.step, err = strconv.ParseInt(match[1], 10, 64); err != nil {
				continue
			}
		}
		f.trajectories = append(f.trajectories, file)
	}
	slices.SortStableFunc(f.trajectories, func(a, b trajectoryFile) int { return int(a.step - b.step) })
	return true, nil
}

func cutExtension(name, extension string) (string, bool) {
	if filepath.Ext(name) != extension {
		return "", false
	}
	return name[:len(name)-len(extension)], true
}
