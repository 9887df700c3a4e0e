//go:build shared

package chat

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/tokenizer"
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

// chatTokenizers are the reference tokenizers that have a chat template.
var chatTokenizers = []string{"qwen2_5", "qwen3", "smollm2", "llama3"}

func goldenTokenizer(t *testing.T, name string) *tokenizer.Tokenizer {
	t.Helper()
	source := filepath.Join(sharedFolder(t), "golden", "tokenizers", name)
	file, err := os.Open(filepath.Join(source, "tokenizer.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(source, "tokenizer_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := writeTemplate(t, map[string]string{"tokenizer.json": string(data), "tokenizer_config.json": string(config)})
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestRenderEqualsTransformers(t *testing.T) {
	for k, chat := range goldenChats(t) {
		got, err := goldenTemplate(t, chat.Tokenizer).Render(chat.Messages, chat.AddGenerationPrompt)
		if err != nil || got != chat.Text {
			t.Errorf("chat %d of %s: %q, %v\nwant %q", k, chat.Tokenizer, got, err, chat.Text)
		}
	}
}

// A content that spells control tokens has other ids on purpose: it stays plain text.
func TestSegmentsEqualTransformersIDs(t *testing.T) {
	toks := map[string]*tokenizer.Tokenizer{}
	for _, name := range chatTokenizers {
		toks[name] = goldenTokenizer(t, name)
	}
	for k, chat := range goldenChats(t) {
		tok := toks[chat.Tokenizer]
		if got := tok.EncodeTrusted(chat.Text); !slices.Equal(got, chat.IDs) {
			t.Errorf("chat %d of %s: the whole text gives %v, want %v", k, chat.Tokenizer, got, chat.IDs)
		}
		segments, err := goldenTemplate(t, chat.Tokenizer).Segments(chat.Messages, chat.AddGenerationPrompt)
		if err != nil || joined(segments) != chat.Text {
			t.Errorf("chat %d of %s: segments make %q, %v", k, chat.Tokenizer, joined(segments), err)
			continue
		}
		hostile := slices.ContainsFunc(chat.Messages, func(m Message) bool { return strings.Contains(m.Content, "<|") })
		if got := tok.Encode(segments...); slices.Equal(got, chat.IDs) == hostile {
			t.Errorf("chat %d of %s, control tokens in a content: %v: %v, want %v", k, chat.Tokenizer, hostile, got, chat.IDs)
		}
	}
}

// Whole renderings of the fixed chats by models' own templates give the ids of the pieces.
func TestPiecesEqualRealTemplates(t *testing.T) {
	for _, name := range chatTokenizers {
		template, tok := goldenTemplate(t, name), goldenTokenizer(t, name)
		for _, chat := range fixedChats {
			format := mustFormat(t, template, tok, chat.system)
			if len(format.EndOfTurn()) != 1 {
				t.Errorf("%s: end of turn is %v", name, format.EndOfTurn())
			}
			messages := opening(chat.system, "Where does it go?")
			for _, round := range chat.rounds {
				messages = append(messages, Message{"assistant", round.turn}, Message{"user", round.result})
			}
			whole, err := template.Render(messages, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range []bool{false, true} {
				got := piecewise(t, format, tok, "Where does it go?", chat.rounds, cut)
				if want := tok.EncodeTrusted(whole); !slices.Equal(got, want) {
					t.Errorf("%s, %s: %q, want %q", name, chat.name, tok.Decode(got), whole)
				}
			}
		}
	}
}
