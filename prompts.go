package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/model/tokenizer"
)

// encoder turns what a line gives into token ids of the model in a folder.
type encoder struct {
	dir       string
	tokenizer *tokenizer.Tokenizer // nil where the folder has none
	template  *chat.Template       // read when first needed
	model     model.Architecture
}

// newEncoder reads the tokenizer of a model folder, if there is one, and checks that it fits.
func newEncoder(dir string, a model.Architecture) (*encoder, error) {
	e := &encoder{dir: dir, model: a}
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, fault.Usage(err)
	}
	if err := tokenizerFits(tok, a); err != nil {
		return nil, fault.Usage(fmt.Errorf("model folder %s: %w", dir, err))
	}
	e.tokenizer = tok
	return e, nil
}

// ids checks given token ids.
func (e *encoder) ids(given []*int32) ([]int32, error) {
	ids := make([]int32, len(given))
	for k, id := range given {
		if id == nil {
			return nil, fmt.Errorf("ids[%d] is null, want a whole number", k)
		}
		if *id < 0 || int(*id) >= e.model.VocabSize {
			return nil, fmt.Errorf("ids[%d] is %d, allowed are 0 to %d", k, *id, e.model.VocabSize-1)
		}
		ids[k] = *id
	}
	return ids, e.fits(ids)
}

// text encodes plain text.
func (e *encoder) text(text string) ([]int32, error) {
	if e.tokenizer == nil {
		return nil, e.noTokenizer("text")
	}
	ids := append([]int32{}, e.tokenizer.EncodePlain(text)...) // never nil: JSON has a list for no tokens, too
	return ids, e.fits(ids)
}

// messages encodes a conversation up to where the assistant starts to write.
func (e *encoder) messages(given []message) ([]int32, error) {
	if e.tokenizer == nil {
		return nil, e.noTokenizer("messages")
	}
	ids, err := e.render(given, true)
	if err != nil {
		return nil, err
	}
	return ids, e.fits(ids)
}

// render encodes a conversation of any length.
func (e *encoder) render(given []message, addGenerationPrompt bool) ([]int32, error) {
	conversation, err := conversationOf(given)
	if err != nil {
		return nil, err
	}
	if e.template == nil {
		if e.template, err = chat.LoadTemplate(e.dir); err != nil {
			return nil, err
		}
	}
	segments, err := e.template.Segments(conversation, addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	return e.tokenizer.Encode(segments...), nil
}

func (e *encoder) noTokenizer(key string) error {
	return fmt.Errorf("%q needs a tokenizer, and %s has no tokenizer.json; \"ids\" work without", key, e.dir)
}

func (e *encoder) fits(ids []int32) error {
	if len(ids) > e.model.MaxPositions {
		return fmt.Errorf("%d tokens, but the model's context has %d (max_position_embeddings of config.json)", len(ids), e.model.MaxPositions)
	}
	return nil
}

// message is a message as a line gives it.
type message struct {
	Role    *string `json:"role"`
	Content *string `json:"content"`
}

func conversationOf(given []message) ([]chat.Message, error) {
	if len(given) == 0 {
		return nil, errors.New("messages is empty, want at least one message")
	}
	conversation := make([]chat.Message, len(given))
	for k, m := range given {
		if m.Role == nil || m.Content == nil {
			return nil, fmt.Errorf(`messages[%d]: want {"role":"…","content":"…"}`, k)
		}
		conversation[k] = chat.Message{Role: *m.Role, Content: *m.Content}
	}
	return conversation, nil
}
