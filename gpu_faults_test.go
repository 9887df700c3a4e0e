package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/engine"
)

// fakeDriver compiles a driver's library that runs so much of CUDA (13000 is 13.0) and has so many GPUs; it
// returns the folder of it.
func fakeDriver(t *testing.T, cuda, gpus int) string {
	t.Helper()
	dir := t.TempDir()
	source := fmt.Sprintf(`int cuDriverGetVersion(int *version) { *version = %d; return 0; }
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = %d; return 0; }
`, cuda, gpus)
	file := filepath.Join(dir, "driver.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.1"), file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// versionOn runs `version --check` for a device in a process that finds the libraries of a folder first.
func versionOn(t *testing.T, libraries, device string) (stdout, stderr string, code int) {
	t.Helper()
	command := process("version", "--check", "--device", device)
	command.Env = append(command.Env, "LD_LIBRARY_PATH="+libraries)
	var out, errs strings.Builder
	command.Stdout, command.Stderr = &out, &errs
	_ = command.Run() // the exit code is what is looked at
	return out.String(), errs.String(), command.ProcessState.ExitCode()
}

func TestDriversThatCannotBeUsed(t *testing.T) {
	if driver := engine.DriverVersion(); driver != "" {
		t.Logf("this machine has driver %s", driver)
	}
	tests := []struct {
		name       string
		cuda, gpus int
		device     string
		want       string // in the one sentence of stderr
	}{
		{"old", 12080, 1, "cuda", "for CUDA 12.8; needed is 580.65.06 or newer, for CUDA 13"},
		{"old, another device", 12080, 1, "cuda:3", `device = "cuda:3"`},
		{"no GPU", 13000, 0, "cuda", "no usable GPU"},
		{"broken", 0, 0, "cuda", "no NVIDIA driver"},
	}
	for _, test := range tests {
		_, stderr, code := versionOn(t, fakeDriver(t, test.cuda, test.gpus), test.device)
		if code != 3 || !oneSentence(stderr) || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, %q, want 3 and %q", test.name, code, stderr, test.want)
		}
	}
}

// Where the kernels and the libraries of CUDA are there, a driver without functions is what libtorch refuses; where they
// are not, that is said. Neither ends the process.
func TestGPUWithoutTheRestOfCUDA(t *testing.T) {
	_, stderr, code := versionOn(t, fakeDriver(t, 13000, 1), "cuda")
	if code != 3 || !oneSentence(stderr) || !strings.Contains(stderr, `device = "cuda"`) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestAutoSaysWhyAGPUIsNotUsed(t *testing.T) {
	stdout, stderr, code := versionOn(t, fakeDriver(t, 12020, 1), "auto")
	if code != 0 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "CPU") || !strings.Contains(stderr, "CUDA 12.2") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if !strings.Contains(stdout, "cpu") {
		t.Errorf("the device is not the CPU: %q", stdout)
	}
}
