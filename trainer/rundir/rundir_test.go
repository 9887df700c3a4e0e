package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// holderVariable makes the test program a process that holds the run folder it names until its
// standard input ends.
const holderVariable = "MEMPO_TEST_HOLDER"

func TestMain(m *testing.M) {
	if path := os.Getenv(holderVariable); path != "" {
		os.Exit(hold(path))
	}
	os.Exit(m.Run())
}

func hold(path string) int {
	dir, err := Open(path)
	if err != nil {
		fmt.Println(err)
		return fault.Code(err)
	}
	fmt.Println("held")
	if _, err := os.Stdin.Read(make([]byte, 1)); err == nil {
		fmt.Println(dir.Close())
	}
	return 0
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	dir, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestASecondRunInTheSameFolderIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs", "a")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderVariable+"="+path)
	input, errIn := holder.StdinPipe()
	output, errOut := holder.StdoutPipe()
	if err := errors.Join(errIn, errOut, holder.Start()); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if _, err := output.Read(line); err != nil || string(line) != "held\n" {
		t.Fatalf("the first process says %q, %v", line, err)
	}
	_, err := Open(path)
	want := fmt.Sprintf("run folder %s is in use by process %d", path, holder.Process.Pid)
	if err == nil || !strings.HasPrefix(err.Error(), want) || fault.Code(err) != fault.CodeUsage {
		t.Errorf("got %v with exit code %d, want %q", err, fault.Code(err), want)
	}
	open(t, path+"b") // another folder is free
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Wait(); err == nil {
		t.Error("the holder was not killed")
	}
	if err := input.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	open(t, path) // the lock went with the process
}

func TestCloseGivesTheFolderUp(t *testing.T) {
	path := t.TempDir()
	for range 2 {
		dir, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
			t.Errorf("opened twice: %v", err)
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHolderTellsWhoWritesAndChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	free := func(when string) {
		t.Helper()
		if who, err := Holder(path); who != "" || err != nil {
			t.Errorf("%s: held by %q, %v", when, who, err)
		}
	}
	free("without a folder")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
	dir, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if who, err := Holder(path); who != fmt.Sprintf("process %d", os.Getpid()) || err != nil {
		t.Errorf("while open: held by %q, %v", who, err)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	free("after closing")
	open(t, path) // a look leaves the folder free for a run
}

func TestAFolderThatCannotBeWritten(t *testing.T) {
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(parent), 0o755); err != nil { // for the other user below
		t.Fatal(err)
	}
	closed := filepath.Join(parent, "closed")
	if err := os.Mkdir(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	// Root may write anywhere, so this thread asks as somebody else.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Geteuid() == 0 {
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
	}
	for path, want := range map[string]string{
		closed:                       "permission denied",
		filepath.Join(closed, "run"): "permission denied",
		filepath.Join(file, "run"):   "not a directory",
	} {
		_, err := Open(path)
		if err == nil || err.Error() != "run folder "+path+" cannot be written: "+want || fault.Code(err) != fault.CodeEnvironment {
			t.Errorf("got %v with exit code %d", err, fault.Code(err))
		}
	}
}

func TestWriteConfigReplaces(t *testing.T) {
	dir := open(t, t.TempDir())
	for _, text := range []string{"[run]\nsteps = 10\n", "[run]\n"} {
		if err := dir.WriteConfig(text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir.Path(), "config.toml")); err != nil || string(got) != text {
			t.Errorf("config.toml holds %q, %v", got, err)
		}
	}
}

func TestTrajectoriesStayReadable(t *testing.T) {
	type row struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	}
	rows := []row{
		{"<mem>München 東京 <b>&</b></mem>", []int32{1, 2}},
		{"line\nbreak \u2028 \"quoted\" \\ \x00", nil},
	}
	dir := open(t, t.TempDir())
	for range 2 { // a resumed run writes a step again
		if err := WriteTrajectories(dir, 12, rows); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir.Path(), "trajectories", "step_000012.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	if len(lines) != 3 || lines[2] != "" || lines[0] != `{"text":"<mem>München 東京 <b>&</b></mem>","ids":[1,2]}` {
		t.Errorf("the file holds %q", data)
	}
	for k, want := range rows {
		var got row
		if err := json.Unmarshal([]byte(lines[k]), &got); err != nil || got.Text != want.Text {
			t.Errorf("row %d came back as %q, %v", k, got.Text, err)
		}
	}
}

func TestTrajectoriesKeepTheOldFileAfterAnError(t *testing.T) {
	dir := open(t, t.TempDir())
	if err := WriteTrajectories(dir, 1, []float64{1}); err != nil {
		t.Fatal(err)
	}
	err := WriteTrajectories(dir, 1, []float64{2, math.NaN()})
	if err == nil || !strings.Contains(err.Error(), "row 2") || !strings.Contains(err.Error(), dir.TrajectoriesPath(1)) {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(dir.TrajectoriesPath(1)); err != nil || string(data) != "1\n" {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

// The trajectories of an evaluation are written while it goes on, and count only when it is through.
func TestTrajectoriesOfAnEvaluationAreWrittenOneByOne(t *testing.T) {
	dir := open(t, t.TempDir())
	broken := errors.New("broken")
	for _, test := range []struct {
		rows   []any
		failed error
	}{{[]any{"<mem>", 2}, nil}, {[]any{"other"}, broken}} {
		err := dir.WriteEvaluation("limited", func(write func(any) error) error {
			for _, row := range test.rows {
				if err := write(row); err != nil {
					return err
				}
			}
			return test.failed
		})
		if !errors.Is(err, test.failed) {
			t.Errorf("got %v", err)
		}
		data, err := os.ReadFile(filepath.Join(dir.Path(), "trajectories", "step_000000_limited.jsonl"))
		if err != nil || string(data) != "\"<mem>\"\n2\n" {
			t.Errorf("the file holds %q, %v", data, err)
		}
	}
}

func TestPaths(t *testing.T) {
	dir := open(t, t.TempDir())
	if dir.MetricsPath() != filepath.Join(dir.Path(), "metrics.jsonl") || dir.LogPath() != filepath.Join(dir.Path(), "log.jsonl") {
		t.Errorf("paths %s and %s", dir.MetricsPath(), dir.LogPath())
	}
}
