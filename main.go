// Command mempo-train trains language-model agents with memory by reinforcement learning.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

// version is the program's own version, printed by `mempo-train version`.
const version = "0.1.0"

func main() {
	// A pipe that nobody reads is an error like any other: it must not kill a run whose progress
	// goes into it.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
