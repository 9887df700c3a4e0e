// Package chat knows the shape of a conversation: it renders the model's chat template, turns the
// parts of a conversation into token ids piece by piece (Format), and reads the tags the model
// writes in a turn (ParseTurn, Scanner).
package chat

// Message is one message of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}
