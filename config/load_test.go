package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func files(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	return paths
}

// A bad file's first line is the error it must give.
func TestBadFiles(t *testing.T) {
	for _, path := range files(t, "*.bad.toml") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		want := path + ": " + strings.TrimPrefix(first, "# ")
		_, err = Load(path, nil)
		if err == nil {
			t.Errorf("%s loads", path)
			continue
		}
		if got, _, _ := strings.Cut(err.Error(), "\n"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A good file loads, and what is written of it loads to the same config.
func TestGoodFiles(t *testing.T) {
	for _, path := range files(t, "*.good.toml") {
		config, err := Load(path, nil)
		if err != nil {
			t.Error(err)
			continue
		}
		var first, second bytes.Buffer
		if err := Write(&first, config); err != nil {
			t.Fatal(err)
		}
		again := loadText(t, first.String())
		if !reflect.DeepEqual(config, again) {
			t.Errorf("%s comes back different: %v", path, Diff(config, again))
		}
		if err := Write(&second, again); err != nil || first.String() != second.String() {
			t.Errorf("%s is written in two ways", path)
		}
		for _, e := range entries(config) {
			if !e.isTable() && e.list == "" && !strings.Contains(first.String(), e.name+" = ") && !strings.Contains(first.String(), "[["+e.path()+"]]") {
				t.Errorf("%s: %s is not written", path, e.path())
			}
		}
	}
}

func loadText(t *testing.T, text string, sets ...string) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Load(path, sets)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func minimal(t *testing.T, sets ...string) *Config {
	t.Helper()
	config, err := Load("testdata/minimal.good.toml", sets)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// The file named full sets every key to something else than its default, so a key that is not read
// shows; that named sources has the lists of tables, which stand in place of other keys.
func TestEveryKeyIsRead(t *testing.T) {
	config, err := Load("testdata/full.good.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := Load("testdata/sources.good.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]bool{}
	for _, d := range append(Diff(Default(), config), Diff(Default(), sources)...) {
		changed[d.Key] = true
	}
	fixed := []string{"rollout.top_p", "rollout.top_k"} // one value is allowed
	for _, e := range entries(config) {
		if !e.isTable() && e.list == "" && !changed[e.path()] && !slices.Contains(fixed, e.path()) {
			t.Errorf("%s has its default", e.path())
		}
	}
}

func TestDefaults(t *testing.T) {
	got := map[string]string{}
	for _, e := range entries(minimal(t)) {
		if !e.isTable() {
			got[e.path()] = literal(e.value)
		}
	}
	for key, want := range map[string]string{
		"run.seed": "0", "run.resume": `"auto"`, "model.dtype": `"auto"`, "model.device": `"auto"`,
		"data.over_length": `"drop"`, "data.shuffle": "true",
		"rollout.questions_per_step": "4", "rollout.group_size": "16", "rollout.temperature": "1.0", "rollout.context": `"full"`,
		"rollout.format": `"chat"`, "rollout.prefill": `""`, "rollout.max_turns": "8", "rollout.max_turn_tokens": "512",
		"rollout.max_response_tokens": "8192", "rollout.tool_result_tokens": "512", "rollout.memory_tokens": "0",
		"rollout.on_no_action": `"end"`, "rollout.truncated": `"score"`, "rollout.trajectory_deadline_s": "600.0", "rollout.step_deadline_s": "1800.0",
		"tools.enabled": `["search"]`, "tools.on_tool_failure": `"exclude"`, "tools.max_failed_steps": "3",
		"tools.search.topk": "3", "tools.search.timeout_s": "10.0", "tools.search.tries": "3", "tools.search.concurrency": "64",
		"reward.format_reward": `"gate"`, "reward.format_weight": "0.0", "reward.memory_reward": `"mem_minus_full"`,
		"reward.answer_prob": `"geometric"`, "reward.answer_prefix": `"<answer>"`,
		"advantage.memory_weight": "1.0", "advantage.normalize": `"std"`, "advantage.single": `"zero"`, "advantage.min_group": "2",
		"advantage.drop_equal_groups": "false", "advantage.outcome.min_std": "0.0", "advantage.memory.min_std": "0.0",
		"advantage.memory.gate": `"none"`, "advantage.memory.pool": `"question"`,
		"loss.clip_low": "0.2", "loss.clip_high": "0.2", "loss.dual_clip": "0.0", "loss.aggregation": `"token-mean"`,
		"loss.kl_estimator": `"low_var_kl"`, "loss.kl_coef": "0.001",
		"optimizer.learning_rate": "1e-06", "optimizer.warmup_steps": "0", "optimizer.schedule": `"constant"`, "optimizer.betas": "[0.9, 0.999]",
		"optimizer.eps": "1e-08", "optimizer.weight_decay": "0.01", "optimizer.clip_norm": "1.0", "optimizer.ppo_epochs": "1",
		"optimizer.questions_per_minibatch": "4", "optimizer.max_nonfinite": "10",
		"eval.context": `["limited"]`, "eval.temperature": "0.0", "eval.samples": "1",
		"checkpoint.every": "10", "checkpoint.keep": "2", "checkpoint.keep_best": `"eval/em"`,
	} {
		if got[key] != want {
			t.Errorf("%s is %s by default, want %s", key, got[key], want)
		}
	}
}

func TestMinibatchFollowsTheStep(t *testing.T) {
	if got := minimal(t, "rollout.questions_per_step=6").Optimizer.QuestionsPerMinibatch; got != 6 {
		t.Errorf("questions_per_minibatch is %d", got)
	}
}

// What [eval.tools] leaves out is as in [tools], overrides included, and the two share nothing.
func TestEvalTools(t *testing.T) {
	config := minimal(t, "tools.search.topk=5", "eval.tools.search.backend=http", "eval.tools.search.url=http://localhost:8002", "tools.access.allow_hosts=a.org")
	search := config.Eval.Tools.Search
	if search.TopK != 5 || search.Corpus != "corpus.jsonl" || search.Backend != "http" || config.Tools.Search.Backend != "bm25" {
		t.Errorf("%+v", search)
	}
	config.Tools.Enabled[0], config.Tools.Access.AllowHosts[0] = "x", "x"
	if config.Eval.Tools.Enabled[0] != "search" || config.Eval.Tools.Access.AllowHosts[0] != "a.org" {
		t.Error("lists are shared")
	}
	config = minimal(t, "eval.tools.enabled=[]")
	if len(config.Eval.Tools.Enabled) != 0 || len(config.Tools.Enabled) != 1 {
		t.Errorf("eval %v, training %v", config.Eval.Tools.Enabled, config.Tools.Enabled)
	}
}

func TestSets(t *testing.T) {
	config := minimal(
		t, "rollout.group_size=8", "rollout.group_size = 4", "run.dir=/tmp/a=b # c", "rollout.prefill=7", `data.train=["x", "y"]`,
		"reward.answer_prefix= ", "optimizer.learning_rate=3", `data.fields={question = "q"}`, "model.path=true", "rollout.system_prompt=a \"b\" <c>\n\\é",
	)
	got := []any{
		config.Rollout.GroupSize, config.Run.Dir, config.Rollout.Prefill, config.Data.Train, config.Reward.AnswerPrefix,
		config.Optimizer.LearningRate, config.Data.Fields, config.Model.Path, config.Rollout.SystemPrompt,
	}
	want := []any{4, "/tmp/a=b # c", "7", List{"x", "y"}, " ", 3.0, Fields{Question: "q"}, "true", "a \"b\" <c>\n\\é"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	for _, test := range []struct{ set, want string }{
		{"rollout.group_size", "--set rollout.group_size: want key=value with a dotted key, as in rollout.group_size=8"},
		{"=3", "--set =3: want key=value with a dotted key, as in rollout.group_size=8"},
		{"rollout..x=3", "--set rollout..x=3: want key=value with a dotted key, as in rollout.group_size=8"},
		{"rollout.grop_size=3", "--set rollout.grop_size=3: unknown key grop_size; did you mean group_size?"},
		{"group_size=3", "--set group_size=3: unknown key group_size; group_size belongs under rollout"},
		{"rollout.group_size=many", "--set rollout.group_size=many: rollout.group_size is a string, want a whole number"},
		{"rollout.group_size=2.5", "--set rollout.group_size=2.5: rollout.group_size is a number, want a whole number"},
		{"run.steps=9223372036854775808", "--set run.steps=9223372036854775808: line 1: 9223372036854775808 is out of range for int64"},
		{"loss.kl_coef=1e400", "--set loss.kl_coef=1e400: line 1: 1e400 is out of range for float64"},
		{"rollout=3", "--set rollout=3: rollout is a whole number, want a table"},
		{"rollout.group_size=3\nrun.seed=4", "--set rollout.group_size=3\nrun.seed=4: rollout.group_size is a string, want a whole number"},
		{"eval.temperature=1e-40", "testdata/minimal.good.toml: eval.temperature is 1e-40, allowed: 0, or 1e-06 or more"},
		{"rollout.temperature=0", "testdata/minimal.good.toml: rollout.temperature is 0, allowed: above 0"},
	} {
		if _, err := Load("testdata/minimal.good.toml", []string{test.set}); err == nil || err.Error() != test.want {
			t.Errorf("%q: %v", test.set, err)
		}
	}
}

// All problems are told at once, in the order of the file.
func TestAllProblemsAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.toml")
	text := "[rollout]\ngroup_sise = 1\nmax_turns = \"2\"\n[loss]\nclip = 0.2\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, nil)
	want := path + ": unknown key group_sise (line 2); did you mean group_size?\n" +
		path + ": rollout.max_turns (line 3) is a string, want a whole number\n" +
		path + ": unknown key clip (line 5)"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	_, err = Load("testdata/minimal.good.toml", []string{"rollout.group_size=0", "loss.kl_coef=-1"})
	if err == nil || strings.Count(err.Error(), "testdata/minimal.good.toml: ") != 2 {
		t.Errorf("%v", err)
	}
	if _, err := Load("testdata/none.toml", nil); err == nil || err.Error() != "cannot read the config: open testdata/none.toml: no such file or directory" {
		t.Error(err)
	}
}

func TestTextsFromFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("prompt.txt", []byte("@once\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := "run = { dir = \"r\", steps = 1 }\nmodel.path = \"m\"\ndata.train = \"q\"\ntools.enabled = []\n"
	config := loadText(t, base, "rollout.system_prompt=@prompt.txt", "rollout.prompts.no_results=@@twice", "rollout.prompts.tool_error=plain")
	if p := config.Rollout; p.SystemPrompt != "@once\nmore" || p.Prompts.NoResults != "@twice" || p.Prompts.ToolError != "plain" {
		t.Errorf("%+v", p)
	}
	var out strings.Builder
	if err := Write(&out, config); err != nil {
		t.Fatal(err)
	}
	if again := loadText(t, out.String()); !reflect.DeepEqual(config, again) {
		t.Errorf("%v", Diff(config, again))
	}
	if config.Rollout.SystemPrompt != "@once\nmore" {
		t.Error("writing changed the config")
	}
	if err := os.WriteFile("run.toml", []byte(base+"rollout.prompts.corrective = \"prompt.txt\""), 0o600); err != nil {
		t.Fatal(err)
	}
	want := `run.toml: rollout.prompts.corrective is "prompt.txt", which is a file; allowed: text, or "@prompt.txt" for the text of the file`
	if _, err := Load("run.toml", nil); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestDiff(t *testing.T) {
	a, b := minimal(t), minimal(t, "rollout.group_size=8", "data.eval=x.jsonl", "tools.search.topk=4", "model.path=other")
	var got []string
	for _, d := range Diff(a, b) {
		got = append(got, d.String())
	}
	want := []string{
		`model.path: "models/small" → "other"`, `data.eval: [] → ["x.jsonl"]`, "rollout.group_size: 16 → 8",
		"tools.search.topk: 3 → 4", "eval.tools.search.topk: 3 → 4",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if same := Diff(a, minimal(t)); len(same) > 0 {
		t.Error(same)
	}
}

// Any text is refused or gives a config that comes back from its own file.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"full.good.toml", "dotted.good.toml", "list-of-tables.bad.toml", "deep.bad.toml", "three-betas.bad.toml"} {
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "rollout.group_size=8")
	}
	f.Add("a.b.c = 1\n[a.b]\nd = [[{}]]", "data.fields={id = '@'}")
	f.Fuzz(func(t *testing.T, text, set string) {
		config, err := parse("fuzz.toml", text, []string{set})
		if err != nil || config.Validate() != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, config); err != nil {
			t.Fatal(err)
		}
		again, err := parse("written.toml", out.String(), nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, t := range again.texts() {
			if strings.HasPrefix(*t.value, "@@") {
				*t.value = (*t.value)[1:]
			}
		}
		if differences := Diff(config, again); len(differences) > 0 {
			t.Errorf("%v", differences)
		}
	})
}
