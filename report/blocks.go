package report

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/rollout"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
)

// trajectoryBytes bounds the files of trajectories that go into one page, so that a browser can
// still open it: they shrink to about a tenth.
const trajectoryBytes = 512 << 20

// compressed is one file of trajectories in the page: a summary for its list of steps, and the
// trajectories, which the page unpacks when they are asked for.
type compressed struct {
	Name      string   `json:"name"`
	Step      int64    `json:"step"`
	Count     int      `json:"count"`
	Score     *short   `json:"score"`     // mean over those that have one
	Scale     short    `json:"scale"`     // advantage that gets the strongest tint, see scale
	Questions []string `json:"questions"` // ids

	data []byte // base64 of gzip of the JSON of a block
}

// compressTrajectories reads and packs the files of trajectories. Beyond limit bytes in all, files
// are left out evenly, the first and the last never.
func (f *folder) compressTrajectories(limit int64) ([]*compressed, error) {
	chosen := thinned(f.trajectories, limit)
	if left := len(f.trajectories) - len(chosen); left > 0 {
		f.note("The trajectories of %d of %d steps were left out: all together are too large for one page.", left, len(f.trajectories))
	}
	var blocks []*compressed
	for _, file := range chosen {
		content, err := f.readBlock(file)
		if err != nil {
			return nil, err
		}
		if len(content.Trajectories) == 0 {
			continue
		}
		packed, err := content.compress(file)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, packed)
	}
	if isSupervised := f.setting("sft") != nil; len(blocks) == 0 && !isSupervised {
		f.note("There are no trajectories.")
	}
	return blocks, nil
}

// thinned takes every n-th file, n being the least that keeps them below limit bytes, and the last
// one.
func thinned(files []trajectoryFile, limit int64) []trajectoryFile {
	for stride := 1; ; stride++ {
		var chosen []trajectoryFile
		bytes := int64(0)
		for k, file := range files {
			if k%stride == 0 || k == len(files)-1 {
				chosen = append(chosen, file)
				bytes += file.bytes
			}
		}
		if bytes <= limit || len(chosen) <= 2 {
			return chosen
		}
	}
}

// readBlock reads a file of trajectories. Lines that cannot be read are left out and noted.
func (f *folder) readBlock(file trajectoryFile) (*block, error) {
	in, err := os.Open(filepath.Join(f.path, file.path))
	if err != nil {
		return nil, fault.Environment(fmt.Errorf("trajectories cannot be read: %w", err))
	}
	defer in.Close()
	b := &block{}
	refused, err := eachLine(in, func(line []byte) error {
		var record rollout.Record
		if err := json.Unmarshal(line, &record); err != nil {
			return err
		}
		b.add(&record, f.tokenizerOf(&record))
		return nil
	})
	if err != nil {
		return nil, fault.Environment(fmt.Errorf("trajectories cannot be read: %w", err))
	}
	if refused.count > 0 {
		f.note("%s: %s", file.path, refused)
	}
	return b, nil
}

// add puts a trajectory to the others of its question.
func (b *block) add(r *rollout.Record, tok *tokenizer.Tokenizer) {
	t := newTrajectory(r, tok)
	t.Question = slices.IndexFunc(b.Questions, func(q *question) bool { return q.ID == r.QuestionID && q.draw == r.Draw })
	if t.Question < 0 {
		t.Question = len(b.Questions)
		b.Questions = append(b.Questions, &question{
			ID: r.QuestionID, Text: r.Question, Golden: r.GoldenAnswers, Prompt: r.Prompt, PromptTokens: len(r.PromptIDs), draw: r.Draw,
		})
	}
	b.Trajectories = append(b.Trajectories, t)
}

// compress packs a block for the page.
func (b *block) compress(file trajectoryFile) (*compressed, error) {
	c := &compressed{Name: file.name, Step: file.step, Count: len(b.Trajectories), Scale: b.scale()}
	for _, q := range b.Questions {
		c.Questions = append(c.Questions, q.ID)
	}
	sum, scored := 0.0, 0.0
	for _, t := range b.Trajectories {
		if t.Score != nil {
			sum += float64(*t.Score)
			scored++
		}
	}
	if scored > 0 {
		mean := short(sum / scored)
		c.Score = &mean
	}
	var out bytes.Buffer
	encoder := base64.NewEncoder(base64.StdEncoding, &out)
	packer := gzip.NewWriter(encoder)
	if err := json.NewEncoder(packer).Encode(b); err != nil {
		return nil, fmt.Errorf("%s: %w", file.path, err)
	}
	if err := errors.Join(packer.Close(), encoder.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", file.path, err)
	}
	c.data = out.Bytes()
	return c, nil
}

// scale is the size of advantage that 19 of 20 trained tokens do not exceed, those without an advantage
// left out, so that a few large ones do not make all others pale. It is 1 where there are none.
func (b *block) scale() short {
	var sizes []run
	total := 0
	for _, t := range b.Trajectories {
		for _, r := range t.Strip {
			if size := math.Abs(float64(r.value)); size > 0 && !math.IsInf(size, 0) { // no NaN either
				sizes = append(sizes, run{short(size), r.times})
				total += r.times
			}
		}
	}
	slices.SortFunc(sizes, func(a, b run) int { return cmp.Compare(a.value, b.value) })
	below := 0
	for _, r := range sizes {
		if below += r.times; 20*below >= 19*total {
			return r.value
		}
	}
	return 1
}

// tokenizerOf finds the run's tokenizer by means of its first trajectory: that of the model which
// the run started from, or of its newest checkpoint, if it makes the prompt's text of the prompt's
// ids. It is nil if there is none.
func (f *folder) tokenizerOf(first *rollout.Record) *tokenizer.Tokenizer {
	if f.tokenizerSought {
		return f.tokenizer
	}
	f.tokenizerSought = true
	var tried []string
	for _, dir := range f.modelFolders() {
		tok, err := tokenizer.Load(dir)
		switch {
		case err != nil:
			tried = append(tried, err.Error())
		case tok.Decode(first.PromptIDs) != first.Prompt:
			tried = append(tried, dir+" has another tokenizer than the run had")
		default:
			f.tokenizer = tok
			return tok
		}
	}
	f.note("The tokenizer of the run is not there, so tokens are not told apart: each part of a turn has the tint of their mean advantage. %s",
		strings.Join(append(tried, ""), ". "))
	return nil
}

// modelFolders are the folders in which the run's tokenizer may be.
func (f *folder) modelFolders() []string {
	var dirs []string
	if path, ok := f.setting("model.path").(string); ok && path != "" {
		dirs = append(dirs, path)
	}
	if newest, err := checkpoint.Latest(f.path); err == nil && newest != "" {
		dirs = append(dirs, newest)
	}
	return dirs
}
