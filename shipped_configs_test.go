package main

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// inEmptyFolder goes to a folder that holds nothing but the shipped configs.
func inEmptyFolder(t *testing.T) {
	t.Helper()
	shipped, err := filepath.Abs("configs")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.Symlink(shipped, "configs"); err != nil {
		t.Fatal(err)
	}
}

// check of a shipped config gets as far as its files exist: without any, it says what is missing and
// what gets it, and shows all else.
func TestCheckOfShippedConfigsWithoutTheirFiles(t *testing.T) {
	inEmptyFolder(t)
	checked := map[config.Kind]int{}
	err := filepath.WalkDir("configs/", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".toml" {
			return err
		}
		kind, err := config.KindOf(path)
		if err != nil {
			return err
		}
		checked[kind]++
		text, err := check(path)
		switch kind {
		case config.KindWorld:
			if err != nil {
				t.Errorf("%s needs nothing: %v", path, err)
			}
		case config.KindRun, config.KindEvaluation, config.KindSFT:
			finds(t, err, fault.CodeUsage, " is missing; to get it: ")
			holds(t, text, "== settings ==", "\n== verdict ==\nthe model folder ")
			if n := strings.Count(text, "the model folder "); n != 1 {
				t.Errorf("%s: the model is missing %d times", path, n)
			}
		default:
			finds(t, err, fault.CodeUsage)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked[config.KindRun] < 4 || checked[config.KindEvaluation] < 2 || checked[config.KindSFT] < 1 || checked[config.KindWorld] < 1 {
		t.Errorf("configs were found of these kinds: %v", checked)
	}
}

// searchService is a search service that tells when it was asked.
func searchService(t *testing.T, asked *bool) string {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*asked = true
		_, _ = w.Write([]byte(`{"result": [[{"document": {"id": "1", "contents": "\"a\"\nx"}, "score": 1}]]}`))
	}))
	t.Cleanup(service.Close)
	return service.URL
}

// The published run checks where its files are: training and evaluation ask services of their own.
func TestCheckOfThePublishedRun(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	asked := evaluationQuestions(t)
	inEmptyFolder(t)
	var training, evaluation bool
	text, err := check("configs/qwen2.5-7b-mempo.toml", "model.path="+dir, "model.device=cpu", "data.train="+asked, "data.eval="+asked,
		"data.compose.eval=[1, 2]", "rollout.system_prompt=Q", "rollout.max_turn_tokens=64", "rollout.kv_cache_tokens=0",
		"tools.search.url="+searchService(t, &training), "eval.tools.search.url="+searchService(t, &evaluation))
	if err != nil {
		t.Fatal(err)
	}
	holds(t, text, "training: 5 questions", "composed: 4 of 1 objective, 2 of 2 objectives", "== tools ==", "reachable", "== tools of evaluations ==", "reachable", "nothing stands in the way")
	if !training || !evaluation {
		t.Errorf("the service for training was asked: %v, that for evaluation: %v", training, evaluation)
	}
}

// Without the model the questions are read all the same.
func TestCheckReadsQuestionsWithoutTheModel(t *testing.T) {
	asked := evaluationQuestions(t)
	inEmptyFolder(t)
	text, err := check("configs/hotpotqa_smollm2.toml", "data.train="+asked)
	finds(t, err, fault.CodeUsage,
		"the model folder models/SmolLM2-135M-Instruct with its config.json is missing; to get it: hf download HuggingFaceTB/SmolLM2-135M-Instruct",
		"data/hotpotqa/corpus.jsonl: no such file or directory; to get it: the questions are at hotpotqa.github.io")
	holds(t, text, "== data of training, prompts not measured ==", "training: 5 questions", "5 rows, read as golden_answers")
	_, err = check("configs/hotpotqa_smollm2.toml")
	finds(t, err, fault.CodeUsage, "questions.jsonl: no such file or directory; to get it: the questions are at hotpotqa.github.io")
}
