// Command mempo-train trains language-model agents with memory by reinforcement learning.
package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"
)

// version is the program's own version, printed by `mempo-train version`.
const version = "0.1.0"

func main() {
	app := &cli.App{
		Name:  "mempo-train",
		Usage: "train language-model agents that write their own memory",
		Commands: []*cli.Command{{
			Name:  "version",
			Usage: "print the version",
			Action: func(c *cli.Context) error {
				_, err := fmt.Fprintln(c.App.Writer, "mempo-train", version)
				return err
			},
		}},
	}
	if err := app.Run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "mempo-train:", err)
		os.Exit(1)
	}
}
