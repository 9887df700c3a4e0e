package engine

import (
	"debug/elf"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// oldestDrivers are the first NVIDIA drivers for Linux that run programs of a CUDA major version
// (CUDA Compatibility, table of minor version compatibility).
var oldestDrivers = map[int]string{11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

// neededCUDA is the major version of CUDA that the kernels are compiled with (tools/nvcc.json).
const neededCUDA = 13

// OldestDriver is the oldest NVIDIA driver that runs programs of a CUDA major version; "" if that
// is not known.
func OldestDriver(cuda int) string { return oldestDrivers[cuda] }

// CUDAVersion is the major version of CUDA that the libtorch that is loaded was built for, 0 if it
// was built for none. No CUDA library is loaded to find out.
func CUDAVersion() int {
	file, err := elf.Open(cudaLibrary())
	if err != nil {
		return 0
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return 0
	}
	for _, library := range libraries {
		if text, found := strings.CutPrefix(library, "libcudart.so."); found {
			major, _, _ := strings.Cut(text, ".")
			version, _ := strconv.Atoi(major)
			return version
		}
	}
	return 0
}

// DriverVersion is the version of the NVIDIA driver of this machine, such as "580.65.06"; "" if
// there is none.
func DriverVersion() string {
	text, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	return parseDriver(string(text))
}

var kernelModule = regexp.MustCompile(`Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)`)

// parseDriver finds the version in the driver's own description.
func parseDriver(text string) string {
	if found := kernelModule.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// DriverProblem says in one clause why a driver cannot run this program on a GPU; "" if it can. driver
// is its version, "" where that cannot be told, and supported the newest CUDA that it runs, as 13000 for
// 13.0, 0 where there is no driver.
func DriverProblem(driver string, supported int) string {
	needed := fmt.Sprintf("needed is %s or newer, for CUDA %d", oldestDrivers[neededCUDA], neededCUDA)
	switch {
	case supported == 0:
		return "there is no NVIDIA driver (libcuda.so.1 cannot be loaded); " + needed
	case supported < 1000*neededCUDA, driver != "" && older(driver, oldestDrivers[neededCUDA]):
		if driver == "" {
			driver = "one"
		}
		return fmt.Sprintf("the NVIDIA driver is %s for CUDA %d.%d; %s", driver, supported/1000, supported%1000/10, needed)
	}
	return ""
}

// older compares dotted numbers.
func older(a, b string) bool {
	left, right := strings.Split(a, "."), strings.Split(b, ".")
	for k := range min(len(left), len(right)) {
		x, _ := strconv.Atoi(left[k])
		y, _ := strconv.Atoi(right[k])
		if x != y {
			return x < y
		}
	}
	return len(left) < len(right)
}
