// Package tokenizertest writes a small tokenizer for tests.
package tokenizertest

import "github.com/mempo-train/mempo-train/model/tokenizer/bytelevel"

// The control tokens every written tokenizer has; EndOfTurn is its eos_token.
const (
	StartOfTurn = "<|im_start|>"
	EndOfTurn   = "<|im_end|>"
)

// Template is the chat template that goes into tokenizer_config.json.
const Template = bytelevel.ChatML

// merges lists pairs of raw byte strings by rank. Besides pieces of words they make tokens that
// reach beyond a tag: "><" and ">\n"; and one that holds part of a character: "\x9d\xb1" of "東".
var merges = [][2]string{
	{"h", "e"},
	{" ", "t"},
	{" t", "he"},
	{"i", "n"},
	{"e", "r"},
	{"a", "n"},
	{"o", "n"},
	{"o", "r"},
	{"r", "e"},
	{" ", "a"},
	{" ", "s"},
	{"an", "d"},
	{"in", "g"},
	{">", "<"},
	{">", "\n"},
	{"<", "/"},
	{"s", "e"},
	{"\x9d", "\xb1"},
	{"\n", "\n"},
	{" ", " "},
}

// FirstAddedID is the id of StartOfTurn. Ids below 256 are the byte values, those between are
// merges; EndOfTurn is FirstAddedID + 1, and the further special tokens follow in their order.
var FirstAddedID = int32(256 + len(merges))

// Write puts tokenizer.json and tokenizer_config.json into an existing folder: a byte-level BPE
// with 256 byte tokens, a few merges, StartOfTurn, EndOfTurn, and the given special tokens.
func Write(dir string, specials ...string) error {
	return bytelevel.Tokenizer{
		Merges: merges, Special: append([]string{StartOfTurn, EndOfTurn}, specials...), EOS: EndOfTurn, Template: Template,
	}.Write(dir)
}
