package main

import (
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/engine"
)

func TestVersionNamesWhatItWorksWith(t *testing.T) {
	text := strings.Join(mustRun(t, "", "version"), "\n")
	for _, want := range []string{"mempo-train " + version, "libtorch " + engine.TorchNeeded(), "CUDA ", "checkpoint format 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
}

func TestCheckOfADeviceThatIsNotThere(t *testing.T) {
	stdout, stderr, code := runProgram("", "version", "--check", "--device", "cuda:99")
	if code != 3 || !oneSentence(stderr) || !strings.Contains(stderr, `device = "cuda:99"`) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	for _, want := range []string{"found", "needed", "libtorch", "driver", "cuda:99"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %q", want, stdout)
		}
	}
	if _, stderr, code = runProgram("", "version", "--check", "--device", "tpu"); code != 2 || !oneSentence(stderr) {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestCheckTable(t *testing.T) {
	tests := []struct {
		machine machine
		want    []string
	}{
		{
			machine{torch: "2.11.0", torchNeeded: "2.11.0", cuda: 13, driver: "535.54.03", device: "none", deviceAsked: "cuda"},
			[]string{"found needed", "libtorch 2.11.0 2.11.0", "NVIDIA driver 535.54.03 580.65.06 or newer, for CUDA 13", "device none cuda"},
		},
		{
			machine{torch: "2.9.1", torchNeeded: "2.11.0", cuda: 12, device: "cpu", deviceAsked: "auto"},
			[]string{"found needed", "libtorch 2.9.1 2.11.0", "NVIDIA driver none 525.60.13 or newer, for CUDA 12; none for the CPU", "device cpu auto"},
		},
		{
			machine{torch: "2.11.0", torchNeeded: "2.11.0", device: "cpu", deviceAsked: "cpu"},
			[]string{"found needed", "libtorch 2.11.0 2.11.0", "NVIDIA driver none none", "device cpu cpu"},
		},
	}
	for _, test := range tests {
		var out strings.Builder
		if err := writeCheck(&out, test.machine); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		for k, line := range lines {
			if got := strings.Join(strings.Fields(line), " "); k >= len(test.want) || got != test.want[k] {
				t.Errorf("line %d of the table is %q, want %q", k, got, test.want[min(k, len(test.want)-1)])
			}
		}
	}
}
