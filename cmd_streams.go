package main

import (
	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/advantage"
	"github.com/mempo-train/mempo-train/reward"
)

func (p *program) gradeCommand() *cli.Command {
	return &cli.Command{
		Name:  "grade",
		Usage: "score answers against golden answers",
		Description: `Reads lines {"prediction":"…","golden_answers":[…]} or {"turns":["model text of turn 1",…],"prefill":"",
"golden_answers":[…]} (a list of lists for several objectives) and writes {"answer","em","f1","format_ok",
"format_error","score","normalized"} for each; with a prediction, format_ok is null.`,
		Action: func(*cli.Context) error { return p.badInput(reward.GradeStream(p.in, p.out)) },
	}
}

func (p *program) advantageCommand() *cli.Command {
	return &cli.Command{
		Name:  "advantage",
		Usage: "turn scores and memory rewards into advantages",
		Description: `Reads one question a line, {"scores":[…],"memory_rewards":[[…],…],"failed":[…]} with one entry per
trajectory (and per turn of it, null for none) and any key of [advantage], and writes
{"outcome":[…],"memory":[[…],…]} for each.`,
		Action: func(*cli.Context) error { return p.badInput(advantage.Stream(p.in, p.out)) },
	}
}
