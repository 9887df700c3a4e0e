package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mempo-train/mempo-train/eval"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/rollout"
)

// tinyEvaluation is an evaluation on five questions from two sources, in both contexts.
func tinyEvaluation(t *testing.T, modelDir string) (path, dir string) {
	t.Helper()
	runPath, runDir := tinyConfig(t, modelDir)
	dir = filepath.Join(filepath.Dir(runDir), "evaluation")
	asked := evaluationQuestions(t)
	run, err := os.ReadFile(runPath)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(run)) {
		if !strings.HasPrefix(line, "steps") && !strings.HasPrefix(line, "train") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	text := strings.Replace(strings.Join(lines, "\n"), "[data]", "[data]\neval = \""+asked+"\"", 1)
	text = strings.Replace(text, `dir = "`+runDir+`"`, `dir = "`+dir+`"`, 1)
	return write(t, filepath.Join(filepath.Dir(runPath), "eval.toml"), text, `[eval]`, `context = ["limited", "full"]`), dir
}

func evaluationQuestions(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "eval.jsonl"),
		`{"id":"a","question":"on a","golden_answers":["x"],"data_source":"one","hops":1}`,
		`{"id":"b","question":"on b","golden_answers":["y"],"data_source":"one","hops":1}`,
		`{"id":"c","question":"on c","golden_answers":["x","y"],"data_source":"two","hops":2}`,
		`{"id":"d","question":"on d","golden_answers":["z"],"data_source":"two","hops":2}`,
		`{"id":"e","question":"on e","golden_answers":[["x"],["y"]],"data_source":"two","hops":2}`)
}

func evaluate(t *testing.T, path, compare string, sets ...string) (table string, results *eval.Results) {
	t.Helper()
	var out bytes.Buffer
	if err := runEval(context.Background(), path, sets, compare, &out, nil); err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		if dir, found := strings.CutPrefix(set, "run.dir="); found {
			return out.String(), readResults(t, dir)
		}
	}
	return out.String(), nil
}

func readResults(t *testing.T, dir string) *eval.Results {
	t.Helper()
	results, err := eval.Read(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// withoutTimes is the text of results.json apart from times, and of its settings.
func withoutTimes(t *testing.T, results *eval.Results) string {
	t.Helper()
	copied := *results
	copied.Finished, copied.Settings = time.Time{}, nil
	for _, result := range copied.Contexts {
		result.Seconds = 0
	}
	text, err := json.Marshal(copied)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// hashes are those of all files of a folder.
func hashes(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][32]byte{}
	for _, entry := range entries {
		if data, err := os.ReadFile(filepath.Join(dir, entry.Name())); err == nil {
			all[entry.Name()] = sha256.Sum256(data)
		}
	}
	return all
}

// An evaluation leaves one file of results, trajectories and a table; the model stays as it is.
func TestEvaluationMeasuresAndChangesNothing(t *testing.T) {
	modelDir := taughtFolder(t, "qwen2-tiny")
	before := hashes(t, modelDir)
	path, dir := tinyEvaluation(t, modelDir)
	table, results := evaluate(t, path, "", "run.dir="+dir)
	if after := hashes(t, modelDir); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("the model folder has changed")
	}
	if len(results.Contexts) != 2 || results.Data.Questions != 5 || len(results.Model.WeightsHash) != 64 || results.Settings["eval.temperature"] != 0.0 {
		t.Errorf("results of %+v, %+v, settings %v", results.Data, results.Model, results.Settings)
	}
	for _, result := range results.Contexts {
		if result.Overall.N != 5 || len(result.Answers) != 5 || result.Overall.ToolCalls == 0 || len(result.Groups) != 6 {
			t.Errorf("%s: %+v, %d groups", result.Context, result.Overall, len(result.Groups))
		}
		if limited := result.Context == rollout.Limited; limited && results.Contexts[1].Overall.PeakTokens <= result.Overall.PeakTokens {
			t.Errorf("peak tokens %v in limited context, %v in full", result.Overall.PeakTokens, results.Contexts[1].Overall.PeakTokens)
		}
		checkEvaluationRecords(t, dir, result)
	}
	holds(t, table, modelDir+": 5 questions in limited and full context, greedy", "context", "peak tokens", "limited  all", "limited  one", "limited  two",
		"limited  1 hop ", "limited  2 hops", "limited  1 objective", "limited  2 objectives", "full     all", "full     two")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if want := []string{"config.toml", "lock", "log.jsonl", "results.json", "trajectories"}; !slices.Equal(names, want) {
		t.Errorf("the folder holds %v, want %v", names, want)
	}
}

// evaluationTokens is all that was written in an evaluation in limited context.
func evaluationTokens(t *testing.T, dir string) string {
	t.Helper()
	var tokens [][]int32
	for _, record := range recordsOf(t, filepath.Join(dir, "trajectories", "step_000000_limited.jsonl")) {
		tokens = append(tokens, record.ResponseIDs)
	}
	return fmt.Sprint(tokens)
}

func checkEvaluationRecords(t *testing.T, dir string, result *eval.Result) {
	t.Helper()
	records := recordsOf(t, filepath.Join(dir, "trajectories", "step_000000_"+string(result.Context)+".jsonl"))
	for k, record := range records {
		answer := result.Answers[k]
		if record.QuestionID != answer.QuestionID || record.Step != 0 || record.Draw != k || *record.Score != answer.EM || len(record.Turns) != answer.Turns {
			t.Errorf("%s: record %d is %s with score %v, the answer %+v", result.Context, k, record.QuestionID, *record.Score, answer)
		}
	}
	if len(records) != len(result.Answers) {
		t.Errorf("%s: %d trajectories, %d answers", result.Context, len(records), len(result.Answers))
	}
}

// The same weights, questions and settings give the same results; what is set for training, its
// temperature above all, has no part in them.
func TestEvaluationsRepeat(t *testing.T) {
	path, dir := tinyEvaluation(t, taughtFolder(t, "llama-tiny"))
	_, first := evaluate(t, path, "", "run.dir="+dir)
	want, written := withoutTimes(t, first), evaluationTokens(t, dir)
	for name, set := range map[string]string{
		"again": "rollout.temperature=1", "another temperature of training": "rollout.temperature=0.7", "another group": "rollout.group_size=3",
		"another learning rate": "optimizer.learning_rate=1", "greedy does not need a seed": "run.seed=9",
	} {
		if _, results := evaluate(t, path, "", "run.dir="+dir, set); withoutTimes(t, results) != want || evaluationTokens(t, dir) != written {
			t.Errorf("%s: other results", name)
		}
	}
	sampled := []string{"run.dir=" + dir, "eval.temperature=1", "eval.samples=3"}
	table, one := evaluate(t, path, "", sampled...)
	_, two := evaluate(t, path, "", append(sampled, "rollout.temperature=0.5")...)
	_, other := evaluate(t, path, "", append(sampled, "run.seed=8")...)
	text := withoutTimes(t, one)
	if text == want || text != withoutTimes(t, two) || text == withoutTimes(t, other) {
		t.Error("samples are not a function of the sampling settings and the seed")
	}
	if f := one.Contexts[0].Overall; f.Trajectories != 15 || f.N != 5 || len(f.PassAtK) != 3 || !strings.Contains(table, "pass at 2") {
		t.Errorf("%+v\n%s", f, table)
	}
}

func TestEvaluationsAreCompared(t *testing.T) {
	modelDir := taughtFolder(t, "qwen2-tiny")
	path, dir := tinyEvaluation(t, modelDir)
	earlier := filepath.Join(dir, "results.json")
	evaluate(t, path, "", "run.dir="+dir, "model.path="+tinyFolder(t, "qwen2-tiny"))
	later := filepath.Join(t.TempDir(), "later")
	table, _ := evaluate(t, path, earlier, "run.dir="+later, "rollout.max_turns=2")
	holds(t, table, "compared with ", "figure", "before", "after", "difference", "limited  format", "full     em", "changed since: rollout.max_turns: 3 → 2")

	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for name, sets := range map[string][]string{
		"other questions": {"eval.questions=4"},
		"nowhere.json":    nil,
	} {
		file := earlier
		if sets == nil {
			file = name
		}
		err := runEval(context.Background(), path, append(sets, "run.dir="+elsewhere), file, &bytes.Buffer{}, nil)
		finds(t, err, fault.CodeUsage, name)
		if exists(elsewhere) {
			t.Errorf("%s: the evaluation began", name)
		}
	}
}

func TestEvaluationRefuses(t *testing.T) {
	modelDir := taughtFolder(t, "qwen2-tiny")
	path, dir := tinyEvaluation(t, modelDir)
	trained := filepath.Join(t.TempDir(), "trained")
	if err := os.MkdirAll(filepath.Join(trained, "checkpoints"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		set  string
		code int
		want string
	}{
		{"run.dir=" + trained, fault.CodeUsage, "is the folder of a training run (it has checkpoints)"},
		{"model.path=" + dir, fault.CodeUsage, "config.json"},
		{"data.eval=" + path, fault.CodeUsage, "eval.toml"},
		{"eval.samples=2", fault.CodeUsage, "eval.samples is 2"},
		{"eval.tools.search.corpus=" + filepath.Join(dir, "none"), fault.CodeUsage, "none"},
		{"rollout.context_length=30", fault.CodeUsage, "no question is left"},
	} {
		finds(t, runEval(context.Background(), path, []string{test.set}, "", &bytes.Buffer{}, nil), test.code, test.want)
	}
	if exists(filepath.Join(dir, "results.json")) {
		t.Error("results were written")
	}
	_, stderr, code := runProgram("", "eval", path, "rest")
	if code != 2 || !strings.Contains(stderr, `found "rest" behind the file`) {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// A service that breaks: its trajectories are in no mean; without any others there is no result.
func TestEvaluationWithABrokenService(t *testing.T) {
	path, dir := tinyEvaluation(t, taughtFolder(t, "qwen2-tiny"))
	broken := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }
	url, _ := service(t, 1, broken) // the question of the start alone is answered
	err := runEval(context.Background(), path, searching(url, "eval.context=limited"), "", &bytes.Buffer{}, nil)
	finds(t, err, fault.CodeEnvironment, "every trajectory of the evaluation failed", "400")
	if exists(filepath.Join(dir, "results.json")) {
		t.Error("results were written")
	}
	url, _ = service(t, 3, broken)
	_, results := evaluate(t, path, "", searching(url, "eval.context=limited", "run.dir="+dir)...)
	if f := results.Contexts[0].Overall; f.N != 5 || f.Failed == 0 || f.Failed == 5 || f.Trajectories != 5 {
		t.Errorf("%+v", f)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// One that fails in its second context leaves the trajectories of both as they were, beside the
// results that belong to them.
func TestAnEvaluationThatFailsLeavesTheOneBefore(t *testing.T) {
	path, dir := tinyEvaluation(t, taughtFolder(t, "qwen2-tiny"))
	well, asked := service(t, 1<<40, nil)
	evaluate(t, path, "", searching(well, "run.dir="+dir, "eval.context=limited")...)
	calls := asked.Load()
	evaluate(t, path, "", searching(well, "run.dir="+dir)...)
	files := []string{"results.json", "trajectories/step_000000_limited.jsonl", "trajectories/step_000000_full.jsonl"}
	var before [][]byte
	for _, name := range files {
		before = append(before, readFile(t, filepath.Join(dir, name)))
	}
	breaks, _ := service(t, calls, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	err := runEval(context.Background(), path, searching(breaks, "run.dir="+dir), "", &bytes.Buffer{}, nil)
	finds(t, err, fault.CodeEnvironment, "every trajectory of the evaluation failed")
	for k, name := range files {
		if !bytes.Equal(readFile(t, filepath.Join(dir, name)), before[k]) {
			t.Errorf("%s has changed", name)
		}
	}
}

// A signal ends an evaluation at once and leaves the results of before.
func TestSignalsEndAnEvaluation(t *testing.T) {
	path, dir := tinyEvaluation(t, taughtFolder(t, "qwen2-tiny"))
	for _, test := range []struct {
		signal syscall.Signal
		code   int
		want   string
	}{{syscall.SIGINT, codeInterrupted, "ended by SIGINT; no results were written"}, {syscall.SIGTERM, codeTerminated, "ended by SIGTERM; no results were written"}} {
		hangs := make(chan struct{}, 100)
		url, _ := service(t, 1, func(_ http.ResponseWriter, r *http.Request) {
			hangs <- struct{}{}
			<-r.Context().Done()
		})
		args := []string{"eval", path}
		for _, set := range searching(url, "tools.search.timeout_s=600") {
			args = append(args, "--set", set)
		}
		command := process(args...)
		var told bytes.Buffer
		command.Stderr = &told
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		<-hangs
		begun := time.Now()
		if err := command.Process.Signal(test.signal); err != nil {
			t.Fatal(err)
		}
		_ = command.Wait()
		if took := time.Since(begun); command.ProcessState.ExitCode() != test.code || took > 20*time.Second || !strings.HasSuffix(told.String(), test.want+"\n") {
			t.Errorf("%v: exit code %d after %v: %s", test.signal, command.ProcessState.ExitCode(), took, told.String())
		}
		if exists(filepath.Join(dir, "results.json")) {
			t.Error("results were written")
		}
	}
}

func TestCheckOfAnEvaluation(t *testing.T) {
	path, dir := tinyEvaluation(t, tinyFolder(t, "qwen2-tiny"))
	before := tree(t, filepath.Dir(dir))
	text, err := check(path, "eval.questions=3")
	finds(t, err, 0)
	holds(t, text,
		"== settings ==", "questions = 3", "== system prompt ==", "== data ==", "evaluation: 5 questions", "a: on a → x",
		"3 questions in limited and full context, greedy", "== first prompt, ", "== tools ==", "search: 3 passages of ",
		"== model ==", "parameters", "== run folder "+dir, "free disk space", "== verdict ==", "nothing stands in the way",
	)
	if after := tree(t, filepath.Dir(dir)); after != before {
		t.Errorf("files changed from\n%s to\n%s", before, after)
	}
	trained := t.TempDir()
	write(t, filepath.Join(trained, "metrics.jsonl"))
	_, err = check(path, "run.dir="+trained, "data.eval="+filepath.Join(trained, "none.jsonl"))
	finds(t, err, fault.CodeUsage, "(it has metrics.jsonl)", "none.jsonl")
	_, err = check(path, "eval.samples=3")
	finds(t, err, fault.CodeUsage, "eval.samples")
}

// The tools of evaluations during training are checked with those of training.
func TestCheckShowsTheToolsOfEvaluations(t *testing.T) {
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	sets := []string{"data.eval=" + evaluationQuestions(t), "eval.tools.search.backend=http", "eval.tools.search.url=http://127.0.0.1:1", "eval.tools.search.tries=1"}
	text, err := check(path, append(sets, "eval.every=2")...)
	finds(t, err, fault.CodeEnvironment, "127.0.0.1:1")
	holds(t, text, "evaluation: 5 questions", "== tools ==", "search: 3 passages", "== tools of evaluations ==", "not reachable")
	_, err = check(path, sets...)
	finds(t, err, 0)
	err = runTrain(context.Background(), path, append(sets, "eval.every=2"), nil)
	finds(t, err, fault.CodeEnvironment, "127.0.0.1:1")
}
