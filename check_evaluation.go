package main

import (
	"context"
	"io"

	"github.com/mempo-train/mempo-train/config"
	"github.com/mempo-train/mempo-train/internal/fault"
)

// checkEvaluation prints the plan of an evaluation, as runCheck does that of a run.
func checkEvaluation(ctx context.Context, path string, sets []string, out io.Writer) error {
	c, err := config.LoadEvaluation(path, sets)
	if err != nil {
		return fault.Usage(err)
	}
	p := &plan{findings: findings{out: out}, config: forEvaluation(c)}
	p.line("== settings ==")
	p.problem(config.Write(out, c))
	if p.texts, err = loadTexts(p.config); err != nil {
		p.problem(err)
		p.showUnmeasured("evaluation", evaluationSelection(c.Data))
	} else {
		p.showTexts()
		p.showAsked()
	}
	p.showTools(ctx, "tools", p.config)
	if _, device := p.showDevice(c.Model, config.LoRA{}); device != nil {
		device.Close()
	}
	p.heading("run folder " + c.Run.Dir)
	p.refuseHeld(c.Run.Dir)
	p.problem(refuseRunFolder(c.Run.Dir))
	if folder, free, ok := p.freeSpace(c.Run.Dir); ok {
		p.line("free disk space of %s: %s", folder, inBytes(free))
	}
	return p.verdict()
}

// showAsked shows what the evaluation asks.
func (p *plan) showAsked() {
	p.heading("data")
	e := &evaluator{config: p.config, texts: p.texts}
	p.problem(e.load())
	data := e.data
	if data == nil {
		return
	}
	p.showQuestions("evaluation", data)
	if len(data.kept) == 0 {
		return
	}
	p.line("%s", e.describe())
	p.showPrompt(data.kept[0])
}
