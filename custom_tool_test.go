package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/mempo-train/mempo-train/config"
)

// calculator runs the service of docs/extending.md and gives its address.
func calculator(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	service := exec.CommandContext(ctx, "python3", "configs/extending/calculator.py", port)
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = service.Wait() })
	url := "http://127.0.0.1:" + port
	for deadline := time.Now().Add(time.Minute); connects(t.Context(), "calculator", url) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the service does not start")
		}
	}
	return url
}

func TestTheCalculatorOfTheDocumentation(t *testing.T) {
	url := calculator(t)
	path, _ := tinyConfig(t, tinyFolder(t, "qwen2-tiny"))
	custom := fmt.Sprintf(`tools.custom=[{name = "calculator", tag = "calculate", description = "computes", url = %q}]`, url)
	c, err := config.Load(path, []string{custom})
	if err != nil {
		t.Fatal(err)
	}
	tools, err := loadTools(c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer tools.close()
	for text, want := range map[string]string{"(1987 - 1969) * 2": "36", "-1/4": "-0.25", "1/0": "This cannot be computed: 1/0", "東京 <b>": "This cannot be computed: 東京 <b>", "__import__('os')": "This cannot be computed: __import__('os')"} {
		passages, err := tools.Custom[0].Asked.Search(t.Context(), text, 1)
		if err != nil || len(passages) != 1 || passages[0].Contents != want {
			t.Errorf("%s: %v, %v, want %s", text, passages, err, want)
		}
	}
	out, _ := check(path, custom, "rollout.system_prompt=") // the shipped prompt is too long for so small a model
	holds(t, out, "<calculate> text </calculate>", "- <calculate>: computes", "calculator, <calculate>: service at "+url+", reachable")
	if _, stderr, code := runProgram("", path, "--set", custom, "--set", "run.steps=1"); code != 0 {
		t.Errorf("a run with the tool: exit code %d, %s", code, stderr)
	}
	for tag, want := range map[string]string{"answer": "which has a meaning of its own", "Calc": "a small letter"} {
		_, err := check(path, fmt.Sprintf(`tools.custom=[{name = "x", tag = %q, description = "x", url = %q}]`, tag, url))
		finds(t, err, 2, "tools.custom: ", want)
	}
}
