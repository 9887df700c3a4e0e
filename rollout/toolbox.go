package rollout

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mempo-train/mempo-train/model/chat"
	"github.com/mempo-train/mempo-train/retrieval"
)

// toolGrace is how long a Run that ends waits for tools it has cancelled. One that ignores its
// context is left behind.
const toolGrace = time.Second

// delivery is the outcome of a member's call.
type delivery struct {
	to      *member
	outcome outcome
}

// toolbox runs tool calls beside generation.
type toolbox struct {
	rules      *rules
	slots      chan struct{} // one for each call that may run
	deliveries chan delivery // never full: it holds one for each member
	running    int           // calls without a delivery; only Run's goroutine counts
}

func newToolbox(rules *rules, members int) *toolbox {
	return &toolbox{
		rules:      rules,
		slots:      make(chan struct{}, rules.tools.Concurrency),
		deliveries: make(chan delivery, members),
	}
}

// start runs the call on a goroutine of its own, which ends with a delivery.
func (b *toolbox) start(ctx context.Context, to *member, c call) {
	b.running++
	go func() { b.deliveries <- delivery{to, b.wait(ctx, c)} }()
}

// wait runs the call when a slot is free.
func (b *toolbox) wait(ctx context.Context, c call) outcome {
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return outcome{err: fmt.Errorf("%s was given up while it waited its turn: %w", c.action, ctx.Err())}
	}
	defer func() { <-b.slots }()
	start := time.Now()
	parts, err := b.run(ctx, c)
	o := outcome{err: err, elapsed: time.Since(start)}
	if err == nil {
		o.info = b.rules.inform(parts)
	}
	return o
}

// run returns the parts of the tool's result.
func (b *toolbox) run(ctx context.Context, c call) ([]string, error) {
	if c.action == chat.ActionAccess {
		page, err := b.rules.tools.Access.Access(ctx, c.text)
		return []string{page}, err
	}
	if tool := b.rules.tools.custom(c.action); tool != nil {
		passages, err := tool.Asked.Search(ctx, c.text, tool.TopK)
		if err == nil && len(passages) == 0 {
			return []string{b.rules.Texts.NoResults}, nil
		}
		return contents(passages), err
	}
	passages, err := b.rules.tools.Search.Search(ctx, c.text, b.rules.tools.TopK)
	if err == nil && len(passages) == 0 {
		return []string{b.rules.Texts.NoResults}, nil
	}
	return passageTexts(passages), err
}

// contents are the parts of a custom tool's result.
func contents(passages []retrieval.Passage) []string {
	texts := make([]string, len(passages))
	for k, passage := range passages {
		texts[k] = passage.Contents
	}
	return texts
}

// ResultText is the result of a search as the model sees it, as long as it keeps its token limit.
func ResultText(passages []retrieval.Passage) string {
	return information{inner: strings.Join(passageTexts(passages), "\n")}.text()
}

func passageTexts(passages []retrieval.Passage) []string {
	texts := make([]string, len(passages))
	for rank, passage := range passages {
		texts[rank] = passageText(rank, passage)
	}
	return texts
}

// drain waits until every call has delivered, or for toolGrace.
func (b *toolbox) drain() {
	grace := time.NewTimer(toolGrace)
	defer grace.Stop()
	for b.running > 0 {
		select {
		case <-b.deliveries:
			b.running--
		case <-grace.C:
			return
		}
	}
}
