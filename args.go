package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/internal/fault"
)

// flagsFirst moves flags before the other arguments, and a command's name before its flags: the
// parser behind the command line ends at the first argument that is no flag. What follows "--" is
// never a flag.
func flagsFirst(app *cli.App, args []string) ([]string, error) {
	var flags, others []string
	for k := 0; k < len(args); k++ {
		switch arg := args[k]; {
		case arg == "--":
			others = append(others, args[k+1:]...)
			k = len(args)
		case len(arg) < 2 || arg[0] != '-':
			others = append(others, arg)
		case !takesValue(app, arg):
			flags = append(flags, arg)
		case k+1 == len(args):
			return nil, fault.Usage(fmt.Errorf("%s needs a value", arg))
		default:
			flags = append(flags, arg, args[k+1])
			k++
		}
	}
	if len(others) > 0 && app.Command(others[0]) != nil {
		return slices.Concat(others[:1], flags, []string{"--"}, others[1:]), nil
	}
	return slices.Concat(flags, []string{"--"}, others), nil
}

// takesValue reports whether the argument behind a flag is its value.
func takesValue(app *cli.App, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	all := slices.Clone(app.Flags)
	for _, command := range app.Commands {
		all = append(all, command.Flags...)
	}
	return slices.ContainsFunc(all, func(f cli.Flag) bool {
		documented, ok := f.(cli.DocGenerationFlag)
		return ok && documented.TakesValue() && slices.Contains(f.Names(), name)
	})
}

// setFlag is the flag of all commands that read a config.
func setFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "set", Usage: "override one setting of the file, as in --set rollout.group_size=8", DefaultText: "none"}
}
