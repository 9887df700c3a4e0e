package engine

import (
	"errors"
	"strings"
	"testing"
)

func TestParseDriver(t *testing.T) {
	tests := []struct{ text, want string }{
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version:  gcc version 11.3.0\n", "535.54.03"},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23\n", "580.95.05"},
		{"NVRM version: something else\n", ""},
		{"", ""},
	}
	for _, test := range tests {
		if got := parseDriver(test.text); got != test.want {
			t.Errorf("parseDriver(%q) = %q, want %q", test.text, got, test.want)
		}
	}
}

func TestDriverProblem(t *testing.T) {
	tests := []struct {
		driver    string
		supported int
		want      string // all words of it, "" for no problem
	}{
		{"580.65.06", 13000, ""},
		{"580.95.05", 13000, ""},
		{"590.10", 13010, ""},
		{"", 13000, ""}, // a container, where the driver's description is not to be seen
		{"580.65.05", 13000, "580.65.05 580.65.06 CUDA 13"},
		{"535.54.03", 12020, "535.54.03 12.2; 580.65.06"},
		{"99.100.01", 13000, "99.100.01"},
		{"580", 13000, "580.65.06"},
		{"", 12080, "12.8; 580.65.06"},
		{"580.65.06", 0, "no NVIDIA driver libcuda.so.1 580.65.06"},
		{"", 0, "no NVIDIA driver 580.65.06"},
	}
	for _, test := range tests {
		got := DriverProblem(test.driver, test.supported)
		if (got == "") != (test.want == "") {
			t.Errorf("driver %q for CUDA %d: %q, want a problem: %v", test.driver, test.supported, got, test.want != "")
		}
		for word := range strings.FieldsSeq(test.want) {
			if !strings.Contains(got, word) {
				t.Errorf("driver %q for CUDA %d: %q does not name %q", test.driver, test.supported, got, word)
			}
		}
	}
}

func TestVersionsOfTheLoadedLibtorch(t *testing.T) {
	if TorchVersion() != TorchNeeded() {
		t.Errorf("libtorch %s is loaded, the tests were compiled for %s", TorchVersion(), TorchNeeded())
	}
	if err := checkLibtorch("2.9.1", "2.11.0"); !errors.Is(err, ErrLibtorch) || !strings.Contains(err.Error(), "found 2.9.1") {
		t.Errorf("another libtorch: %v", err)
	}
	if LibraryFolder() == "" {
		t.Error("the folder of libtorch is not found")
	}
	if cuda := CUDAVersion(); cuda != 0 && OldestDriver(cuda) == "" {
		t.Errorf("libtorch is built for CUDA %d, whose oldest driver is not known", cuda)
	}
}
