package main

import (
	"io"
	"strings"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
)

// checkSFT prints the plan of a supervised start, as runCheck does that of a run.
func checkSFT(path string, sets []string, out io.Writer) error {
	c, err := config.LoadSFT(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	f := &findings{out: out}
	f.line("== settings ==")
	f.problem(config.WriteSFT(out, c))
	j := &sftJob{config: c}
	f.problem(j.loadData())
	f.showLessons(j)
	if _, device := f.showDevice(c.Model, c.LoRA); device != nil {
		device.Close()
	}
	f.showSFTFolder(j)
	return f.verdict()
}

func (f *findings) showLessons(j *sftJob) {
	f.heading("data")
	for _, set := range []struct {
		kind string
		*lessons
	}{{"training", j.lessons}, {"held out", j.heldOut}} {
		if set.lessons == nil {
			continue
		}
		f.line("%s: %s", set.kind, set.summary())
		if len(set.dropped) > 0 {
			f.line("%s", set.overLength())
		}
	}
	if j.lessons == nil || len(j.lessons.kept) == 0 {
		return
	}
	f.line("%s", j.passes())
	first := j.lessons.kept[0]
	f.heading("first demonstration: what is learned stands in " + learnedOpen + " " + learnedClose)
	f.line("%s", marked(first, j.school.tokenizer.Decode))
}

// The marks around text that is learned.
const learnedOpen, learnedClose = "⟦", "⟧"

// marked is the text of a lesson with marks around what is learned.
func marked(l chat.Lesson, decode func([]int32) string) string {
	var text strings.Builder
	at := 0
	for k := 0; k < len(l.Positions); {
		first := k
		for k++; k < len(l.Positions) && l.Positions[k] == l.Positions[k-1]+1; {
			k++
		}
		start, end := int(l.Positions[first]), int(l.Positions[k-1])+1
		text.WriteString(decode(l.IDs[at:start]) + learnedOpen + decode(l.IDs[start:end]) + learnedClose)
		at = end
	}
	return text.String() + decode(l.IDs[at:])
}

func (f *findings) showSFTFolder(j *sftJob) {
	c := j.config
	f.heading("run folder " + c.Run.Dir)
	f.refuseHeld(c.Run.Dir)
	if modelPresent(c.Model) != nil {
		return // said before
	}
	source, err := checkpoint.ReadSource(c.Model.Path)
	if err != nil {
		f.problem(deviceFault(err))
		return
	}
	if j.lessons == nil {
		return
	}
	newest, err := newestCheckpoint(c.Run, j.identity(source))
	if f.problem(err); err != nil {
		return
	}
	f.showBeginning(newest, c.Run.Steps, j.changes)
	adapters := adaptersOf(c.LoRA)
	f.showDisk(c.Run.Dir, source.CheckpointBytes(j.school.architecture.Trained(adapters), adapters), c.Checkpoint.Keep, 0)
}
