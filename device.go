package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/mempo-train/mempo-train/engine"
	"github.com/mempo-train/mempo-train/internal/fault"
	"github.com/mempo-train/mempo-train/model"
)

func folderFlag() cli.Flag {
	return &cli.StringFlag{Name: "model", Usage: "HuggingFace model folder"}
}

func deviceFlag() cli.Flag {
	return &cli.StringFlag{Name: "device", Value: "auto", Usage: `"cpu", "cuda", "cuda:N", or "auto": CUDA when there is a GPU`}
}

// modelFlags are those of the commands that run a model.
func modelFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		folderFlag(),
		deviceFlag(),
		&cli.StringFlag{Name: "dtype", Value: "auto", Usage: `compute type: "float32", "bfloat16", or "auto": float32 on a CPU, bfloat16 on CUDA`},
		&cli.IntFlag{Name: "threads", Usage: "CPU threads; 0 is one per core"},
		&cli.IntFlag{Name: "batch-tokens", Value: 4096, Usage: "tokens of one forward pass; fewer need less memory"},
	}, more...)
}

// folder is the folder that --model names.
func folder(c *cli.Context) (string, error) {
	dir := c.String("model")
	if dir == "" {
		return "", fault.Usage(fmt.Errorf("%s needs --model DIR, a HuggingFace model folder", c.Command.Name))
	}
	return dir, nil
}

// atLeast checks the value of a flag.
func atLeast(c *cli.Context, flag string, least int) error {
	if n := c.Int(flag); n < least {
		return fault.Usage(fmt.Errorf("--%s is %d, allowed are whole numbers from %d", flag, n, least))
	}
	return nil
}

// lowestTemperature keeps logits divided by the temperature within float32.
const lowestTemperature = 1e-6

// temperature reads --temperature; 0 is for greedy sampling.
func temperature(c *cli.Context, greedy bool) (float64, error) {
	t := c.Float64("temperature")
	if ok := t >= lowestTemperature && t < 1/lowestTemperature || greedy && t == 0; ok {
		return t, nil
	}
	allowed := fmt.Sprintf("from %g to %g", lowestTemperature, 1/lowestTemperature)
	if greedy {
		allowed = "0 and " + allowed
	}
	return 0, fault.Usage(fmt.Errorf("--temperature is %v, allowed is %s", t, allowed))
}

// runningModel is a model on its device with what turns lines into ids.
type runningModel struct {
	*engine.Model
	*encoder
}

// openModel loads what the model flags ask for.
func openModel(c *cli.Context) (*runningModel, error) {
	dir, err := folder(c)
	if err == nil {
		err = errors.Join(atLeast(c, "threads", 0), atLeast(c, "batch-tokens", 1))
	}
	if err != nil {
		return nil, err
	}
	architecture, err := model.LoadArchitecture(dir)
	if err != nil {
		return nil, fault.Usage(err)
	}
	encoder, err := newEncoder(dir, architecture)
	if err != nil {
		return nil, err
	}
	runtime, err := startEngine(c.String("device"), c.Int("threads"))
	if err != nil {
		return nil, err
	}
	m, err := runtime.Load(dir, engine.Options{DType: c.String("dtype")})
	if err != nil {
		runtime.Close()
		return nil, deviceFault(err)
	}
	return &runningModel{Model: m, encoder: encoder}, nil
}

// Close frees the model and the device.
func (m *runningModel) Close() error {
	err := m.Model.Close()
	m.Runtime.Close()
	return err
}

// computing marks an error that came up while the model ran.
func computing(err error) error {
	if errors.Is(err, model.ErrOutOfMemory) {
		return fault.Environment(fmt.Errorf("%w; fewer --batch-tokens need less", err))
	}
	return err
}
