package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/trainer/checkpoint"
)

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print versions; with --check, what this machine has and what is needed",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "check", Usage: "tell found and needed of libtorch, driver and device; exit code 3 where the device cannot be used"},
			deviceFlag(),
		},
		Action: p.version,
	}
}

func (p *program) version(c *cli.Context) error {
	fmt.Fprintf(p.out, "mempo-train %s\n", version)
	fmt.Fprintf(p.out, "libtorch %s\n", engine.TorchVersion())
	fmt.Fprintf(p.out, "CUDA %s\n", cudaName(engine.CUDAVersion()))
	fmt.Fprintf(p.out, "checkpoint format %d\n", checkpoint.FormatVersion)
	if !c.Bool("check") {
		return nil
	}
	asked := c.String("device")
	runtime, err := startEngine(asked, 1)
	resolved := "none"
	if err == nil {
		resolved = runtime.Device()
		runtime.Close()
	}
	fmt.Fprintln(p.out)
	return errors.Join(err, writeCheck(p.out, machine{
		torch: engine.TorchVersion(), torchNeeded: engine.TorchNeeded(),
		cuda: engine.CUDAVersion(), driver: engine.DriverVersion(), device: resolved, deviceAsked: asked,
	}))
}

func cudaName(major int) string {
	if major == 0 {
		return "none"
	}
	return fmt.Sprint(major)
}

// machine is what was found and what is needed.
type machine struct {
	torch, torchNeeded  string
	cuda                int    // major version that libtorch was built for; 0 for none
	driver              string // "" for none
	device, deviceAsked string
}

// writeCheck writes a table of what was found and needed.
func writeCheck(w io.Writer, m machine) error {
	driverNeeded := "none"
	if m.cuda != 0 {
		driverNeeded = fmt.Sprintf("%s or newer, for CUDA %d", cmp.Or(engine.OldestDriver(m.cuda), "one"), m.cuda)
		if !strings.HasPrefix(m.deviceAsked, "cuda") {
			driverNeeded += "; none for the CPU"
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tfound\tneeded")
	fmt.Fprintf(table, "libtorch\t%s\t%s\n", m.torch, m.torchNeeded)
	fmt.Fprintf(table, "NVIDIA driver\t%s\t%s\n", cmp.Or(m.driver, "none"), driverNeeded)
	fmt.Fprintf(table, "device\t%s\t%s\n", m.device, m.deviceAsked)
	return table.Flush()
}
