package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// program is one run of the command line.
type program struct {
	in   io.Reader
	out  *output
	errs io.Writer
}

// run runs a command line, args[0] being the program's name, and returns its exit code.
func run(args []string, in io.Reader, out, errs io.Writer) (code int) {
	p := &program{in: in, out: &output{to: out}, errs: errs}
	defer func() {
		if broken := recover(); broken != nil {
			fmt.Fprintf(errs, "mempo-train: internal error: %v\n", broken)
			code = fault.CodeOther
		}
	}()
	app := p.app()
	rest, err := flagsFirst(app, args[1:])
	if err == nil {
		err = app.RunContext(context.Background(), append(args[:1:1], rest...))
	}
	return p.exitCode(err)
}

func (p *program) app() *cli.App {
	app := &cli.App{
		Name:      "mempo-train",
		Usage:     "train language-model agents that write their own memory",
		UsageText: "mempo-train RUN.toml [--set key=value]...\nmempo-train COMMAND ...",
		Version:   version,
		Flags:     []cli.Flag{setFlag()},
		Action:    p.root,
		Commands: []*cli.Command{
			p.checkCommand(), p.sftCommand(), p.evalCommand(), p.benchCommand(), p.scoreCommand(), p.generateCommand(), p.tokenizeCommand(), p.gradeCommand(), p.advantageCommand(),
			p.lossCommand(), p.worldCommand(), p.indexCommand(), p.retrieveCommand(), p.reportCommand(), p.versionCommand(),
		},
		Reader: p.in, Writer: p.out, ErrWriter: p.errs,
		OnUsageError:              usageError,
		DisableSliceFlagSeparator: true, // values may hold commas
		ExitErrHandler:            func(*cli.Context, error) {},
	}
	for _, command := range app.Commands {
		command.OnUsageError = usageError
		command.HideHelpCommand = true
		if !command.Args {
			command.Action = withoutArguments(command.Action)
		}
	}
	return app
}

// root trains what a config says.
func (p *program) root(c *cli.Context) error {
	path := c.Args().First()
	switch {
	case path == "":
		return fault.Usage(errors.New("nothing to do: name the TOML file of a run, or a command (mempo-train --help lists them)"))
	case !strings.ContainsAny(path, "./") && !exists(path):
		return fault.Usage(fmt.Errorf("no command and no file is called %q; mempo-train --help lists the commands", path))
	case c.Args().Len() > 1:
		return fault.Usage(fmt.Errorf("found %q behind the file %s; only --set key=value may stand there", c.Args().Get(1), path))
	}
	return underSignals(c.Context, p.errs, endOfRun, func(ctx context.Context, stop <-chan struct{}) error {
		return runTrain(ctx, path, c.StringSlice("set"), stop)
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func usageError(_ *cli.Context, err error, _ bool) error { return fault.Usage(err) }

// withoutArguments refuses a command line with something left over.
func withoutArguments(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.Args().Present() {
			return fault.Usage(fmt.Errorf("%s takes no argument, found %q", c.Command.Name, c.Args().First()))
		}
		return action(c)
	}
}

// exitCode tells the user about an error and returns the exit code it stands for. Where nobody
// reads the results any more there is nobody to tell and nothing left to do.
func (p *program) exitCode(err error) int {
	if errors.Is(p.out.err, syscall.EPIPE) {
		return 0
	}
	if err == nil {
		err = p.out.err
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.errs, "mempo-train: %v\n", err)
	switch {
	case errors.Is(err, errTerminated):
		return codeTerminated
	case errors.Is(err, errInterrupted):
		return codeInterrupted
	}
	var wrongHelpTopic cli.ExitCoder
	if errors.As(err, &wrongHelpTopic) {
		return fault.CodeUsage
	}
	return fault.Code(err)
}

// badInput marks an error of a command that turns lines into lines: it is the input's unless
// something else is known to be at fault.
func (p *program) badInput(err error) error {
	var marked *fault.Error
	if p.out.err != nil || errors.As(err, &marked) {
		return err
	}
	return fault.Usage(err)
}

// output is standard output; it remembers the first failure.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(data []byte) (int, error) {
	n, err := o.to.Write(data)
	if o.err == nil {
		o.err = err
	}
	return n, err
}
