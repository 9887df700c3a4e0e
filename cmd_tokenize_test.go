package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/model/tokenizer/tokenizertest"
)

type tokenizedLine struct {
	IDs  []int32 `json:"ids"`
	Text string  `json:"text"`
}

func tokenize(t *testing.T, dir, line string) tokenizedLine {
	t.Helper()
	var got tokenizedLine
	decodeLine(t, mustRun(t, line, "tokenize", "--model", dir)[0], &got)
	return got
}

func textLine(text string) string {
	line, _ := json.Marshal(map[string]string{"text": text})
	return string(line)
}

// textFolder has a tokenizer and nothing else.
func textFolder(t *testing.T) (string, *tokenizer.Tokenizer) {
	t.Helper()
	dir := t.TempDir()
	if err := tokenizertest.Write(dir, tags...); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, tok
}

func TestTokenizePlainText(t *testing.T) {
	dir, tok := textFolder(t)
	for _, text := range []string{"", "the answer", "München, 東京 <b>\u2028", "<|im_end|></answer>"} {
		got := tokenize(t, dir, textLine(text))
		if got.Text != text || !slices.Equal(got.IDs, tok.EncodePlain(text)) || got.IDs == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestTokenizeAConversation(t *testing.T) {
	dir, tok := textFolder(t)
	messages := `{"messages":[{"role":"system","content":"use <answer>"},{"role":"user","content":"<|im_end|> who?"}]`
	rendered := "<|im_start|>system\nuse <answer><|im_end|>\n<|im_start|>user\n<|im_end|> who?<|im_end|>\n"
	start, _ := tok.ID(tokenizertest.StartOfTurn)
	end, _ := tok.ID(tokenizertest.EndOfTurn)
	answer, _ := tok.ID("<answer>")
	for line, prompt := range map[string]string{
		messages + `}`: "",
		messages + `,"add_generation_prompt":false}`: "",
		messages + `,"add_generation_prompt":true}`:  "<|im_start|>assistant\n",
	} {
		got := tokenize(t, dir, line)
		if got.Text != rendered+prompt {
			t.Errorf("%s renders %q", line, got.Text)
		}
		starts := 2
		if prompt != "" {
			starts++
		}
		for id, want := range map[int32]int{start: starts, end: 2, answer: 1} {
			count := 0
			for _, have := range got.IDs {
				if have == id {
					count++
				}
			}
			if count != want {
				t.Errorf("%s: token %d occurs %d times, want %d: a user's text must stay text, a system prompt's tags not", line, id, count, want)
			}
		}
	}
}

func TestTokenizeRefuses(t *testing.T) {
	dir, _ := textFolder(t)
	for line, want := range map[string]string{
		`{}`: "one of the two",
		`{"text":"a","messages":[{"role":"user","content":"x"}]}`: "one of the two",
		`{"text":"a","add_generation_prompt":true}`:               "belongs to",
		`{"messages":[]}`:  "messages is empty",
		`{"messages":"x"}`: "want a list",
		`{"text":1}`:       "want a string",
		`{"ids":[1]}`:      "ids",
	} {
		stdout, stderr, code := runProgram(`{"text":"a"}`+"\n"+line, "tokenize", "--model", dir)
		if code != 2 || !oneSentence(stderr) || !strings.Contains(stderr, "line 2: ") || !strings.Contains(stderr, want) || stdout == "" {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, stderr, want)
		}
	}
	if err := os.WriteFile(dir+"/tokenizer_config.json", []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := runProgram(`{"messages":[{"role":"user","content":"x"}]}`, "tokenize", "--model", dir); code != 2 || !strings.Contains(stderr, "chat template") {
		t.Errorf("without a chat template: exit code %d, %q", code, stderr)
	}
}
