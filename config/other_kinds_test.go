package config

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const smallSFT = "[run]\ndir = \"r\"\nsteps = 10\n[model]\npath = \"m\"\ndtype = \"fp32\"\n[data]\ntrain = \"d.jsonl\"\n[sft]\n"

const smallEvaluation = "[run]\ndir = \"e\"\n[model]\npath = \"m\"\n[data]\neval = \"q.jsonl\"\n[tools.search]\ncorpus = \"c.jsonl\"\n[eval]\n"

const smallIndex = "[index]\ndir = \"i\"\ncorpus = \"c.jsonl\"\n"

const smallRetrieve = "[retrieve]\nindex = \"i\"\n"

const smallWorld = "[world]\ndir = \"w\"\n"

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKindsOfFile(t *testing.T) {
	for text, want := range map[string]Kind{
		smallSFT: KindSFT, smallEvaluation: KindEvaluation, smallWorld: KindWorld,
		smallIndex: KindIndex, smallRetrieve: KindRetrieve,
		"[run]\nsteps = 3\n[eval]\nevery = 2\n": KindRun, "[model]\n": KindRun, "no TOML at all": KindRun, "": KindRun,
	} {
		if kind, err := KindOf(written(t, text)); err != nil || kind != want {
			t.Errorf("%q is of kind %q, %v, want %q", text, kind, err, want)
		}
	}
	if _, err := KindOf("testdata/none.toml"); err == nil || !strings.Contains(err.Error(), "none.toml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestMistakesInOtherKindsOfFile(t *testing.T) {
	load := map[string]func(string, []string) error{
		smallSFT:        func(path string, sets []string) error { _, err := LoadSFT(path, sets); return err },
		smallEvaluation: func(path string, sets []string) error { _, err := LoadEvaluation(path, sets); return err },
		smallIndex:      func(path string, sets []string) error { _, err := LoadIndex(path, sets); return err },
		smallRetrieve:   func(path string, sets []string) error { _, err := LoadRetrieve(path, sets); return err },
		smallWorld:      func(path string, sets []string) error { _, err := LoadWorld(path, sets); return err },
	}
	for _, test := range []struct{ text, set, want string }{
		{smallSFT, "sft.demonstrations_per_step=0", "sft.demonstrations_per_step is 0, allowed: 1 to 1000000"},
		{smallSFT, "sft.demonstrations_per_step=1000000000", "sft.demonstrations_per_step is 1000000000, allowed: 1 to 1000000"},
		{smallSFT, "sft.format=html", `sft.format is "html", allowed: "chat" or "raw"`},
		{smallSFT, "sft.eval_every=5", "data.eval is not set, want files of demonstrations"},
		{smallSFT, "optimizer.final_share=1.5", "optimizer.final_share is 1.5, allowed: 0 to 1"},
		{smallSFT, "optimizer.schedule=linear", `optimizer.schedule is "linear", allowed: "constant" or "cosine"`},
		{smallSFT, "lora.rank=-1", "lora.rank is -1, allowed: 0 to 65536"},
		{smallSFT, "lora={rank = 2, targets = []}", `lora.targets is empty, allowed: one or more of "q_proj", "k_proj"`},
		{smallSFT, "run.steps=0", "run.steps is 0, allowed: 1 or more"},
		{smallSFT, "checkpoint.keep=0", "checkpoint.keep is 0, allowed: 1 or more"},
		{smallSFT, "sft.demonstrations_per_stp=4", "did you mean demonstrations_per_step?"},
		{smallSFT, "rollout.group_size=4", "unknown table rollout"},
		{smallSFT, "data.train=[]", "data.train is not set"},
		{smallEvaluation, "eval.context=[]", `eval.context is empty, allowed: "limited", "full" or both`},
		{smallEvaluation, `eval.context=["limited", "limited"]`, `eval.context is "limited" twice`},
		{smallEvaluation, "eval.context=whole", `eval.context is "whole", allowed: "limited" or "full"`},
		{smallEvaluation, "data.eval=[]", "data.eval is not set"},
		{smallEvaluation, "eval.samples=0", "eval.samples is 0, allowed: 1 or more"},
		{smallEvaluation, `eval.tools.search.backend="http"`, "eval.tools.search.url is not set"},
		{smallEvaluation, "model.path=", "model.path is not set, want the HuggingFace folder of the model to evaluate"},
		{smallEvaluation, "rollout.max_turns=0", "rollout.max_turns is 0"},
		{smallIndex, "index.corpus=[]", "index.corpus is not set, want one or more files of passages"},
		{smallIndex, "index.methods=[]", `index.methods is empty, allowed: "bm25", "dense" or both`},
		{smallIndex, `index.methods=["bm25", "bm25"]`, `index.methods is "bm25" twice`},
		{smallIndex, "index.methods=hybrid", `index.methods is "hybrid", allowed: "bm25" or "dense"`},
		{smallIndex, "index.methods=dense", "encoder.path is not set"},
		{smallIndex, "graph.build=true", `graph.build is true, allowed: true only with "dense" among index.methods`},
		{smallIndex, "encoder.normalize=true", "encoder.normalize is"},
		{smallIndex, "encoder.device=tpu", `encoder.device is "tpu"`},
		{smallIndex, "graph.m=1", "graph.m is 1, allowed: 2 to 1024"},
		{smallRetrieve, "retrieve.index=", "retrieve.index is not set"},
		{smallRetrieve, "retrieve.listen=8013", `retrieve.listen is`},
		{smallRetrieve, "retrieve.listen=:http", `retrieve.listen is ":http", allowed: host and port`},
		{smallRetrieve, "retrieve.backend=faiss", `retrieve.backend is "faiss", allowed: "index" or "qdrant"`},
		{smallRetrieve, "retrieve.backend=qdrant", "qdrant.collection is not set"},
		{smallRetrieve, "retrieve.method=best", `retrieve.method is "best"`},
		{smallRetrieve, "retrieve.rrf_k=0", "retrieve.rrf_k is 0"},
		{smallRetrieve, "limits.topk=0", "limits.topk is 0, allowed: 1 to 10000"},
		{smallRetrieve, "access.per_second=-1", "access.per_second is -1, allowed: 0 or more"},
		{smallRetrieve, "access.allow_hosts=Example.org", `access.allow_hosts is "Example.org", allowed: hosts in small ASCII letters`},
		{smallRetrieve, "limits.concurency=0", "did you mean concurrency?"},
		{smallWorld, "world.people=5", "world.people is 5, allowed: 6 to"},
		{smallWorld, "world.held_out=1", "world.held_out is 1, allowed: 0.05 to 0.95"},
		{smallWorld, "questions.mix.1=-1", `questions.mix."1" is -1, allowed: 0 or more`},
		{smallWorld, "questions.mix.1=often", "questions.mix holds other things than numbers"},
		{smallWorld, "questions.mix=3", "questions.mix is a whole number, want a table"},
		{smallWorld, "demonstrations.answer_share=0.9", "demonstrations.limited_share + answer_share is 1.2333, allowed: 1 at most"},
		{smallWorld, "model.heads=3", "model.hidden is 128, allowed: an even multiple of model.heads = 3"},
		{smallWorld, "model.hidden=128000", "model is 1.97e+11 parameters in its layers, allowed: 1e+09 at most"},
		{smallWorld, "model.kv_heads=3", "model.kv_heads is 3, allowed: a divisor of model.heads = 4"},
		{smallWorld, "world.dir=", "world.dir is not set"},
	} {
		path := written(t, test.text)
		if err := load[test.text](path, nil); err != nil {
			t.Errorf("the file itself: %v", err)
		}
		if err := load[test.text](path, []string{test.set}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.set, err, test.want)
		}
	}
}

func TestSFTSettingsReadBack(t *testing.T) {
	s, err := LoadSFT(written(t, smallSFT), []string{"sft.system_prompt=Answer @once.", "optimizer.betas=[0.9, 0.98]"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Model.DType != "float32" {
		t.Errorf("dtype %q", s.Model.DType)
	}
	var text bytes.Buffer
	if err := WriteSFT(&text, s); err != nil {
		t.Fatal(err)
	}
	back, err := ParseSFT(text.String())
	if err != nil {
		t.Fatal(err)
	}
	if differences := DiffSFT(s, back); len(differences) > 0 {
		t.Errorf("read back: %v", differences)
	}
	back.Optimizer.Betas[1] = 0.5
	if differences := DiffSFT(s, back); len(differences) != 1 || differences[0].String() != "optimizer.betas: [0.9, 0.98] → [0.9, 0.5]" {
		t.Errorf("differences %v", differences)
	}
}

func TestLearningRateOfASupervisedStart(t *testing.T) {
	s := DefaultSFT()
	s.Run.Steps, s.Optimizer.LearningRate, s.Optimizer.WarmupSteps, s.Optimizer.FinalShare = 12, 2, 2, 0.25
	for step, want := range map[int]float64{1: 1, 2: 2, 3: 2, 12: 0.5} {
		if got := s.LearningRate(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d runs at %v, want %v", step, got, want)
		}
	}
	// Half way between the first step behind the warm-up and the last: the mean of both rates.
	s.Run.Steps = 13
	if got := s.LearningRate(8); math.Abs(got-1.25) > 1e-12 {
		t.Errorf("half way it runs at %v, want 1.25", got)
	}
	s.Optimizer.Schedule = "constant"
	if got := s.LearningRate(8); got != 2 {
		t.Errorf("constant: %v", got)
	}
	s.Optimizer.Schedule, s.Run.Steps, s.Optimizer.WarmupSteps = "cosine", 3, 2
	if got := s.LearningRate(3); got != 2 {
		t.Errorf("one step behind the warm-up runs at %v, want 2", got)
	}
}
