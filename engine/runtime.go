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
	notice  string
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
		var err error
		if r.device, r.notice, err = resolveDevice(device); err != nil {
			return err
		}
		return deviceSelect(r.device)
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

// Notice says in one sentence why "auto" took the CPU although there is a GPU; "" otherwise.
func (r *Runtime) Notice() string { return r.notice }

// Close ends the device thread; models and sessions must be closed before.
func (r *Runtime) Close() { r.closed.Do(func() { close(r.jobs) }) }

// MemoryUsage implements model.Memory.
func (r *Runtime) MemoryUsage() (usage model.MemoryUsage, err error) {
	err = r.do(func() error { usage, err = memory(r.device); return err })
	return usage, err
}

// FreeMemory is the number of bytes of a GPU that are free for any program; 0 where it cannot be told, as on a CPU.
func (r *Runtime) FreeMemory() (bytes int64) {
	_ = r.do(func() (err error) { bytes, err = memoryFree(r.device); return err })
	return bytes
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

// resolveDevice finds what a device's name stands for; the notice is for the user.
func resolveDevice(device string) (resolved, notice string, err error) {
	switch {
	case device == "cpu":
		return "cpu", "", nil
	case device == "auto":
		problem := cudaProblem()
		if problem == "" {
			return "cuda:0", "", nil
		}
		if gpuVisible() {
			notice = "the CPU is used although this machine has a GPU: " + problem
		}
		return "cpu", notice, nil
	case device == "cuda", strings.HasPrefix(device, "cuda:"):
		resolved, err = resolveCUDA(device)
		return resolved, "", err
	}
	return "", "", fmt.Errorf(`device is %q; allowed are "cpu", "cuda", "cuda:N" and "auto"`, device)
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
		return "", fmt.Errorf("%w: device = %q, but the number of GPUs is %d, numbered from 0", ErrNoDevice, device, count)
	}
	return fmt.Sprintf("cuda:%d", index), nil
}

// cudaProblem loads CUDA and says in a clause why it cannot be used and what to do; "" if it can. What
// the machine lacks comes before what the installation lacks.
func cudaProblem() string {
	supported, devices := cudaDriver()
	if problem := DriverProblem(DriverVersion(), supported); problem != "" {
		return problem
	}
	if devices == 0 {
		return "the NVIDIA driver shows no usable GPU (nvidia-smi tells more)"
	}
	switch version := CUDAVersion(); version {
	case neededCUDA:
	case 0:
		return fmt.Sprintf("the libtorch in %s is one for CPUs, without libtorch_cuda.so; needed is one for CUDA %d", LibraryFolder(), neededCUDA)
	default:
		return fmt.Sprintf("the libtorch in %s is for CUDA %d; needed is one for CUDA %d", LibraryFolder(), version, neededCUDA)
	}
	if err := loadTorchCUDA(); err != nil {
		return fmt.Sprintf("the libraries of CUDA are not complete (%v); `make cuda` fetches them", err)
	}
	if !gotorch.IsCUDAAvailable() {
		return "libtorch finds no usable GPU (nvidia-smi tells more)"
	}
	if err := loadKernels(); err != nil {
		return fmt.Sprintf("%v; `make cuda` builds them", err)
	}
	return ""
}

// gpuVisible tells whether this machine seems to have a GPU or at least its driver.
func gpuVisible() bool {
	if _, err := os.Stat("/dev/nvidia0"); err == nil {
		return true
	}
	supported, _ := cudaDriver()
	return supported != 0
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
