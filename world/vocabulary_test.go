package world

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mempo-train/mempo-train/model/chat"
)

// wordPattern cuts text into special tokens, words and signs.
var wordPattern = func() *regexp.Regexp {
	var quoted []string
	for _, token := range specialTokens {
		quoted = append(quoted, regexp.QuoteMeta(token))
	}
	return regexp.MustCompile(strings.Join(quoted, "|") + `| ?[A-Za-z]+| ?[0-9]+| ?[^ \nA-Za-z0-9<>]+`)
}()

// Every word of every message is one token, and the tokens give back the text.
func TestEveryWordIsOneToken(t *testing.T) {
	for name, o := range map[string]Options{"quickstart": someOptions(1), "longer": longer(someOptions(2))} {
		t.Run(name, func(t *testing.T) {
			dir := made(t, o)
			tok := loadTokenizer(t, dir)
			for _, file := range []string{DemonstrationsFile, EvalDemonstrationsFile} {
				for _, d := range readLines[demonstration](t, filepath.Join(dir, file)) {
					for _, m := range d.Messages {
						text := m.Prefix + m.Content
						words := wordPattern.FindAllString(text, -1)
						if strings.Join(words, "") != text {
							t.Fatalf("%q is not made of words", text)
						}
						ids := tok.EncodeTrusted(text)
						if len(ids) != len(words) || tok.Decode(ids) != text {
							t.Fatalf("%q is the %d tokens %v, want the words %q", text, len(ids), ids, words)
						}
					}
				}
			}
		})
	}
}

func TestEveryNameIsOneToken(t *testing.T) {
	o := someOptions(1)
	o.People = 1000 // so many that some are longer
	p := planned(t, o)
	tok := loadTokenizer(t, made(t, o))
	seen := map[int32]bool{}
	for _, name := range p.cast.names {
		for _, text := range []string{name, " " + name} {
			ids := tok.EncodePlain(text)
			if len(ids) != 1 || seen[ids[0]] {
				t.Fatalf("%q is %v", text, ids)
			}
			seen[ids[0]] = true
		}
	}
}

// The golden answer, encoded on its own where memories are measured, has the tokens that the model
// writes behind <answer>; and a name has one token in question, query, memory, passage and answer.
func TestTokensAgreeWhereverTheyStand(t *testing.T) {
	o := someOptions(1)
	dir := made(t, o)
	tok := loadTokenizer(t, dir)
	train, _, err := planned(t, o).questions(planned(t, o).atlas(runWorld))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range train {
		golden := strings.Join(q.golden(), "; ")
		written := tok.EncodeTrusted("<answer>" + golden + "</answer>")
		if alone := tok.EncodePlain(golden); !slices.Equal(alone, written[1:len(written)-1]) || len(alone) != 3*len(q.chains)-1 {
			t.Fatalf("%q is %v on its own and %v in an answer", golden, alone, written)
		}
		first := q.chains[0][0]
		name := tok.EncodePlain(" " + q.names[first.subject])[0]
		tr := demonstrate(q, flaws{}, o.Questions.MaxTurns, stream("test"))
		for _, text := range []string{q.text(), tr.text(0), tr.result(0)} {
			if ids := tok.EncodeTrusted(text); !slices.Contains(ids, name) {
				t.Errorf("%q has no token %d", text, name)
			}
		}
		value := tok.EncodePlain(" " + q.names[q.value(first.subject, first.relation)])[0]
		for _, text := range []string{tr.result(0), tr.text(1)} {
			if ids := tok.EncodeTrusted(text); !slices.Contains(ids, value) {
				t.Errorf("%q has no token %d", text, value)
			}
		}
	}
}

// The template can be used piece by piece, and its glue is short.
func TestChatTemplate(t *testing.T) {
	o := someOptions(1)
	dir := filepath.Join(made(t, o), ModelFolder)
	tok := loadTokenizer(t, filepath.Dir(dir))
	template, err := chat.LoadTemplate(dir)
	if err != nil {
		t.Fatal(err)
	}
	format, err := chat.NewChatFormat(template, tok, o.Questions.SystemPrompt)
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := format.Prompt("Find seat of Tovlex")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.Decode(prompt), "<|system|>Search, remember, answer.<|user|>Find seat of Tovlex<|assistant|>"; got != want {
		t.Errorf("the prompt is %q, want %q", got, want)
	}
	if got := tok.Decode(format.Observation(nil, false)); got != "<|end|><|user|><|assistant|>" {
		t.Errorf("the glue around a result is %q", got)
	}
	end, _ := tok.ID(endToken)
	if got := format.EndOfTurn(); !slices.Equal(got, []int32{end}) {
		t.Errorf("a turn ends with %v, want %d", got, end)
	}
}
