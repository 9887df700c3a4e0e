package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// The files of a world's folder, beside the model's folder.
const (
	CorpusFile             = "corpus.jsonl"
	TrainFile              = "train.jsonl"
	EvalFile               = "eval.jsonl"
	DemonstrationsFile     = "demonstrations.jsonl"
	EvalDemonstrationsFile = "demonstrations_eval.jsonl"
	ModelFolder            = "model"
	// MarkFile tells a world's folder from others: it holds the options that it was made with.
	MarkFile = "world.json"
)

// Write makes a world in the folder dir, whole or not at all. A world that is there already is
// replaced, any other folder or file is an error. line is told what has been done.
func Write(dir string, o Options, line func(string)) error {
	p, err := o.plan()
	if err != nil {
		return err
	}
	if err := replaceable(dir); err != nil {
		return err
	}
	place, err := resolved(dir)
	if err != nil {
		return err
	}
	temporary := place + durable.TempSuffix
	lock, err := begin(temporary, dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err = p.write(temporary, line); err == nil {
		err = moveIn(temporary, place)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return nil
}

// resolved is where a folder lies, links followed: a name beside it is on the same disk.
func resolved(dir string) (string, error) {
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	place, err := filepath.Abs(dir)
	if err != nil {
		return "", fault.Environment(fmt.Errorf("world.dir %s cannot be found: %w", dir, err))
	}
	return place, nil
}

// begin makes the folder that a world is written in, rid of what one that was broken off left there.
// Its lock keeps off a second process, until it is closed.
func begin(temporary, dir string) (*os.File, error) {
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", dir, durable.Bare(err))
	}
	lock, err := os.Open(temporary)
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", dir, durable.Bare(err))
	}
	if err := acquire(lock, temporary); err != nil {
		return nil, errors.Join(fault.Usage(fmt.Errorf("world.dir %s is being written by another process: %w", dir, err)), lock.Close())
	}
	entries, err := os.ReadDir(temporary)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(temporary, entry.Name())))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make room for %s: %w", dir, err), lock.Close())
	}
	return lock, nil
}

// acquire locks an open folder, which must not have been moved away since it was opened.
func acquire(folder *os.File, path string) error {
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	opened, err := folder.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(opened, there) {
		return errors.New("it has just ended")
	}
	return nil
}

// replaceable refuses to put a world in the place of anything but another, which holds nothing else,
// such as a run.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return fault.Usage(fmt.Errorf("world.dir %s cannot hold a world: %w", dir, durable.Bare(err)))
	}
	if _, err := os.Stat(filepath.Join(dir, MarkFile)); err != nil {
		return fault.Usage(fmt.Errorf("world.dir %s is a folder without %s, so it holds other things than a world; name a new folder, or an empty one", dir, MarkFile))
	}
	ours := []string{CorpusFile, TrainFile, EvalFile, DemonstrationsFile, EvalDemonstrationsFile, ModelFolder, MarkFile}
	for _, entry := range entries {
		if !slices.Contains(ours, entry.Name()) {
			return fault.Usage(fmt.Errorf("world.dir %s holds %s beside a world, which would be lost; move that away, or name another folder", dir, entry.Name()))
		}
	}
	return nil
}

// moveIn puts a finished folder in the place of what is at dir, which comes back where that fails.
func moveIn(temporary, dir string) error {
	old := temporary + durable.TempSuffix
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("cannot replace %s: %w", dir, err)
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot replace %s: %w", dir, durable.Bare(err))
	}
	if err := os.Rename(temporary, dir); err != nil {
		_ = os.Rename(old, dir) // fails where there was nothing
		return fmt.Errorf("cannot write %s: %w", dir, durable.Bare(err))
	}
	return errors.Join(durable.SyncDir(filepath.Dir(filepath.Clean(dir))), os.RemoveAll(old))
}

func (p *plan) write(dir string, line func(string)) error {
	model := filepath.Join(dir, ModelFolder)
	if err := os.MkdirAll(model, 0o755); err != nil {
		return fmt.Errorf("cannot write %s: %w", dir, durable.Bare(err))
	}
	a := p.atlas(runWorld)
	if err := p.writeQuestions(dir, a, line); err != nil {
		return err
	}
	if err := writeLines(filepath.Join(dir, CorpusFile), a.writeCorpus); err != nil {
		return err
	}
	line(fmt.Sprintf("%s: %d passages", CorpusFile, len(a.names)))
	for _, part := range []struct {
		file string
		draw func(func([]Message) error) error
	}{{DemonstrationsFile, p.demonstrations}, {EvalDemonstrationsFile, p.evalDemonstrations}} {
		if err := writeDemonstrations(dir, part.file, part.draw, line); err != nil {
			return err
		}
	}
	if err := p.writeModel(model, p.cast); err != nil {
		return err
	}
	line(ModelFolder + ": the small model and its tokenizer")
	if err := durable.SyncDir(model); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, MarkFile), p.Options)
}

// contents is a passage as a corpus holds it.
func contents(title, text string) string { return strconv.Quote(title) + "\n" + text }

func (a *atlas) writeCorpus(write func(any) error) error {
	for e := range a.names {
		title, text := a.passage(entity(e))
		passage := struct {
			ID       string `json:"id"`
			Contents string `json:"contents"`
		}{fmt.Sprintf("%s-%d", kindNames[a.kinds[e]], e+1), contents(title, text)}
		if err := write(passage); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) writeQuestions(dir string, a *atlas, line func(string)) error {
	train, eval, err := p.questions(a)
	if err != nil {
		return err
	}
	for _, set := range []struct {
		file, prefix string
		questions    []*question
	}{{TrainFile, "train", train}, {EvalFile, "eval", eval}} {
		err := writeLines(filepath.Join(dir, set.file), func(write func(any) error) error {
			for k, q := range set.questions {
				if err := write(q.record(fmt.Sprintf("%s-%d", set.prefix, k+1))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		line(fmt.Sprintf("%s: %d questions", set.file, len(set.questions)))
	}
	return nil
}

// questionRecord is a line of a question file.
type questionRecord struct {
	ID            string `json:"id"`
	Question      string `json:"question"`
	GoldenAnswers any    `json:"golden_answers"` // a list, or a list of lists for several objectives
	DataSource    string `json:"data_source"`    // the shape
	Hops          int    `json:"hops"`           // of the longest chain
}

func (q *question) record(id string) questionRecord {
	s := q.shape()
	r := questionRecord{ID: id, Question: q.text(), DataSource: s.String()}
	var lists [][]string
	for k, answer := range q.golden() {
		lists = append(lists, []string{answer})
		r.Hops = max(r.Hops, s[k])
	}
	r.GoldenAnswers = lists
	if len(lists) == 1 {
		r.GoldenAnswers = lists[0]
	}
	return r
}

func writeDemonstrations(dir, file string, draw func(func([]Message) error) error, line func(string)) error {
	count := 0
	err := writeLines(filepath.Join(dir, file), func(write func(any) error) error {
		return draw(func(messages []Message) error {
			count++
			return write(struct {
				Messages []Message `json:"messages"`
			}{messages})
		})
	})
	if err != nil {
		return err
	}
	line(fmt.Sprintf("%s: %d demonstrations", file, count))
	return nil
}

// writeLines writes JSON lines.
func writeLines(path string, fill func(write func(any) error) error) error {
	return durable.WriteFile(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		return fill(encoder.Encode)
	})
}

func writeJSON(path string, content any) error {
	return durable.WriteFile(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(content)
	})
}
