package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var tinyModels = []string{"qwen2-tiny", "llama-tiny", "qwen3-tiny"}

func goldenModel(name string) string { return filepath.Join("testdata/golden/models", name) }

// goldenForward is what PyTorch computed for a tiny model.
type goldenForward struct {
	InputIDs  [][]int32 `json:"input_ids"`
	Sequences []struct {
		LogProbs   []float64 `json:"logprobs"`
		LogProbs07 []float64 `json:"logprobs_temp0.7"`
		Entropy    []float64 `json:"entropy"`
		Entropy07  []float64 `json:"entropy_temp0.7"`
	} `json:"sequences"`
	Greedy []struct {
		Prompt   []int32   `json:"prompt"`
		Tokens   []int32   `json:"tokens"`
		LogProbs []float64 `json:"logprobs"`
	} `json:"greedy"`
}

func readGolden(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/golden", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(name, err)
	}
}

func decodeLine(t *testing.T, line string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), into); err != nil {
		t.Fatal(line, err)
	}
}

func idsLine(ids []int32) string {
	text, _ := json.Marshal(map[string]any{"ids": ids})
	return string(text) + "\n"
}

// scoreLine is a line that score wrote.
type scoreLine struct {
	IDs      []int32    `json:"ids"`
	LogProbs []*float64 `json:"logprobs"`
	Entropy  []*float64 `json:"entropy"`
}

// near compares a list, of which the first element must be null, with the values of the others.
func near(t *testing.T, what string, got []*float64, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want)+1 || got[0] != nil {
		t.Fatalf("%s: %d elements for %d values, or the first is not null", what, len(got), len(want))
	}
	for k, value := range got[1:] {
		if value == nil || !(math.Abs(*value-want[k]) <= tolerance) {
			t.Fatalf("%s[%d] = %s, want %v", what, k+1, shown(value), want[k])
		}
	}
}

func TestScoreGivesPyTorchsNumbers(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenForward
		readGolden(t, "forward/"+name+".json", &want)
		var input strings.Builder
		for _, ids := range want.InputIDs {
			input.WriteString(idsLine(ids))
		}
		for _, temperature := range []string{"1", "0.7"} {
			for _, budget := range []string{"1", "16", "4096"} {
				lines := mustRun(t, input.String(), "score", "--model", goldenModel(name), "--threads", "1", "--device", "cpu",
					"--temperature", temperature, "--batch-tokens", budget)
				if len(lines) != len(want.InputIDs) {
					t.Fatalf("%s: %d lines, want %d", name, len(lines), len(want.InputIDs))
				}
				for k, s := range want.Sequences {
					var got scoreLine
					decodeLine(t, lines[k], &got)
					if fmt.Sprint(got.IDs) != fmt.Sprint(want.InputIDs[k]) {
						t.Fatalf("%s, line %d: ids %v, want %v", name, k, got.IDs, want.InputIDs[k])
					}
					logProbs, entropy := s.LogProbs, s.Entropy
					if temperature != "1" {
						logProbs, entropy = s.LogProbs07, s.Entropy07
					}
					near(t, name+" logprobs", got.LogProbs, logProbs, 1e-4)
					near(t, name+" entropy", got.Entropy, entropy[:len(entropy)-1], 1e-4)
				}
			}
		}
	}
}

func TestScoreOfShortAndBlankLines(t *testing.T) {
	lines := mustRun(t, "{\"ids\":[]}\n\n  \n{\"ids\":[7]}\r\n{\"ids\":[7,8]}", "score", "--model", goldenModel("llama-tiny"), "--device", "cpu")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3: %q", len(lines), lines)
	}
	for k, want := range []string{`{"ids":[],"logprobs":[],"entropy":[]}`, `{"ids":[7],"logprobs":[null],"entropy":[null]}`} {
		if lines[k] != want {
			t.Errorf("line %d is %s, want %s", k, lines[k], want)
		}
	}
	if lines := mustRun(t, "", "score", "--model", goldenModel("llama-tiny"), "--device", "cpu"); lines[0] != "" {
		t.Errorf("no input gives %q", lines)
	}
}

func TestScoreEncodesPlainText(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	lines := mustRun(t, `{"text":"the <answer>"}`+"\n"+`{"text":""}`, "score", "--model", dir, "--device", "cpu")
	var got scoreLine
	decodeLine(t, lines[0], &got)
	for _, id := range got.IDs {
		if id >= 276 { // added tokens of the test tokenizer
			t.Errorf("plain text became the added token %d: %v", id, got.IDs)
		}
	}
	if len(got.IDs) < 3 || len(got.LogProbs) != len(got.IDs) {
		t.Errorf("%d ids, %d logprobs", len(got.IDs), len(got.LogProbs))
	}
	if lines[1] != `{"ids":[],"logprobs":[],"entropy":[]}` {
		t.Errorf("empty text gives %s", lines[1])
	}
}

func TestScoreNamesTheLineThatIsWrong(t *testing.T) {
	long := make([]int32, 513)
	tests := []struct{ line, want string }{
		{`{"ids":[1,320]}`, "ids[1] is 320, allowed are 0 to 319"},
		{`{"ids":[-1]}`, "ids[0] is -1"},
		{`{"ids":[1,null]}`, "ids[1] is null"},
		{`{"ids":[1.5]}`, "whole number"},
		{`{"ids":"1"}`, "want a list"},
		{`{"ids":[1],"text":"x"}`, "one of the two"},
		{`{}`, "one of the two"},
		{`{"ids":null}`, "one of the two"},
		{`{"ids":[1],"temperature":1}`, "temperature"},
		{`{"text":"x"}`, "tokenizer.json"},
		{`{"ids":[1]`, "not valid JSON"},
		{`{"ids":[1]} {"ids":[2]}`, "more than one"},
		{`[1]`, "want an object"},
		{idsLine(long), "513 tokens, but the model's context has 512"},
	}
	for _, test := range tests {
		stdout, stderr, code := runProgram("\n{\"ids\":[5]}\n"+test.line, "score", "--model", goldenModel("llama-tiny"), "--device", "cpu")
		if code != 2 || !oneSentence(stderr) || !strings.Contains(stderr, "line 3: ") || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit code %d, %q; want 2, the line's number and %q", test.line, code, stderr, test.want)
		}
		if stdout != `{"ids":[5],"logprobs":[null],"entropy":[null]}`+"\n" {
			t.Errorf("%s: the line before it is answered with %q", test.line, stdout)
		}
	}
}

func TestTokenizerOfAnotherModelIsRefused(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	smaller := strings.Replace(string(config), `"vocab_size": 320`, `"vocab_size": 280`, 1)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(smaller), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := runProgram("", "score", "--model", dir, "--device", "cpu"); code != 2 || !oneSentence(stderr) || !strings.Contains(stderr, "vocab_size 280") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
