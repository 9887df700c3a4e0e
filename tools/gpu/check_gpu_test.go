// Package gpu is the test of the check of a GPU: the script with programs that only pretend.
package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A run that ends with an error after its first step.
const breaksOff = `for part; do case $part in run.dir=*) dir=${part#run.dir=} ;; esac; done; mkdir -p $dir
echo '{"step":1,"time/step_s":0.5}' >$dir/metrics.jsonl; echo boom >&2; exit 1`

const device = "echo 'libtorch 2.11.0'; echo 'device cpu cpu'"

// bundle makes a folder as `make gpu-bundle` does, with shell scripts in place of the programs: device is what mempo-train does
// when it is asked for versions, bench when it is to measure; a training run breaks off.
func bundle(t *testing.T, device, bench string, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	programs["mempo-train"] = `case "$1" in version) ` + device + ` ;; bench) ` + bench + ` ;; *) ` + breaksOff + ` ;; esac`
	for name, body := range programs {
		file(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n"+body+"\n", 0o755)
	}
	file(t, filepath.Join(dir, "commit"), "abc\n", 0o644)
	for _, name := range []string{"check_gpu.sh", "check_gpu.py", "parts.py", "report.py"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file(t, filepath.Join(dir, name), string(text), 0o755)
	}
	return dir
}

func file(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// check runs the script. interrupt is a file at whose appearance it is told to end; "" for none.
func check(t *testing.T, dir, interrupt string) (code int, out string) {
	t.Helper()
	command := exec.Command(filepath.Join(dir, "check_gpu.sh"), "--device", "cpu")
	command.Env = append(os.Environ(), "LIBTORCH=", "OUT="+filepath.Join(dir, "out"))
	var text strings.Builder
	command.Stdout, command.Stderr = &text, &text
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		for interrupt != "" {
			if _, err := os.Stat(interrupt); err == nil {
				_ = command.Process.Signal(syscall.SIGTERM)
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	_ = command.Wait() // the exit code says it
	close(ended)
	return command.ProcessState.ExitCode(), text.String()
}

// results reads the checks that the script left as JSON: "part: check" and whether it passed.
func results(t *testing.T, dir string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "out", "check_gpu.json"))
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Failed int
		Checks []struct {
			Part, Check, Figures string
			Passed               bool
		}
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range report.Checks {
		found[c.Part+": "+c.Check] = c.Passed
		if !c.Passed {
			report.Failed--
		}
	}
	if report.Failed != 0 {
		t.Errorf("the number of failures in %s is wrong", text)
	}
	return found
}

const measured = `{"dtype":"float32","matrix_rate":4e10,"stages":[{"stage":"rollout/decode","tokens":9,"seconds":[0.5],"median_seconds":0.5,
"tokens_per_second":18,"rate":2e10,"bandwidth":3e9,"peak_memory_bytes":1073741824}]}`

func TestOneFailureLosesNothingElse(t *testing.T) {
	dir := bundle(t, device, "cat <<'E'\n"+measured+"\nE\n", map[string]string{
		"kernels.test": "echo 'ok   rms_norm float32: 1e-7 of 1e-6'; echo 'FAIL swiglu bfloat16: 0.5 of 0.1'; exit 1",
		"engine.test":  "echo '--- PASS: TestGolden (0.10s)'; kill -9 $$",
	})
	code, out := check(t, dir, "")
	if code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, out)
	}
	want := map[string]bool{
		"device: version --check": true, "kernels: rms_norm float32": true, "kernels: swiglu bfloat16": false, "kernels: all of it": false,
		"engine: TestGolden": true, "engine: all of it": false, "short run: on cpu, float32": false, "quickstart: 30 steps, float32": false,
		"large model: cpu, full": true, "large model: rollout/decode, full": true, "large model: rollout/decode, adapters": true,
		"large model: cpu, full, optimiser on the host": true,
	}
	found := results(t, dir)
	for name, passed := range want {
		if got, there := found[name]; !there || got != passed {
			t.Errorf("%s: there %v, passed %v; want passed %v", name, there, got, passed)
		}
	}
	for _, says := range []string{"0.5 of 0.1", "50.0% of measured products", "reads 3 GB/s", "peak 1 GiB", "boom; 1 of 30 steps of 0.50 s were done", "| **FAIL** |"} {
		if !strings.Contains(out, says) {
			t.Errorf("%q is not in\n%s", says, out)
		}
	}
}

func TestWhatIsTrainedFitsTheMachine(t *testing.T) {
	for _, c := range []struct {
		gpu, host int // GiB
		want      string
	}{
		{24, 512, "adapters"},
		{80, 64, "adapters"},
		{80, 128, "adapters; full, optimiser on the host"},
		{140, 128, "adapters; full, optimiser on the host"},
		{180, 64, "adapters; full"},
	} {
		script := fmt.Sprintf("import parts; print('; '.join(parts.training_forms(%d << 30, %d << 30)), end='')", c.gpu, c.host)
		command := exec.Command("python3", "-c", script)
		command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		out, err := command.CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("a GPU of %d GiB in a machine of %d GiB trains %q (%v), want %q", c.gpu, c.host, out, err, c.want)
		}
	}
}

func TestWithoutADeviceTheSentenceIsAll(t *testing.T) {
	dir := bundle(t, "echo 'error: no GPU here' >&2; exit 3", "", map[string]string{})
	if code, out := check(t, dir, ""); code != 3 || out != "error: no GPU here\n" {
		t.Errorf("exit code %d and %q, want 3 and the sentence", code, out)
	}
}

func TestInterruptedItKeepsWhatItHas(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "begun")
	dir := bundle(t, device, "", map[string]string{
		"kernels.test": "echo 'ok   rms_norm float32'",
		"engine.test":  "echo >" + mark + "; exec sleep 600",
	})
	code, out := check(t, dir, mark)
	if code != 130 {
		t.Errorf("exit code %d, want 130:\n%s", code, out)
	}
	found := results(t, dir)
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"device: version --check", "engine: interrupted", "kernels: rms_norm float32"}; !slices.Equal(names, want) || !found[want[2]] || found[want[1]] {
		t.Errorf("results %v, want %v", found, want)
	}
}

// A folder of results that is none, from the start or from its middle on, is said in a sentence, and the table is not lost.
func TestResultsThatCannotBeWritten(t *testing.T) {
	const bench = "exit 1"
	dir := bundle(t, device, bench, map[string]string{"kernels.test": "exit 1", "engine.test": "exit 1"})
	file(t, filepath.Join(dir, "out"), "a file", 0o644)
	code, out := check(t, dir, "")
	if want := "check_gpu.py: the folder of results " + dir + "/out cannot be written (File exists)"; code != 3 || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
		t.Errorf("a file: %d, %s", code, out)
	}
	dir = bundle(t, device, bench, map[string]string{"kernels.test": `rm -r "$OUT"; exit 1`, "engine.test": "exit 1"})
	code, out = check(t, dir, "")
	if code != 3 || !strings.Contains(out, "| device | version --check | pass |") || !strings.Contains(out, "/out cannot be written (No such file") || strings.Contains(out, "Traceback") {
		t.Errorf("a folder that goes away: %d, %s", code, out)
	}
}
