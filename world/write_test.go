package world

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/internal/durable"
	"github.com/mempo-train/mempo-train/internal/fault"
)

func TestSameSeedSameBytes(t *testing.T) {
	first := files(t, made(t, someOptions(1)))
	want := []string{
		"/corpus.jsonl", "/demonstrations.jsonl", "/demonstrations_eval.jsonl", "/eval.jsonl", "/model/config.json",
		"/model/generation_config.json", "/model/model.safetensors", "/model/tokenizer.json", "/model/tokenizer_config.json", "/train.jsonl", "/world.json",
	}
	var names []string
	for name := range first {
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if again := files(t, made(t, someOptions(1))); !sameFiles(first, again) {
		t.Error("the same options give other files")
	}
	other := files(t, made(t, someOptions(2)))
	for _, name := range want {
		fixed := strings.Contains(name, "token") || strings.HasSuffix(name, "config.json")
		if same := first[name] == other[name]; same != fixed {
			t.Errorf("%s of another seed: the same %v, want %v", name, same, fixed)
		}
	}
	if strings.Contains(first["/demonstrations.jsonl"], `\u003c`) || strings.Contains(first["/model/tokenizer.json"], `\u003c`) {
		t.Error("tags are escaped")
	}
}

// A setting changes what it is about, and nothing else.
func TestSettingsStayApart(t *testing.T) {
	plain := files(t, made(t, someOptions(1)))
	for name, test := range map[string]struct {
		change  func(*Options)
		changed []string
	}{
		"training questions": {func(o *Options) { o.Questions.Train = 100 }, []string{"/train.jsonl"}},
		"flaws":              {func(o *Options) { o.Demonstrations.WrongValue = 0.9 }, []string{"/demonstrations.jsonl"}},
		"their evaluation":   {func(o *Options) { o.Demonstrations.Eval = 50 }, []string{"/demonstrations_eval.jsonl"}},
		"the model's start":  {func(o *Options) { o.Model.CopyingStart = false }, []string{"/model/model.safetensors"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := someOptions(1)
			test.change(&o)
			for file, content := range files(t, made(t, o)) {
				if changed := content != plain[file]; file != "/world.json" && changed != slices.Contains(test.changed, file) {
					t.Errorf("%s has changed: %v", file, changed)
				}
			}
		})
	}
	o := someOptions(1)
	o.Demonstrations.Flawed = 0
	part := files(t, made(t, o))["/demonstrations.jsonl"]
	if !strings.HasPrefix(plain["/demonstrations.jsonl"], part) {
		t.Error("without the flawed part the parts before it are others")
	}
}

func TestWriteReplacesAWorldOnly(t *testing.T) {
	o := someOptions(1)
	silent := func(string) {}
	t.Run("a world", func(t *testing.T) {
		dir := made(t, o)
		old := filepath.Join(dir, ModelFolder, "old")
		if err := os.WriteFile(old, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(dir, someOptions(2), silent); err != nil {
			t.Fatal(err)
		}
		if got := files(t, dir); !sameFiles(got, files(t, made(t, someOptions(2)))) {
			t.Error("the folder is not the new world's")
		}
		alone(t, dir)
	})
	t.Run("an empty folder", func(t *testing.T) {
		if err := Write(t.TempDir(), o, silent); err != nil {
			t.Error(err)
		}
	})
	t.Run("what a broken-off one left", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "world")
		if err := os.MkdirAll(filepath.Join(dir+durable.TempSuffix, "model"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Write(dir, o, silent); err != nil {
			t.Error(err)
		}
		alone(t, dir)
	})
	t.Run("what another process is writing", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "world")
		other, err := begin(dir+durable.TempSuffix, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := Write(dir, o, silent); fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), dir+" is being written by another process") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a link to a folder", func(t *testing.T) {
		dir := t.TempDir()
		target, link := filepath.Join(dir, "disk", "world"), filepath.Join(dir, "link")
		if err := errors.Join(os.MkdirAll(target, 0o700), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
		if err := Write(link, o, silent); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(target, MarkFile)); err != nil {
			t.Error(err)
		}
		alone(t, target)
	})
	t.Run("the current folder, by a roundabout name", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "world")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Chdir(dir)
		if err := Write("no/..", o, silent); err != nil {
			t.Fatal(err)
		}
		alone(t, dir)
	})
	t.Run("another folder", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, try := range []func(string, Options, func(string)) error{Write, Check} {
			err := try(dir, o, silent)
			if fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), dir+" is a folder without world.json") {
				t.Errorf("error %v", err)
			}
		}
		if got := files(t, dir); len(got) != 1 || got["/thesis.txt"] != "text" {
			t.Errorf("the folder now holds %v", got)
		}
	})
	t.Run("a world that holds more", func(t *testing.T) {
		dir := made(t, o)
		if err := os.Mkdir(filepath.Join(dir, "checkpoints"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, try := range []func(string, Options, func(string)) error{Write, Check} {
			if err := try(dir, o, silent); fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), dir+" holds checkpoints beside a world") {
				t.Errorf("error %v", err)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "checkpoints")); err != nil {
			t.Error(err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, o, silent); fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), "cannot hold a world: not a directory") {
			t.Errorf("error %v", err)
		}
	})
}

// alone checks that nothing lies beside a folder.
func alone(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the world lie %v, %v", entries, err)
	}
}

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`questions.mix: shape "2+x" is not the hops of each objective, such as "3" or "2+1"`: func(o *Options) { o.Questions.Mix["2+x"] = 1 },
		`questions.mix: shape "7+4" cannot be asked`:                                         func(o *Options) { o.Questions.Mix["7+4"] = 0 },
		`questions.mix: shape "3" needs 4 turns, questions.max_turns allows 3`: func(o *Options) {
			o.Questions.MaxTurns, o.Questions.Mix = 3, map[string]float64{"1": 1, "3": 1}
		},
		`questions.mix has no shape with a weight above 0`:                               func(o *Options) { o.Questions.Mix = map[string]float64{"1": 0} },
		`world.held_out is 0.05, which puts all entities of the kind country, 9 of them`: func(o *Options) { o.Countries, o.HeldOut = 9, 0.05 },
		`questions.train: no further question of shape "1" was found in 2000 tries, the training side of the world is too small`: func(o *Options) {
			o.Questions.Train, o.Questions.Mix = 277, map[string]float64{"1": 1}
		},
		`questions.eval: no further question of shape "1" was found in 2000 tries, the held-out side of the world is too small`: func(o *Options) {
			o.Questions.Train, o.Questions.Eval, o.Questions.Mix = 10, 200, map[string]float64{"1": 1}
		},
	} {
		o := someOptions(1)
		change(&o)
		dir := filepath.Join(t.TempDir(), "world")
		for _, try := range []func(string, Options, func(string)) error{Write, Check} {
			err := try(dir, o, func(string) {})
			if fault.Code(err) != fault.CodeUsage || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
			t.Errorf("after %q there is %v, %v", want, entries, err)
		}
	}
}

// What fails leaves the world before it as it is.
func TestAFailureLeavesTheOldWorld(t *testing.T) {
	dir := made(t, someOptions(1))
	before := files(t, dir)
	o := someOptions(2)
	o.Questions.Eval = 100_000
	if err := Write(dir, o, func(string) {}); err == nil {
		t.Fatal("so many questions were found")
	}
	if !sameFiles(before, files(t, dir)) {
		t.Error("the world has changed")
	}
	alone(t, dir)
}

func TestCheckTellsWhatIsMadeAndWritesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "world")
	var lines []string
	if err := Check(dir, someOptions(1), func(line string) { lines = append(lines, line) }); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"corpus.jsonl: 208 passages, the first: ", "train.jsonl: 300 questions, the first: Find ", "eval.jsonl: 150 questions", "demonstrations.jsonl: 2400 demonstrations", "model: a tokenizer of ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 0 {
		t.Errorf("written: %v, %v", entries, err)
	}
}
