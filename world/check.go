package world

import "fmt"

// Check tells what Write would make and returns the error that would keep it from that. It writes
// nothing.
func Check(dir string, o Options, line func(string)) error {
	p, err := o.plan()
	if err != nil {
		return err
	}
	if err := replaceable(dir); err != nil {
		return err
	}
	a := p.atlas(runWorld)
	_, text := a.passage(0)
	line(fmt.Sprintf("%s: %d passages, the first: %s", CorpusFile, len(a.names), text))
	train, eval, err := p.questions(a)
	if err != nil {
		return err
	}
	for _, set := range []struct {
		file      string
		questions []*question
	}{{TrainFile, train}, {EvalFile, eval}} {
		line(fmt.Sprintf("%s: %d questions, the first: %s", set.file, len(set.questions), set.questions[0].text()))
	}
	count := 0
	if err := p.demonstrations(func([]Message) error { count++; return nil }); err != nil {
		return err
	}
	line(fmt.Sprintf("%s: %d demonstrations", DemonstrationsFile, count))
	tokens := vocabulary(p.cast, o.Questions.SystemPrompt)
	line(fmt.Sprintf("%s: a tokenizer of %d tokens", ModelFolder, int(tokens.FirstSpecial())+len(tokens.Special)))
	return nil
}
