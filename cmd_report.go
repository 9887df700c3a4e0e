package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/report"
)

func (p *program) reportCommand() *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "make a page of a run: curves, and trajectories to read token by token",
		UsageText: "mempo-train report RUNDIR",
		Description: `Writes RUNDIR/report.html, one file that needs nothing else, and prints its path. A training run does so at its
end; runs that are still going on, that were broken off, and those of sft and eval have a report too.`,
		Args:   true,
		Action: p.writeReport,
	}
}

func (p *program) writeReport(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return fault.Usage(fmt.Errorf("found %d arguments, want one: the folder of a run", c.Args().Len()))
	}
	path, err := report.Write(c.Args().First())
	if err != nil {
		return err
	}
	fmt.Fprintln(p.out, path)
	return nil
}

// reportAtEnd makes the report of a run that has ended. Nothing depends on it: where that fails, a
// line says why, and the run is as good as with one.
func reportAtEnd(dir string, line func(string), log *zap.Logger) {
	path, err := report.Write(dir)
	if err != nil {
		line(fmt.Sprintf("no report: %v", err))
		log.Warn("no report", zap.Error(err))
		return
	}
	line("report: " + path)
}
