package image

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// needed asks proof.py which stages a target needs of a Dockerfile; it returns the exit code and what was said.
func needed(t *testing.T, dockerfile, target string) (int, string) {
	t.Helper()
	const program = "import proof, sys; print(*sorted(proof.needed(proof.instructions(sys.stdin.read()), sys.argv[1:])))"
	command := exec.Command("python3", "-B", "-c", program, target)
	command.Stdin = strings.NewReader(dockerfile)
	out, err := command.CombinedOutput()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	return command.ProcessState.ExitCode(), string(out)
}

func TestProofSaysWhichDockerfilesItKnows(t *testing.T) {
	const from = "proof.py knows FROM only as `FROM BASE AS NAME`, without options; the Dockerfile has "
	shipped, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, dockerfile, target string
		code                     int
		says                     string
	}{
		{"the shipped one", string(shipped), "cpu", 0, "base build cpu\n"},
		{"small letters", "FROM a AS b\nFROM c as d\nRUN e\n", "d", 0, "d\n"},
		{"no name", "FROM a AS b\nFROM c\n", "b", 1, from + "`FROM c`\n"},
		{"a platform", "FROM --platform=linux/arm64 a AS b\n", "b", 1, from + "`FROM --platform=linux/arm64 a AS b`\n"},
		{"a platform and no name", "FROM --platform=linux/arm64 a\n", "b", 1, from + "`FROM --platform=linux/arm64 a`\n"},
		{"nothing", "FROM\n", "b", 1, from + "`FROM `\n"},
		{"no such stage", "FROM a AS b\n", "c", 1, "the Dockerfile has no stage c\n"},
		{"a copy from an image", "FROM a AS b\nCOPY --from=busybox /x /y\n", "b", 1, "proof.py knows COPY --from only of a stage above, " +
			"by its name; the Dockerfile has `COPY --from=busybox /x /y`\n"},
		{"a copy before all stages", "COPY --from=a /x /y\nFROM a AS b\n", "b", 1, "proof.py knows COPY --from only of a stage above, " +
			"by its name; the Dockerfile has `COPY --from=a /x /y`\n"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if code, said := needed(t, c.dockerfile, c.target); code != c.code || said != c.says {
				t.Errorf("exit code %d and %q, want %d and %q", code, said, c.code, c.says)
			}
		})
	}
}
