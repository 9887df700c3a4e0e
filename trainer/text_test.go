package trainer

import (
	"strings"

	"github.com/mempo-train/mempo-train/model/tokenizer"
	"github.com/mempo-train/mempo-train/rollout"
)

// endID is the end-of-sequence token of a byteVocabulary, the only id that is no byte.
const endID = 256

// byteVocabulary has a token for each byte.
type byteVocabulary struct{}

func (byteVocabulary) Encode(segments ...tokenizer.Segment) []int32 {
	var ids []int32
	for _, segment := range segments {
		for _, b := range []byte(segment.Text) {
			ids = append(ids, int32(b))
		}
	}
	return ids
}

func (v byteVocabulary) EncodePlain(text string) []int32 {
	return v.Encode(tokenizer.Segment{Text: text})
}

func (byteVocabulary) TokenBytes(id int32) ([]byte, bool) {
	switch {
	case id == endID:
		return []byte("<end>"), true
	case id < 0 || id > endID:
		return nil, false
	}
	return []byte{byte(id)}, true
}

func (byteVocabulary) Valid() []bool {
	valid := make([]bool, endID+1)
	for id := range valid {
		valid[id] = true
	}
	return valid
}

func decode(ids []int32) string {
	var text strings.Builder
	for _, id := range ids {
		token, _ := byteVocabulary{}.TokenBytes(id)
		text.Write(token)
	}
	return text.String()
}

// byteFormat writes "Q: question\nA: " and puts results between lines.
type byteFormat struct{}

func (byteFormat) Prompt(question string) ([]int32, error) {
	return byteVocabulary{}.EncodePlain("Q: " + question + "\nA: "), nil
}

func (byteFormat) Observation(result []tokenizer.Segment, _ bool) []int32 {
	return byteVocabulary{}.Encode(append(append([]tokenizer.Segment{{Text: "\n"}}, result...), tokenizer.Segment{Text: "\nA: "})...)
}

func (byteFormat) EndOfTurn() []int32 { return []int32{endID} }

// What a model may write in a turn.
func searches(memory, query string) string {
	return "<mem>" + memory + "</mem><think>t</think><search>" + query + "</search>"
}

func answers(memory, answer string) string {
	return "<mem>" + memory + "</mem><think>t</think><answer>" + answer + "</answer>"
}

func byteRules() rollout.Rules {
	return rollout.Rules{
		Limits:     rollout.Limits{MaxTurns: 4, MaxTurnTokens: 200, MaxResponseTokens: 1000, ToolResultTokens: 100, ContextLength: 2000},
		Format:     byteFormat{},
		Vocabulary: byteVocabulary{}, EOS: []int32{endID}, AnswerPrefix: "<answer>",
		Texts: rollout.Texts{Unavailable: "no {tool}", Refused: "{reason}", Empty: "empty", NoResults: "nothing", ToolFailed: "broken"},
	}
}
