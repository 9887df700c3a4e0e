package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// generatedLine is a line that generate wrote.
type generatedLine struct {
	IDs      []int32   `json:"ids"`
	LogProbs []float64 `json:"logprobs"`
	Text     *string   `json:"text"`
	Stop     string    `json:"stop"`
}

func generate(t *testing.T, input, dir string, flags ...string) []generatedLine {
	t.Helper()
	lines := mustRun(t, input, append([]string{"generate", "--model", dir, "--device", "cpu", "--threads", "1"}, flags...)...)
	got := make([]generatedLine, len(lines))
	for k, line := range lines {
		decodeLine(t, line, &got[k])
		if len(got[k].IDs) != len(got[k].LogProbs) {
			t.Fatalf("%d ids with %d logprobs", len(got[k].IDs), len(got[k].LogProbs))
		}
	}
	return got
}

func TestGenerateIsGreedyAsPyTorch(t *testing.T) {
	for _, name := range tinyModels {
		var want goldenForward
		readGolden(t, "forward/"+name+".json", &want)
		input := ""
		for _, g := range want.Greedy {
			input += idsLine(g.Prompt)
		}
		for _, flags := range [][]string{nil, {"--batch", "1"}, {"--batch-tokens", "4"}, {"--temperature", "1", "--top-k", "1"}} {
			got := generate(t, input, goldenModel(name), append(flags, "--max-tokens", "24")...)
			for k, g := range want.Greedy {
				if !slices.Equal(got[k].IDs, g.Tokens) || got[k].Stop != stopLength || got[k].Text != nil {
					t.Fatalf("%s %v: %v, want %v", name, flags, got[k], g.Tokens)
				}
				for n, logProb := range got[k].LogProbs {
					if math.Abs(logProb-g.LogProbs[n]) > 1e-4 {
						t.Fatalf("%s %v: logprobs[%d] is %v, want %v", name, flags, n, logProb, g.LogProbs[n])
					}
				}
			}
		}
	}
}

func TestGenerateEndsAtEndOfSequence(t *testing.T) {
	var want goldenForward
	readGolden(t, "forward/qwen3-tiny.json", &want)
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(goldenModel("qwen3-tiny"))); err != nil {
		t.Fatal(err)
	}
	g := want.Greedy[0]
	write(t, filepath.Join(dir, "generation_config.json"), fmt.Sprintf(`{"eos_token_id":[319,%d]}`, g.Tokens[5]))
	first := slices.Index(g.Tokens, g.Tokens[5])
	got := generate(t, idsLine(g.Prompt), dir)[0]
	if got.Stop != stopEOS || !slices.Equal(got.IDs, g.Tokens[:first+1]) {
		t.Errorf("%v, want %v and eos", got, g.Tokens[:first+1])
	}
}

func TestGenerateFillsTheContext(t *testing.T) {
	input := idsLine(make([]int32, 510)) + idsLine(make([]int32, 512)) + idsLine(make([]int32, 511))
	got := generate(t, input, goldenModel("llama-tiny"))
	for k, n := range []int{2, 0, 1} {
		if len(got[k].IDs) != n || got[k].Stop != stopContext {
			t.Errorf("line %d: %v, want %d tokens and %s", k, got[k], n, stopContext)
		}
	}
}

func TestSamplesDependOnSeedAndLineOnly(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	input := strings.Repeat(`{"text":"the answer"}`+"\n"+`{"messages":[{"role":"user","content":"who?"}]}`+"\n", 4)
	flags := []string{"--max-tokens", "40", "--temperature", "1.5", "--top-p", "0.95", "--top-k", "200"}
	first := generate(t, input, dir, append(flags, "--seed", "11")...)
	for _, batch := range [][]string{{"--batch", "1"}, {"--batch", "3", "--batch-tokens", "5"}} {
		again := generate(t, input, dir, slices.Concat(flags, batch, []string{"--seed", "11"})...)
		for k := range first {
			if !slices.Equal(again[k].IDs, first[k].IDs) || *again[k].Text != *first[k].Text {
				t.Errorf("%v, line %d: %v, want %v", batch, k, again[k].IDs, first[k].IDs)
			}
			for n := range again[k].LogProbs {
				if math.Abs(again[k].LogProbs[n]-first[k].LogProbs[n]) > 5e-5 {
					t.Errorf("%v, line %d: logprobs[%d] is %v, want %v", batch, k, n, again[k].LogProbs[n], first[k].LogProbs[n])
				}
			}
		}
	}
	if slices.Equal(first[0].IDs, first[2].IDs) {
		t.Error("equal lines got equal samples")
	}
	if other := generate(t, input, dir, append(flags, "--seed", "12")...); slices.Equal(other[0].IDs, first[0].IDs) {
		t.Error("another seed gave the same sample")
	}
}

func TestGenerateNeverSamplesWhatIsNoToken(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if tok.Size() > 300 {
		t.Fatalf("%d tokens leave no ids without one", tok.Size())
	}
	for _, temperature := range []string{"0", "1000"} {
		for _, line := range generate(t, strings.Repeat(`{"ids":[65]}`+"\n", 4), dir, "--max-tokens", "60", "--temperature", temperature) {
			for _, id := range line.IDs {
				if int(id) >= tok.Size() {
					t.Fatalf("id %d of %d tokens at temperature %s", id, tok.Size(), temperature)
				}
			}
		}
	}
}

func TestGenerateCutsTheTextAtAStopString(t *testing.T) {
	dir := tinyFolder(t, "qwen2-tiny")
	write(t, filepath.Join(dir, "generation_config.json"), `{"eos_token_id":319}`) // an id that is never sampled
	input := `{"ids":[65,66]}`
	flags := []string{"--max-tokens", "200", "--temperature", "1", "--seed", "3"}
	whole := generate(t, input, dir, flags...)[0]
	stop := ""
	for _, r := range *whole.Text {
		if r >= 'a' && r <= 'z' {
			stop = string(r)
			break
		}
	}
	if stop == "" {
		t.Fatalf("no letter in %q", *whole.Text)
	}
	got := generate(t, input, dir, append(flags, "--stop", "never so", "--stop", stop)...)[0]
	want, _, _ := strings.Cut(*whole.Text, stop)
	if got.Stop != stopString || *got.Text != want+stop || !slices.Equal(got.IDs, whole.IDs[:len(got.IDs)]) || len(got.IDs) == len(whole.IDs) {
		t.Errorf("%q after %q, want the text up to it", *got.Text, stop)
	}
}

func TestGenerateAnswersWhatComesBeforeAWrongLine(t *testing.T) {
	dir := goldenModel("llama-tiny")
	for line, want := range map[string]string{
		`{"ids":[]}`: "no token to continue", `{"ids":[1],"messages":[]}`: "one of the three", `{"ids":[999]}`: "ids[0] is 999",
		`{"messages":[{"role":"user","content":"x"}]}`: "tokenizer.json", `{"prompt":"x"}`: "prompt",
	} {
		stdout, stderr, code := runProgram(`{"ids":[4]}`+"\n"+line, "generate", "--model", dir, "--device", "cpu", "--max-tokens", "2")
		if code != 2 || !oneSentence(stderr) || !strings.Contains(stderr, "line 2: ") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stderr, want)
		}
		if strings.Count(stdout, "\n") != 1 {
			t.Errorf("%s: the line before it is answered with %q", line, stdout)
		}
	}
	for line, want := range map[string]string{
		`{"messages":[]}`: "messages is empty", `{"messages":[{"role":"user"}]}`: `messages[0]: want {"role"`,
		`{"messages":[{"role":"user","content":"x","name":"y"}]}`: "name",
	} {
		if _, stderr, code := runProgram(line, "generate", "--model", tinyFolder(t, "llama-tiny"), "--device", "cpu"); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stderr, want)
		}
	}
}
