//go:build shared

package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// goldenChat is one rendering by transformers of a model's chat template.
type goldenChat struct {
	Tokenizer           string
	Messages            []Message
	AddGenerationPrompt bool `json:"add_generation_prompt"`
	Text                string
	IDs                 []int32
}

// sharedFolder is the folder of reference data.
func sharedFolder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MEMPO_SHARED")
	if dir == "" {
		t.Fatal("MEMPO_SHARED does not name the folder of reference data")
	}
	return dir
}

func goldenChats(t *testing.T) []goldenChat {
	t.Helper()
	file, err := os.Open(filepath.Join(sharedFolder(t), "golden", "chat", "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var chats []goldenChat
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var chat goldenChat
		if err := json.Unmarshal(lines.Bytes(), &chat); err != nil {
			t.Fatal(err)
		}
		chats = append(chats, chat)
	}
	if err := lines.Err(); err != nil || len(chats) == 0 {
		t.Fatalf("%d chats, %v", len(chats), err)
	}
	return chats
}

func goldenTemplate(t *testing.T, tokenizer string) *Template {
	t.Helper()
	template, err := LoadTemplate(filepath.Join(sharedFolder(t), "golden", "tokenizers", tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	return template
}

func TestRenderEqualsTransformers(t *testing.T) {
	for k, chat := range goldenChats(t) {
		got, err := goldenTemplate(t, chat.Tokenizer).Render(chat.Messages, chat.AddGenerationPrompt)
		if err != nil || got != chat.Text {
			t.Errorf("chat %d of %s: %q, %v\nwant %q", k, chat.Tokenizer, got, err, chat.Text)
		}
	}
}
