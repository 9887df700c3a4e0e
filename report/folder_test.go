package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
)

func TestFoldersThatAreNoRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "cannot be read: no such file or directory",
		file:                          "is a file; the folder of a run is wanted",
		filepath.Join(dir, "empty"):   "is no run folder: it has none of config.toml, metrics.jsonl, trajectories",
	} {
		_, err := Write(path)
		if err == nil || fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), path+" ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v with exit code %d, want %q", err, fault.Code(err), want)
		}
		if _, err := os.Stat(filepath.Join(path, fileName)); err == nil {
			t.Errorf("%s: a report was left", path)
		}
	}
}

func TestAFolderThatCannotBeWritten(t *testing.T) {
	dir := makeRun(t, shape{steps: 1, questions: 1, group: 1, turns: 1, text: ordinary})
	must(t, os.Mkdir(filepath.Join(dir, fileName), 0o755)) // in the report's place; root may write anywhere
	if _, err := Write(dir); err == nil || fault.Code(err) != fault.CodeEnvironment || !strings.Contains(err.Error(), fileName) {
		t.Errorf("%v with exit code %d", err, fault.Code(err))
	}
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	must(t, err)
	_, err = file.WriteString(text)
	must(t, err)
	must(t, file.Close())
}

// Whatever is missing or broken off, there is a report of the rest, and it says so.
func TestFoldersThatAreNotWhole(t *testing.T) {
	type check func(o seenOverview) bool
	for name, test := range map[string]struct {
		spoil func(t *testing.T, dir string)
		note  string
		holds check
	}{
		"whole": {func(*testing.T, string) {}, "", func(o seenOverview) bool { return len(o.Steps) == 4 && len(o.Blocks) == 4 && len(o.Events) == 2 }},
		"metrics broken off": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "metrics.jsonl"), `{"step":5,"score/to`)
			},
			"metrics.jsonl: the last line is not finished and was left out.", func(o seenOverview) bool { return len(o.Steps) == 4 },
		},
		"foreign lines in metrics": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "metrics.jsonl"), "\x00\x00\n{}\n{\"step\":9,\"score/em\":0.5}\n")
			},
			"metrics.jsonl: 2 lines cannot be read and were left out, first line 5: ", func(o seenOverview) bool { return slices.Equal(o.Steps, []int64{1, 2, 3, 4, 9}) },
		},
		"a step twice": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "metrics.jsonl"), "{\"step\":2,\"score/em\":0.75}\n")
			},
			"", func(o seenOverview) bool { return len(o.Steps) == 4 && *o.Charts[0].Curves[1].Values[1] == 0.75 },
		},
		"trajectories broken off": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "trajectories", "step_000004.jsonl"), `{"step":4,"question`)
			},
			"trajectories/step_000004.jsonl: the last line is not finished and was left out.", func(o seenOverview) bool { return o.Blocks[3].Count == 2 },
		},
		"a bad trajectory": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "trajectories", "step_000004.jsonl"), "{\"turns\":3}\n")
			},
			"trajectories/step_000004.jsonl: line 3 cannot be read and was left out: ", func(o seenOverview) bool { return o.Blocks[3].Count == 2 },
		},
		"an empty file of trajectories": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "trajectories", "step_000009.jsonl"), "")
			},
			"", func(o seenOverview) bool { return len(o.Blocks) == 4 },
		},
		"other files among the trajectories": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "trajectories", "step_000002.jsonl.tmp"), "x")
				must(t, os.Mkdir(filepath.Join(dir, "trajectories", "step_000003.jsonl.d"), 0o755))
				must(t, os.Mkdir(filepath.Join(dir, "trajectories", "folder.jsonl"), 0o755))
			},
			"", func(o seenOverview) bool { return len(o.Blocks) == 4 },
		},
		"no trajectories": {
			func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "trajectories"))) },
			"There are no trajectories.", func(o seenOverview) bool { return len(o.Blocks) == 0 && len(o.Charts) > 0 },
		},
		"no metrics": {
			func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "metrics.jsonl"))) },
			"metrics.jsonl is missing or empty: there are no curves.", func(o seenOverview) bool { return len(o.Charts) == 0 && len(o.Blocks) == 4 },
		},
		"no config": {
			func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "config.toml"))) },
			"config.toml is missing: the settings of the run are not known.", func(o seenOverview) bool { return len(o.Settings) == 0 && len(o.Blocks) == 4 },
		},
		"a config broken off": {
			func(t *testing.T, dir string) { appendText(t, filepath.Join(dir, "config.toml"), "[rewa") },
			"config.toml cannot be read: ", func(o seenOverview) bool { return strings.HasSuffix(o.Config, "[rewa") },
		},
		"a log broken off": {
			func(t *testing.T, dir string) {
				appendText(t, filepath.Join(dir, "log.jsonl"), `{"level":"warn","ts":179`)
			},
			"log.jsonl: the last line is not finished", func(o seenOverview) bool { return len(o.Events) == 2 },
		},
		"results of another program": {
			func(t *testing.T, dir string) { appendText(t, filepath.Join(dir, "results.json"), "[]") },
			"results.json holds no results of an evaluation", func(o seenOverview) bool { return o.Results == nil && len(o.Blocks) == 4 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := makeRun(t, shape{steps: 4, questions: 1, group: 2, turns: 1, text: ordinary})
			test.spoil(t, dir)
			o := overviewOf(t, written(t, dir))
			notes := strings.Join(o.Notes, "\n")
			if !strings.Contains(notes, test.note) || (test.note == "") != (notes == "") {
				t.Errorf("notes %q, want %q", notes, test.note)
			}
			if !test.holds(o) {
				t.Errorf("the page has %+v", o)
			}
		})
	}
}

// A run that is only just beginning has a report, and one of nothing but a config.
func TestAnEmptyRun(t *testing.T) {
	dir := t.TempDir()
	appendText(t, filepath.Join(dir, "config.toml"), "[run]\nsteps = 3\n")
	o := overviewOf(t, written(t, dir))
	if len(o.Notes) != 2 || len(o.Steps) != 0 || len(o.Blocks) != 0 {
		t.Errorf("%+v", o)
	}
}

// A supervised start has no trajectories to miss.
func TestReportOfASupervisedStart(t *testing.T) {
	dir := t.TempDir()
	appendText(t, filepath.Join(dir, "config.toml"), "[sft]\ndemonstrations_per_step = 16\n")
	appendText(t, filepath.Join(dir, "metrics.jsonl"), "{\"step\":1,\"loss/nll\":6.5}\n{\"step\":2,\"loss/nll\":5.5,\"eval/nll\":6}\n")
	o := overviewOf(t, written(t, dir))
	if len(o.Notes) != 0 || len(o.Charts) != 1 || len(o.Charts[0].Curves) != 2 || o.Headlines[0].First != 6.5 || o.Headlines[1].Last != 6 {
		t.Errorf("%+v", o)
	}
}

func TestReportOfAnEvaluation(t *testing.T) {
	dir := makeRun(t, shape{steps: 1, questions: 2, group: 1, turns: 2, text: ordinary})
	must(t, os.Remove(filepath.Join(dir, "metrics.jsonl")))
	must(t, os.Rename(filepath.Join(dir, "trajectories", "step_000001.jsonl"), filepath.Join(dir, "trajectories", "step_000000_limited.jsonl")))
	results := &eval.Results{
		Model: eval.Model{Path: "models/<b>"}, Settings: map[string]any{"eval.samples": 2},
		Contexts: []*eval.Result{{
			Context: rollout.Limited, Overall: eval.Figures{N: 2, EM: 0.5, PassAtK: []rollout.Number{0.5, 0.75}},
			Groups:  []eval.Group{{By: eval.ByHops, Key: "2", Figures: eval.Figures{N: 2, EM: 0.5}}},
			Answers: []eval.Answer{{QuestionID: "an answer"}},
		}},
	}
	must(t, results.Write(filepath.Join(dir, "results.json")))
	page := written(t, dir)
	o := overviewOf(t, page)
	if len(o.Headlines) != 1 || o.Headlines[0].Name != "exact match, limited context" || o.Headlines[0].Last != 0.5 || o.Headlines[0].To != 0 {
		t.Errorf("headlines %+v", o.Headlines)
	}
	if len(o.Blocks) != 1 || o.Blocks[0].Name != "step_000000_limited" || o.Blocks[0].Step != 0 || len(o.Notes) != 0 {
		t.Errorf("blocks %+v, notes %v", o.Blocks, o.Notes)
	}
	if o.Results == nil || strings.Contains(page, "an answer") {
		t.Errorf("results %v", o.Results)
	}
}

// What a turn in limited context was given is in the page.
func TestContextOfATurn(t *testing.T) {
	question := dataset.Question{ID: "q", Text: "?", Objectives: [][]string{{"a"}}}
	r := rollout.NewRecord(1, question, 0, &rollout.Trajectory{Turns: []rollout.Turn{{ContextIDs: []int32{1, 2, 3}}}}, func(ids []int32) string { return "seen" })
	if turn := newTrajectory(r, nil).Turns[0]; turn.Context != "seen" || turn.ContextTokens != 3 {
		t.Errorf("%+v", turn)
	}
}
