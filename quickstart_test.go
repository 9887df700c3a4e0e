package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// quickstart is what `make run` goes through, made small.
type quickstart struct {
	t   *testing.T
	dir string
}

func (q quickstart) path(parts ...string) string {
	return filepath.Join(append([]string{q.dir}, parts...)...)
}

// run runs a command with the world's files in the test's folder, and returns what it prints.
func (q quickstart) run(args []string, sets ...string) string {
	q.t.Helper()
	for _, set := range sets {
		args = append(args, "--set", set)
	}
	stdout, stderr, code := runProgram("", args...)
	if code != 0 {
		q.t.Fatalf("%v: exit code %d, %s", args, code, stderr)
	}
	return stdout
}

func (q quickstart) world() {
	q.run([]string{"world", "configs/world/world.toml"}, "world.dir="+q.path("data"), "questions.train=60", "questions.eval=12",
		"demonstrations.clean=1408", "demonstrations.forgetful=16", "demonstrations.flawed=16", "demonstrations.eval=16")
}

func (q quickstart) supervise() {
	q.run([]string{"sft", "configs/world/sft.toml"}, "run.dir="+q.path("sft"), "run.steps=90", "sft.eval_every=30", "optimizer.warmup_steps=2",
		"model.path="+q.path("data", "model"), "data.train="+q.path("data", "demonstrations.jsonl"), "data.eval="+q.path("data", "demonstrations_eval.jsonl"))
}

func (q quickstart) evaluate(dir, model string, more ...string) string {
	return q.run(append([]string{"eval", "configs/world/eval.toml"}, more...), "run.dir="+q.path(dir), "model.path="+model,
		"data.eval="+q.path("data", "eval.jsonl"), "tools.search.corpus="+q.path("data", "corpus.jsonl"))
}

func (q quickstart) train(config, dir string) {
	q.run([]string{"configs/world/" + config}, "run.dir="+q.path(dir), "run.steps=2", "model.path="+q.path("sft", "model"),
		"rollout.questions_per_step=2", "optimizer.questions_per_minibatch=1", "rollout.group_size=4", "eval.every=2", "eval.questions=6",
		"data.train="+q.path("data", "train.jsonl"), "data.eval="+q.path("data", "eval.jsonl"), "tools.search.corpus="+q.path("data", "corpus.jsonl"))
}

func TestQuickstart(t *testing.T) {
	q := quickstart{t, t.TempDir()}
	q.world()
	q.supervise()
	losses := metricLines(t, q.path("sft"))
	if first, last := losses[0]["loss/nll"].(float64), losses[87]["loss/nll"].(float64); last > 0.6*first {
		t.Errorf("the supervised loss goes from %.3f to %.3f", first, last)
	}
	q.evaluate("before", q.path("sft", "model"))
	for _, config := range []string{"mempo.toml", "grpo.toml", "limited.toml"} {
		q.train(config, config+".run")
		lines := metricLines(t, q.path(config+".run"))
		if len(lines) != 2 || lines[1]["eval/limited/em"] == nil || lines[1]["eval/full/em"] == nil {
			t.Errorf("%s: metrics %v", config, lines)
		}
		if tokens := lines[0]["tokens/memory_score"]; config == "grpo.toml" && tokens != nil || config == "mempo.toml" && tokens == 0.0 {
			t.Errorf("%s: %v tokens were scored to measure memories", config, tokens)
		}
		page, err := os.ReadFile(q.path(config+".run", "report.html"))
		if err != nil || !bytes.Contains(page, []byte("</html>")) {
			t.Errorf("%s: the report has %d bytes, %v", config, len(page), err)
		}
	}
	table := q.evaluate("after", q.path("mempo.toml.run", "checkpoints", "step_000002"), "--compare", q.path("before", "results.json"))
	for _, want := range []string{"compared with", "limited  em ", "full     em "} {
		if !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
	q.train("mempo.toml", "again")
	if first, again := metricLines(t, q.path("mempo.toml.run")), metricLines(t, q.path("again")); !reflect.DeepEqual(first, again) {
		t.Errorf("the same seed gives other metrics:\n%v\n%v", first, again)
	}
}
