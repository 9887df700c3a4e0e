package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
	"github.com/mempo-train/mempo-train/trainer/rundir"
)

// showDevice tells of a model and what it will run on, which is nil where it cannot run.
func (f *findings) showDevice(m config.Model, l config.LoRA) (model.Architecture, *engine.Runtime) {
	f.heading("model")
	if err := modelPresent(m); err != nil {
		f.problem(err)
		return model.Architecture{}, nil
	}
	a, err := model.LoadArchitecture(m.Path)
	if err != nil {
		f.problem(fault.Usage(err))
		return a, nil
	}
	f.line("%s: %s, %d layers, hidden size %d, %d heads (%d for keys and values), %d ids, context of %d tokens",
		m.Path, a.Name, a.Layers, a.HiddenSize, a.Heads, a.KVHeads, a.VocabSize, a.MaxPositions)
	f.line("%d parameters, stored as %s", parameterCount(a), a.DType)
	if text := trainedShare(a, l); text != "" {
		f.line("%s", text)
	}
	device, err := startEngine(m.Device, m.Threads)
	if err != nil {
		f.problem(err)
		return a, nil
	}
	threads := m.Threads
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	f.line("computed as %s on %s, CPU threads: %d", computeDType(m, device.Device()), device.Device(), threads)
	return a, device
}

func (p *plan) showRunFolder() {
	p.heading("run folder " + p.config.Run.Dir)
	p.showState()
	best := 0
	if name := p.config.Checkpoint.KeepBest; name != "" && (p.config.Eval.Every > 0 || !strings.HasPrefix(name, "eval/")) {
		best = 1
	}
	p.showDisk(p.config.Run.Dir, p.checkpointBytes, p.config.Checkpoint.Keep, best)
}

// showState tells where the run begins.
func (p *plan) showState() {
	p.refuseHeld(p.config.Run.Dir)
	if modelPresent(p.config.Model) != nil {
		return // said before
	}
	source, err := checkpoint.ReadSource(p.config.Model.Path)
	if err != nil {
		p.problem(deviceFault(err))
		return
	}
	if p.texts == nil {
		return
	}
	adapters := adaptersOf(p.config.LoRA)
	p.checkpointBytes = source.CheckpointBytes(p.texts.architecture.Trained(adapters), adapters)
	if p.data == nil {
		return
	}
	newest, err := newestCheckpoint(p.config.Run, checkpoint.Identity{
		Model: p.config.Model.Path, ModelHash: source.ModelHash(),
		TokenizerHash: p.texts.tokenizer.Hash(), DataHash: p.data.Hash, Adapters: adapters.String(),
	})
	if err != nil {
		p.problem(err)
		return
	}
	p.showBeginning(newest, p.config.Run.Steps, changesOf(p.config))
}

// refuseHeld notes that another process writes a run folder.
func (f *findings) refuseHeld(dir string) {
	who, err := rundir.Holder(dir)
	f.problem(err)
	if who != "" {
		f.problem(fault.Usage(fmt.Errorf("run folder %s is in use by %s: one run at a time writes a folder", dir, who)))
	}
}

// showBeginning tells where a run begins: at a checkpoint, with what has changed since, or anew if
// path is "".
func (f *findings) showBeginning(path string, steps int, compare func(before string) ([]config.Difference, error)) {
	if path == "" {
		f.line("a new run of %d steps", steps)
		return
	}
	record, err := checkpoint.ReadRecord(path)
	if err != nil {
		f.problem(err)
		return
	}
	f.line("goes on after step %d of %d from %s", record.Step, steps, path)
	if record.Step >= int64(steps) {
		f.line("all steps are trained already")
	}
	changes, err := compare(record.Config)
	if err != nil {
		f.line("the config of the checkpoint cannot be read, so changes since are not listed: %v", err)
		return
	}
	for _, change := range changes {
		f.line("changed since: %s", change)
	}
}

// showDisk compares the free space for a run folder with its checkpoints: those that are kept, up
// to best of them besides, and one more while the newest is written and the oldest still there.
func (f *findings) showDisk(dir string, bytes int64, keep, best int) {
	folder, free, ok := f.freeSpace(dir)
	if !ok || bytes == 0 {
		return
	}
	saved, err := checkpoint.List(dir)
	f.problem(err)
	count := keep + best + 1
	needed := int64(max(1, count-len(saved))) * bytes
	f.line("a checkpoint: %s; up to %d at a time, %d are there", inBytes(bytes), count, len(saved))
	f.line("free disk space of %s: %s, for %s more", folder, inBytes(free), inBytes(needed))
	if free < needed {
		f.problem(fault.Environment(fmt.Errorf("%s has %s of free disk space, the checkpoints of the run need %s more (checkpoint.keep is %d)",
			folder, inBytes(free), inBytes(needed), keep)))
	}
}

// freeSpace is what writableFolder finds for a run folder; that it cannot be written is noted.
func (f *findings) freeSpace(dir string) (folder string, free int64, ok bool) {
	folder, free, err := writableFolder(dir)
	if err != nil {
		f.problem(fault.Environment(fmt.Errorf("run folder %s cannot be written: %w", dir, err)))
	}
	return folder, free, err == nil
}

// writableFolder finds the folder in which a path would be made, the path itself if it is there,
// and its free bytes. A folder that cannot be written is an error.
func writableFolder(path string) (folder string, free int64, err error) {
	folder = path
	for {
		info, err := os.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(folder) != folder {
			folder = filepath.Dir(folder)
			continue
		}
		if err == nil && !info.IsDir() {
			err = unix.ENOTDIR
		}
		if err == nil {
			err = unix.Access(folder, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			return folder, 0, durable.Bare(err)
		}
		break
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(folder, &disk); err != nil {
		return folder, 0, err
	}
	return folder, int64(disk.Bavail) * disk.Bsize, nil
}
