package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/dataset"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model/chat"
)

// school is the text half of a supervised start: what turns demonstrations into tokens.
type school struct {
	textHalf
	teacher      *chat.Teacher
	systemPrompt string // of demonstrations without one
	limit        int    // longest demonstration, in tokens
	limitKey     string // where that is set
}

func loadSchool(c *config.SFT) (*school, error) {
	if err := modelPresent(c.Model); err != nil {
		return nil, err
	}
	half, err := loadTextHalf(c.Model.Path)
	if err != nil {
		return nil, err
	}
	s := &school{textHalf: half, limit: half.architecture.MaxPositions, limitKey: "max_position_embeddings of config.json"}
	if most := c.Data.MaxTokens; most > 0 && most < s.limit {
		s.limit, s.limitKey = most, "data.max_tokens"
	}
	if s.systemPrompt, err = systemPrompt(c.SFT.SystemPrompt, []string{"search"}, nil); err != nil {
		return nil, fault.Usage(err)
	}
	formats, err := conversationFormats(c.Model.Path, half.tokenizer, "sft.format", c.SFT.Format)
	if err != nil {
		return nil, fault.Usage(err)
	}
	s.teacher = chat.NewTeacher(half.tokenizer, half.generation.EOS, formats)
	return s, nil
}

// lessons are demonstrations in tokens, without those that are too long.
type lessons struct {
	kept    []chat.Lesson
	dropped []string // places of those that are too long
	hash    string   // of all demonstrations as read
	school  *school
}

// loadLessons reads, checks and encodes files of demonstrations, by the rules of a config.
func (s *school) loadLessons(paths []string, of config.SFTData) (*lessons, error) {
	set, err := dataset.LoadDemonstrations(paths)
	if err != nil {
		return nil, fault.Usage(withGet(err, of.Get))
	}
	l := &lessons{hash: set.Hash, school: s}
	for _, demonstration := range set.Demonstrations {
		lesson, err := s.lesson(demonstration)
		if err != nil {
			return nil, fault.Usage(fmt.Errorf("demonstration file %s: %w", demonstration.Place, err))
		}
		if len(lesson.IDs) > s.limit {
			l.dropped = append(l.dropped, demonstration.Place)
		} else {
			l.kept = append(l.kept, lesson)
		}
	}
	if len(l.dropped) > 0 && of.OverLength == "error" {
		return l, fault.Usage(errors.New(l.overLength() + `; data.over_length = "drop" trains on the rest`))
	}
	if len(l.kept) == 0 {
		return l, fault.Usage(fmt.Errorf("no demonstration is left: %s", l.overLength()))
	}
	return l, nil
}

// overLength tells which demonstrations are too long.
func (l *lessons) overLength() string {
	shown, more := l.dropped, ""
	if len(shown) > 10 {
		shown, more = shown[:10], ", …"
	}
	return fmt.Sprintf("%d of %d demonstrations are longer than %d tokens (%s): %s%s",
		len(l.dropped), len(l.dropped)+len(l.kept), l.school.limit, l.school.limitKey, strings.Join(shown, ", "), more)
}

// summary counts demonstrations and tokens.
func (l *lessons) summary() string {
	tokens, learned, longest := 0, 0, 0
	for _, lesson := range l.kept {
		tokens, learned, longest = tokens+len(lesson.IDs), learned+len(lesson.Positions), max(longest, len(lesson.IDs))
	}
	return fmt.Sprintf("%d demonstrations of %d tokens, %d of them to learn; the longest has %d", len(l.kept), tokens, learned, longest)
}

// lesson brings a demonstration into the parts of a rollout and encodes it.
func (s *school) lesson(d dataset.Demonstration) (chat.Lesson, error) {
	conversation := chat.Demonstration{System: s.systemPrompt}
	var turn chat.DemonstratedTurn
	for _, message := range d.Messages {
		switch message.Role {
		case dataset.RoleSystem:
			conversation.System = message.Content
		case dataset.RoleUser:
			turn.Message = message.Content
		case dataset.RoleAssistant:
			turn.Prefix, turn.Text, turn.Trained = message.Prefix, message.Content, message.Trained
			conversation.Turns = append(conversation.Turns, turn)
		}
	}
	return s.teacher.Lesson(conversation)
}
