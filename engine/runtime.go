// Package engine computes with libtorch: it implements the interfaces of package model over the C
// boundary of csrc and is the only package that knows of it.
//
// All device work runs on one goroutine that is locked to one OS thread, because libtorch keeps
// thread-local state and one thread's pool of workers per calling thread.
package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/wangkuiyi/gotorch"

	"github.com/mempo-train/mempo-train/model"
)

// Runtime owns the device thread. There is one per process.
type Runtime struct {
	device  string
	threads int
	jobs    chan func()
	closed  sync.Once
}

// mostThreads bounds what is asked of the thread library, which ends the process when it runs out.
const mostThreads = 1024

// Start opens a device: "cpu", "cuda", "cuda:N", or "auto" (CUDA when there is one). threads is
// the number of CPU threads of one operation; 0 takes every core.
func Start(device string, threads int) (*Runtime, error) {
	if threads < 0 || threads > mostThreads {
		return nil, fmt.Errorf("threads is %d, allowed are 0 (every core) to %d", threads, mostThreads)
	}
	if threads == 0 {
		threads = runtime.NumCPU()
	}
	r := &Runtime{threads: threads, jobs: make(chan func())}
	go r.serve()
	err := r.do(func() error {
		if err := checkLibtorch(TorchVersion(), TorchNeeded()); err != nil {
			return err
		}
		if err := runtimeInit(threads); err != nil {
			return err
		}
		resolved, err := resolveDevice(device)
		if err != nil {
			return err
		}
		r.device = resolved
		return deviceSelect(resolved)
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Runtime) serve() {
	runtime.LockOSThread()
	for job := range r.jobs {
		job()
	}
}

// do runs a function on the device thread and waits for it.
func (r *Runtime) do(work func() error) error {
	done := make(chan error, 1)
	r.jobs <- func() { done <- work() }
	return <-done
}

// Device is the device that "auto" was resolved to.
func (r *Runtime) Device() string { return r.device }

// Close ends the device thread; models and sessions must be closed before.
func (r *Runtime) Close() { r.closed.Do(func() { close(r.jobs) }) }

// MemoryUsage implements model.Memory.
func (r *Runtime) MemoryUsage() (usage model.MemoryUsage, err error) {
	err = r.do(func() error { usage, err = memory(r.device); return err })
	return usage, err
}

// ResetPeak implements model.Memory.
func (r *Runtime) ResetPeak() error {
	return r.do(func() error { return memoryResetPeak(r.device) })
}

// What the machine may lack: ErrNoDevice marks a device that was asked for and is not there,
// ErrLibtorch a libtorch of another version.
var (
	ErrNoDevice = errors.New("device not available")
	ErrLibtorch = errors.New("wrong libtorch")
)

// checkLibtorch compares the libtorch that is loaded with the one that the program was compiled
// for: between versions the layout of its types changes.
func checkLibtorch(found, needed string) error {
	if found == needed {
		return nil
	}
	return fmt.Errorf("%w: found %s in %s, needed is %s; is LD_LIBRARY_PATH set?", ErrLibtorch, found, LibraryFolder(), needed)
}

func resolveDevice(device string) (string, error) {
	switch {
	case device == "cpu":
		return "cpu", nil
	case device == "auto":
		if cudaLoad(cudaLibrary()) != nil || !gotorch.IsCUDAAvailable() {
			return "cpu", nil
		}
		return "cuda:0", nil
	case device == "cuda", strings.HasPrefix(device, "cuda:"):
		return resolveCUDA(device)
	}
	return "", fmt.Errorf(`device is %q; allowed are "cpu", "cuda", "cuda:N" and "auto"`, device)
}

func resolveCUDA(device string) (string, error) {
	index := 0
	if text, given := strings.CutPrefix(device, "cuda:"); given {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", fmt.Errorf(`device is %q; after "cuda:" a device number is needed`, device)
		}
		index = n
	}
	if problem := cudaProblem(); problem != "" {
		return "", fmt.Errorf(`%w: device = %q, but %s; device = "cpu" works without`, ErrNoDevice, device, problem)
	}
	if count := cudaDeviceCount(); index >= count {
		return "", fmt.Errorf("%w: device = %q, but there are %d GPUs, numbered from 0", ErrNoDevice, device, count)
	}
	return fmt.Sprintf("cuda:%d", index), nil
}

// cudaProblem loads CUDA and says why it cannot be used; "" if it can.
func cudaProblem() string {
	loading := cudaLoad(cudaLibrary())
	if loading == nil && gotorch.IsCUDAAvailable() {
		return ""
	}
	version := CUDAVersion()
	problem := DriverProblem(DriverVersion(), version)
	switch {
	case loading == nil && problem == "":
		return "the NVIDIA driver shows no usable GPU (nvidia-smi tells more)"
	case loading == nil:
		return problem
	case problem != "":
		problem += ", and "
	}
	return problem + fmt.Sprintf("the libraries of CUDA %d that libtorch needs cannot be loaded (%v)", version, loading)
}

// cudaLibrary is libtorch_cuda.so beside the libtorch_cpu.so that is loaded: the loader's own search
// does not look there for libraries opened at run time. "" when it cannot be told.
func cudaLibrary() string {
	if folder := LibraryFolder(); folder != "" {
		return filepath.Join(folder, "libtorch_cuda.so")
	}
	return ""
}

// LibraryFolder is the folder of the libtorch that is loaded; "" when it cannot be told.
func LibraryFolder() string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(maps)) {
		if at := strings.Index(line, "/"); at >= 0 && strings.HasSuffix(strings.TrimSpace(line), "/libtorch_cpu.so") {
			return filepath.Dir(strings.TrimSpace(line[at:]))
		}
	}
	return ""
}
