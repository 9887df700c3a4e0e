package world

import (
	"github.com/mempo-train/mempo-train/model/tokenizer/bytelevel"
)

// Special tokens. Those around a result hold its line breaks, which saves two tokens a result.
const (
	systemToken    = "<|system|>"
	userToken      = "<|user|>"
	assistantToken = "<|assistant|>"
	endToken       = "<|end|>" // ends a turn of the assistant
)

var specialTokens = []string{
	endToken, systemToken, userToken, assistantToken,
	"<mem>", "</mem>", "<think>", "</think>", "<search>", "</search>", "<access>", "</access>", "<answer>", "</answer>",
	"<information>\n", "\n</information>",
}

// chatTemplate puts a role's token before each message; only the assistant's end with one.
const chatTemplate = `{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}` +
	`{% if message['role'] == 'assistant' %}{{ '` + endToken + `' }}{% endif %}{% endfor %}` +
	`{% if add_generation_prompt %}{{ '` + assistantToken + `' }}{% endif %}`

// vocabulary is a tokenizer in which every name, with or without a space before it, and every word
// of a message is one token.
func vocabulary(c *cast, systemPrompt string) bytelevel.Tokenizer {
	list := append(pieces(), words(systemPrompt)...)
	for _, name := range c.names {
		list = append(list, name, " "+name)
	}
	return bytelevel.Tokenizer{
		Merges: bytelevel.Words(list...), Special: specialTokens, EOS: endToken, Template: chatTemplate,
	}
}
